"""The real GPU: its worker process, and in it verifying, measuring and the vendor's library."""

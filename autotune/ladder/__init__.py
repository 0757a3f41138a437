"""The ladder: from a naive kernel to a tuned one, every step measured beside the vendor's library in one run."""

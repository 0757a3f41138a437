"""A suite of sizes measured side by side: the tuned kernel, its default, cuBLAS and the best of cuBLASLt."""

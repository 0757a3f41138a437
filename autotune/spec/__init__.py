"""Kernel specifications: what a kernel is to the tuner, and how that is read from YAML."""

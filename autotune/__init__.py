"""Finds the fastest legal configuration of a templated CUDA kernel on a given GPU and hands it over."""

__version__ = "0.1.0"

"""Searching without a GPU: recorded tables answer in its place."""

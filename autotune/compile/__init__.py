"""Compiling for any GPU without one: NVRTC to native code with exact resources, a cache, a pool of processes."""

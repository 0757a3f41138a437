"""Runs rendered kernels on the CPU to find wrong results, races and stray accesses.

For tests, not for speed: one thread of one block at a time.
"""

from autotune.cpu.check import check_launch, check_on_cpu
from autotune.cpu.run import run_on_cpu

__all__ = ["check_launch", "check_on_cpu", "run_on_cpu"]

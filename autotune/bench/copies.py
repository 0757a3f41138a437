"""A plain copy as one more kernel: the bandwidth that this chip's memory gives, measured like everything else."""

from __future__ import annotations

import dataclasses

from autotune import paths
from autotune.candidate import BufferPlan, CompiledKernel, LaunchPlan, Runnable, ScalarPlan, Source
from autotune.gpu import GpuSpec
from autotune.problem import Problem

WORDS_PER_BLOCK = 1024
WORD_BYTES = 16
LARGE_BYTES = 2**31
"""Read and written together by the large copy, where the memory allows."""
MEMORY_SHARE = 4
"""It takes at most this fraction of the memory: 1 / 4."""


def copy_source() -> Source:
    """The kernel, to be compiled."""
    path = paths.find("templates", "bench/copy.cu")
    return Source(path.read_text(encoding="utf-8"), "copy", path)


def copy_run(kernel: CompiledKernel, problem: Problem, nbytes: float) -> Runnable:
    """A copy that moves about `nbytes` in all: half of them read, half of them written."""
    words = max(1, round(nbytes / 2 / WORD_BYTES))
    count = 4 * words
    buffers = (
        BufferPlan("from", "in", (count,), "float32", count, 0),
        BufferPlan("to", "out", (count,), "float32", count, 0),
    )
    grid = (-(-words // WORDS_PER_BLOCK), 1, 1)
    launch = LaunchPlan(grid, (256, 1, 1), 0, (ScalarPlan("words", "int32", words), *buffers))
    same = dataclasses.replace(problem, sizes=(("COUNT", count),), classes=())
    return Runnable(kernel, launch, same, "copy", 0.0, 2.0 * WORD_BYTES * words)


def large_bytes(gpu: GpuSpec) -> int:
    """How much the large copy moves: far more than the L2 holds."""
    return min(LARGE_BYTES, gpu.memory_bytes // MEMORY_SHARE)

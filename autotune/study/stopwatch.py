"""Where a run's time goes: the same stages, with the seconds of each counted."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from autotune.candidate import Candidate, CompiledKernel, Runnable, Source
from autotune.records import Accuracy
from autotune.trial import Stages, Timed

Result = TypeVar("Result")


class Stopwatch:
    """Passes every call on to `inner`."""

    def __init__(self, inner: Stages, clock: Callable[[], float] = time.monotonic) -> None:
        self.inner = inner
        self.origin = inner.origin
        self.compile_wait_s = 0.0
        self.gpu_s = 0.0
        self._clock = clock

    def wait_for(self, work: Callable[[], Result]) -> Result:
        """Counts as waiting for the compiler."""
        began = self._clock()
        try:
            return work()
        finally:
            self.compile_wait_s += self._clock() - began

    def compile(self, candidate: Candidate, source: Source) -> CompiledKernel:
        """Counts as waiting for the compiler."""
        return self.wait_for(lambda: self.inner.compile(candidate, source))

    def verify(self, candidate: Candidate, run: Runnable) -> Accuracy | None:
        """Counts for the GPU."""
        began = self._clock()
        try:
            return self.inner.verify(candidate, run)
        finally:
            self.gpu_s += self._clock() - began

    def measure(self, candidate: Candidate, run: Runnable, best_ms: float | None) -> Timed | float:
        """Counts for the GPU."""
        began = self._clock()
        try:
            return self.inner.measure(candidate, run, best_ms)
        finally:
            self.gpu_s += self._clock() - began

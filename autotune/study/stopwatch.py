"""Where a search's time goes: the same stages with the GPU's seconds counted, and the shares of what it needs."""

from __future__ import annotations

import time
from collections.abc import Callable

from autotune.candidate import Candidate, CompiledKernel, Runnable, Source
from autotune.compile.ahead import CompilesAhead
from autotune.records import Accuracy
from autotune.study.progress import Occupation
from autotune.study.window import Window
from autotune.trial import Stages, Timed


class Stopwatch:
    """Passes every call on to `inner`."""

    def __init__(self, inner: Stages, clock: Callable[[], float] = time.monotonic) -> None:
        self.inner = inner
        self.origin = inner.origin
        self.gpu_s = 0.0
        self._clock = clock
        self._trials = 0
        self._compiled_before_s: float | None = None

    def compile(self, candidate: Candidate, source: Source) -> CompiledKernel:
        """Not counted: what compiles ahead says itself how long it took."""
        return self.inner.compile(candidate, source)

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

    def occupation(self, window: Window, finished: int) -> Occupation:
        """The shares since the first trial, of which there have been `finished`."""
        if window.started is None:
            return Occupation()
        elapsed = max(self._clock() - window.started, 1e-9)
        compilers = None
        if isinstance(self.inner, CompilesAhead):
            compiled_s = self.inner.compiling_s
            if self._compiled_before_s is None:
                self._compiled_before_s = compiled_s
            compilers = (compiled_s - self._compiled_before_s) / (self.inner.compilers * elapsed)
        return Occupation(self.gpu_s / elapsed, window.idle_s / elapsed, compilers, 60 * finished / elapsed)

"""Compiling before a trial asks for it, so that the GPU does not wait for the compiler."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Protocol, runtime_checkable

from autotune.candidate import Candidate, CompiledKernel, Source
from autotune.compile.pool import CompilePool


@runtime_checkable
class CompilesAhead(Protocol):
    """Stages that can be told early what will be compiled next."""

    @property
    def ahead(self) -> int:
        """How many candidates to keep in flight, so that every compiler process has work."""
        ...

    @property
    def compilers(self) -> int:
        """How many kernels can be compiled at once."""
        ...

    @property
    def compiling_s(self) -> float:
        """Seconds that all compilers together have worked so far."""
        ...

    def prefetch(self, candidate: Candidate, source: Source) -> Future[CompiledKernel]:
        """Begins compiling; `compile` of the same candidate then waits for this."""
        ...


class CompileAhead:
    """The compiling half of real stages: `compile` waits for what `prefetch` began."""

    def __init__(self, pool: CompilePool, ahead: int) -> None:
        self._pool = pool
        self.ahead = ahead
        self._begun: dict[tuple[str, str], list[Future[CompiledKernel]]] = {}
        self._lock = threading.Lock()

    @property
    def compilers(self) -> int:
        """How many kernels can be compiled at once."""
        return self._pool.workers

    @property
    def compiling_s(self) -> float:
        """Seconds that all compilers together have worked so far."""
        return self._pool.worked_s

    def prefetch(self, candidate: Candidate, source: Source) -> Future[CompiledKernel]:
        """Submits to the pool unless the same is under way; the future raises StageFailure where compiling fails."""
        key = source.text, candidate.gpu.arch
        with self._lock:
            begun = self._begun.setdefault(key, [])
            # Once for each candidate that will ask for it: several sizes, or configurations that render alike.
            alive = next((future for future in begun if not future.cancelled()), None)
            future = alive or self._pool.submit(source, candidate.gpu.arch)
            begun.append(future)
        return future

    def compile(self, candidate: Candidate, source: Source) -> CompiledKernel:
        """The native code, begun now unless prefetched; raises StageFailure."""
        key = source.text, candidate.gpu.arch
        with self._lock:
            begun = self._begun.get(key, [])
            future = next((future for future in begun if not future.cancelled()), None)
            if future is not None:
                begun.remove(future)
            if not begun or future is None:
                self._begun.pop(key, None)
        return (future or self._pool.submit(source, candidate.gpu.arch)).result()

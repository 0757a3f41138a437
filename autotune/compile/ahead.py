"""Compiling before a trial asks for it, so that the GPU does not wait for the compiler."""

from __future__ import annotations

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

    def prefetch(self, candidate: Candidate, source: Source) -> Future[CompiledKernel]:
        """Begins compiling; `compile` of the same candidate then waits for this."""
        ...


class CompileAhead:
    """The compiling half of real stages: `compile` waits for what `prefetch` began."""

    def __init__(self, pool: CompilePool, ahead: int) -> None:
        self._pool = pool
        self.ahead = ahead
        self._begun: dict[tuple[str, str], Future[CompiledKernel]] = {}

    def prefetch(self, candidate: Candidate, source: Source) -> Future[CompiledKernel]:
        """Submits to the pool; the future raises StageFailure where compiling fails."""
        key = source.text, candidate.gpu.arch
        future = self._begun[key] = self._pool.submit(source, candidate.gpu.arch)
        future.add_done_callback(lambda done: self._forget(key, done))
        return future

    def compile(self, candidate: Candidate, source: Source) -> CompiledKernel:
        """The native code, begun now unless prefetched; raises StageFailure."""
        begun = self._begun.pop((source.text, candidate.gpu.arch), None)
        return (begun or self._pool.submit(source, candidate.gpu.arch)).result()

    def _forget(self, key: tuple[str, str], future: Future[CompiledKernel]) -> None:
        """Two configurations may render alike: one called off must not stand for the other."""
        if future.cancelled() and self._begun.get(key) is future:
            del self._begun[key]

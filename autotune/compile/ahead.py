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
        future = self._pool.submit(source, candidate.gpu.arch)
        self._begun[source.text, candidate.gpu.arch] = future
        return future

    def compile(self, candidate: Candidate, source: Source) -> CompiledKernel:
        """The native code, begun now unless prefetched; raises StageFailure."""
        begun = self._begun.pop((source.text, candidate.gpu.arch), None)
        return (begun or self._pool.submit(source, candidate.gpu.arch)).result()

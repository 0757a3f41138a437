"""Trials without the GPU: candidates are compiled for it for real, the performance model gives the times."""

from __future__ import annotations

from types import TracebackType

from autotune.candidate import Candidate, Runnable
from autotune.compile_ahead import CompileAhead
from autotune.compile_pool import CompilePool
from autotune.model import predict_ms
from autotune.occupancy import with_occupancy
from autotune.records import Origin


class PredictedStages(CompileAhead):
    """Registers, spills and shared memory are exact, from the compiler; nothing is run."""

    origin = Origin.PREDICTED

    def __init__(self, pool: CompilePool, ahead: int) -> None:
        super().__init__(pool, ahead)

    def verify(self, candidate: Candidate, run: Runnable) -> None:
        """Nothing: the kernel is not run."""

    def measure(self, candidate: Candidate, run: Runnable, best_ms: float | None) -> float:
        """The model's time in ms, from the compiled kernel's real resources."""
        resources = with_occupancy(run.kernel.resources, run.launch, candidate.gpu)
        return predict_ms(candidate, resources)

    def close(self) -> None:
        """Stops the compilers, work in flight included."""
        self._pool.close()

    def __enter__(self) -> PredictedStages:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

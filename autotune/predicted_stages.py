"""Trials without the GPU: candidates are compiled for it for real, the performance model gives the times."""

from __future__ import annotations

import autotune
from autotune.candidate import Candidate, Runnable
from autotune.compile import nvrtc
from autotune.compile.ahead import CompileAhead
from autotune.compile.pool import CompilePool
from autotune.model import predict_ms
from autotune.model.fitted import FittedModel
from autotune.occupancy import with_occupancy
from autotune.records import Environment, Origin


class PredictedStages(CompileAhead):
    """Registers, spills and shared memory are exact, from the compiler; nothing is run.

    The times are the closed form's unless there is a `model` that was fitted to measurements.
    """

    origin = Origin.PREDICTED

    def __init__(self, pool: CompilePool, model: FittedModel | None = None) -> None:
        self._model = model
        # Predicting takes no time, so the compilers are what has to be kept busy.
        super().__init__(pool, 2 * pool.workers)

    def verify(self, candidate: Candidate, run: Runnable) -> None:
        """Nothing: the kernel is not run."""

    def measure(self, candidate: Candidate, run: Runnable, best_ms: float | None) -> float:
        """The model's time in ms, from the compiled kernel's real resources."""
        resources = with_occupancy(run.kernel.resources, run.launch, candidate.gpu)
        if self._model is None or not self._model.learnt:
            return predict_ms(candidate, resources)
        return self._model.predict(candidate.problem, [candidate.config], [resources])[0]


def environment_without_gpu() -> Environment:
    """The software behind predictions: the compiler and this program."""
    return Environment(driver="", cuda="", nvrtc=nvrtc.version(), autotune=autotune.__version__)

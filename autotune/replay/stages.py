"""Stages that answer from a table: recorded failures where they happened, recorded samples where there are any."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from autotune.candidate import Candidate, CompiledKernel, Runnable, Source
from autotune.config import Config
from autotune.errors import StageFailure
from autotune.records import Accuracy, Measurement, Origin, Outcome, Resources, Status
from autotune.replay.table import Table
from autotune.trial import Timed

NOT_RECORDED = Resources(0, 0, 0, 0, 0)
"""Where a table says nothing of registers and shared memory."""

_COMPILING = (Status.ILLEGAL, Status.COMPILE_ERROR, Status.COMPILE_TIMEOUT, Status.COMPILE_OOM)
_VERIFYING = (Status.WRONG_RESULT,)


@dataclass(frozen=True)
class Recorded:
    """What trials of a table's configurations come to; the same configuration and seed always give the same."""

    table: Table
    seed: int = 0
    samples: int | None = None
    """How many of the recorded samples each trial draws; None: the table's own time, as one sample."""
    noise: float = 0.0
    """Relative standard deviation that is put on each sample."""

    def outcome(self, config: Config) -> Outcome:
        """What became of a configuration; raises KeyError for one that was never recorded."""
        row = self.table.row(config)
        entry = self.table.entries[row]
        recorded = entry.outcome.measurement
        if recorded is None:
            return entry.outcome
        if self.samples is None:
            samples = np.array([entry.time_ms])
        else:
            rng = np.random.default_rng((self.seed, row))
            samples = rng.choice(
                recorded.samples_ms, self.samples, replace=self.samples > len(recorded.samples_ms)
            )
        if self.noise:
            # Lognormal, so that no time gets negative.
            samples = samples * np.exp(
                np.random.default_rng((self.seed, row, 1)).normal(0, self.noise, len(samples))
            )
        taken = Measurement(tuple(samples.tolist()), recorded.calls_per_sample, recorded.clocks)
        return replace(entry.outcome, measurement=taken)


class ReplayStages:
    """`Recorded` as the stages of a trial."""

    origin = Origin.REPLAYED

    def __init__(self, recorded: Recorded) -> None:
        self._recorded = recorded

    def compile(self, candidate: Candidate, source: Source) -> CompiledKernel:
        """The recorded resources; raises StageFailure where it did not compile."""
        outcome = self._passed(candidate, _COMPILING)
        return CompiledKernel(
            key=candidate.config.key,
            image=Path(),
            entry=source.entry,
            arch=candidate.gpu.arch,
            resources=outcome.resources or NOT_RECORDED,
            compiler="recorded",
            compile_s=0.0,
        )

    def verify(self, candidate: Candidate, run: Runnable) -> Accuracy | None:
        """The recorded accuracy; raises StageFailure where the result was wrong."""
        return self._passed(candidate, _VERIFYING).accuracy

    def measure(self, candidate: Candidate, run: Runnable, best_ms: float | None) -> Timed:
        """Recorded samples; raises StageFailure where the kernel failed in any other way."""
        outcome = self._passed(candidate, tuple(status for status in Status if not status.timed))
        assert outcome.measurement is not None
        notes = outcome.notes if outcome.resources else ("registers and shared memory were not recorded",)
        return Timed(outcome.measurement, outcome.status is Status.DROPPED, notes)

    def _passed(self, candidate: Candidate, failures: tuple[Status, ...]) -> Outcome:
        outcome = self._recorded.outcome(candidate.config)
        if outcome.status in failures:
            raise StageFailure(outcome.status, outcome.reason, outcome.accuracy)
        return outcome

"""The end of a study: the leaders measured again, interleaved, and the vendor's routine beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from autotune.candidate import Candidate, Runnable
from autotune.errors import StageFailure
from autotune.launch import plan_run
from autotune.occupancy import with_occupancy
from autotune.problem import Problem
from autotune.records import Measurement, Outcome, Status, TrialRecord
from autotune.render import render
from autotune.spec.kernel_spec import KernelSpec
from autotune.study.ledger import time_ms
from autotune.trial import Stages

LEADER_MARGIN = 0.05
"""How far behind the best a configuration may be and still enter the final round."""
MAX_LEADERS = 5
TIE_MARGIN = 0.01
"""Times closer than this, or than the spread of their samples, are a tie."""


@runtime_checkable
class Compares(Stages, Protocol):
    """Stages that can measure several kernels in turn, so that drifting clocks hit all alike."""

    def compare(self, runs: Sequence[Runnable]) -> list[Measurement]:
        """One measurement per run, in their order."""
        ...


@dataclass(frozen=True)
class Baseline:
    """A vendor library's time for the same problem under the same protocol."""

    name: str
    """E.g. `cublas`."""
    measurement: Measurement
    notes: tuple[str, ...] = ()
    """How its algorithm was chosen."""


@runtime_checkable
class MeasuresBaseline(Protocol):
    """Stages that know a vendor routine for some kernels."""

    def baseline(self, spec: KernelSpec, problem: Problem) -> Baseline | None:
        """The routine's time; None where there is no such routine."""
        ...


def choose_leaders(timed: Sequence[TrialRecord]) -> list[TrialRecord]:
    """The best fully measured ones, fastest first: within 5% of the best, at most 5."""
    whole = [record for record in timed if record.outcome.status is Status.OK]
    near = [record for record in whole if time_ms(record) <= time_ms(whole[0]) * (1 + LEADER_MARGIN)]
    return near[:MAX_LEADERS]


def remeasure(candidates: Sequence[Candidate], stages: Compares) -> list[tuple[Candidate, Outcome]]:
    """Final-round outcomes of those that still compile and verify; empty where comparing fails."""
    ready = []
    for candidate in candidates:
        try:
            source = render(candidate.spec, candidate.gpu, candidate.problem, candidate.config)
            run = plan_run(candidate, stages.compile(candidate, source))
            ready.append((candidate, run, stages.verify(candidate, run)))
        except StageFailure:
            continue  # It passed in the search; without a final time it just cannot win.
    if not ready:
        return []
    try:
        measurements = stages.compare([run for _, run, _ in ready])
    except StageFailure:
        return []
    outcomes = []
    for (candidate, run, accuracy), measurement in zip(ready, measurements, strict=True):
        resources = with_occupancy(run.kernel.resources, run.launch, candidate.gpu)
        outcome = Outcome(
            Status.OK, stages.origin, resources=resources, accuracy=accuracy, measurement=measurement
        )
        outcomes.append((candidate, outcome))
    return outcomes


def find_ties(best: TrialRecord, others: Sequence[TrialRecord]) -> tuple[TrialRecord, ...]:
    """The measured ones that cannot be told from the best."""
    return tuple(
        other
        for other in others
        if other.config != best.config
        and other.outcome.measurement is not None
        and time_ms(other) - time_ms(best) <= _margin(best, other) * time_ms(best)
    )


def _margin(*records: TrialRecord) -> float:
    spreads = [record.outcome.measurement.spread for record in records if record.outcome.measurement]
    return max(TIE_MARGIN, *spreads)

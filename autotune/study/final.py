"""The end of a study: the leaders measured again, interleaved, and the vendor's routine beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from autotune.candidate import Candidate, Runnable
from autotune.errors import StageFailure
from autotune.launch import plan_run
from autotune.occupancy import with_occupancy
from autotune.problem import Problem
from autotune.records import Outcome, Status, TrialRecord
from autotune.render import render
from autotune.spec.kernel_spec import KernelSpec
from autotune.study.ledger import time_ms
from autotune.thorough import Verifies, verify_thoroughly
from autotune.trial import Compared, Stages, VendorTime

LEADER_MARGIN = 0.05
"""How far behind the best a configuration may be and still enter the final round."""
MAX_LEADERS = 5
TIE_MARGIN = 0.01
"""Times closer than this, or than the spread of their samples, are a tie."""


@runtime_checkable
class Compares(Stages, Protocol):
    """Stages that can measure several kernels in turn, so that drifting clocks hit all alike."""

    def compare(self, runs: Sequence[Runnable]) -> Compared:
        """One measurement per run, in their order, and the vendor's where there is such a routine."""
        ...


@runtime_checkable
class MeasuresBaseline(Protocol):
    """Stages that know a vendor routine for some kernels."""

    def baseline(self, spec: KernelSpec, problem: Problem) -> VendorTime | None:
        """The routine's time; None where there is no such routine."""
        ...


def choose_leaders(timed: Sequence[TrialRecord]) -> list[TrialRecord]:
    """The best fully measured ones, fastest first: within 5% of the best, at most 5."""
    whole = [record for record in timed if record.outcome.status is Status.OK]
    near = [record for record in whole if time_ms(record) <= time_ms(whole[0]) * (1 + LEADER_MARGIN)]
    return near[:MAX_LEADERS]


@dataclass(frozen=True)
class FinalRound:
    """What became of the leaders."""

    outcomes: tuple[tuple[Candidate, Outcome], ...] = ()
    """Fastest first; failures among them are kernels that are wrong at other sizes."""
    vendor: VendorTime | None = None


def remeasure(candidates: Sequence[Candidate], stages: Compares) -> FinalRound:
    """Final times of those that still compile and verify; empty where comparing fails.

    Where the stages can, the fastest is also verified where kernels break; one that fails there is out, and the next
    has its turn.
    """
    ready = []
    for candidate in candidates:
        try:
            source = render(candidate.spec, candidate.gpu, candidate.problem, candidate.config)
            run = plan_run(candidate, stages.compile(candidate, source))
            ready.append((candidate, run, stages.verify(candidate, run)))
        except StageFailure:
            continue  # It passed in the search; without a final time it just cannot win.
    if not ready:
        return FinalRound()
    try:
        compared = stages.compare([run for _, run, _ in ready])
    except StageFailure:
        return FinalRound()
    outcomes = []
    for (candidate, run, accuracy), measurement in zip(ready, compared.measurements, strict=True):
        resources = with_occupancy(run.kernel.resources, run.launch, candidate.gpu)
        outcome = Outcome(
            Status.OK, stages.origin, resources=resources, accuracy=accuracy, measurement=measurement
        )
        outcomes.append((candidate, outcome))
    outcomes.sort(key=lambda pair: pair[1].time_ms or 0.0)
    return FinalRound(tuple(_check_winner(outcomes, stages)), compared.vendor)


def _check_winner(
    outcomes: Sequence[tuple[Candidate, Outcome]], stages: Compares
) -> Iterator[tuple[Candidate, Outcome]]:
    """The outcomes, with those replaced that turn out wrong before the first that is right everywhere."""
    checked = not isinstance(stages, Verifies)
    for candidate, outcome in outcomes:
        if checked:
            yield candidate, outcome
            continue
        assert isinstance(stages, Verifies)
        try:
            accuracy = verify_thoroughly(candidate, stages)
        except StageFailure as failure:
            yield (
                candidate,
                Outcome(
                    failure.status,
                    outcome.origin,
                    f"wrong elsewhere: {failure.reason}",
                    outcome.resources,
                    failure.accuracy,
                ),
            )
            continue
        checked = True
        yield (
            candidate,
            replace(
                outcome,
                notes=(
                    f"also right off the tile: {accuracy.elements} elements, "
                    f"worst error {accuracy.worst_error:.3g} of {accuracy.tolerance:g} allowed",
                ),
            ),
        )


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

"""One trial, start to end: legality, render, compile, legality again, verify, measure.

Each early return is an outcome.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from autotune.candidate import Candidate, CompiledKernel, Runnable, Source
from autotune.errors import StageFailure
from autotune.launch import plan_run
from autotune.legality import resource_violations, unpromising, violations
from autotune.occupancy import with_occupancy
from autotune.records import Accuracy, Measurement, Origin, Outcome, Status
from autotune.render import render


@dataclass(frozen=True)
class Timed:
    """What measuring gives: the samples, and whether it stopped early because the kernel is clearly slower."""

    measurement: Measurement
    dropped: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class VendorTime:
    """A vendor library's time for the same problem under the same protocol."""

    name: str
    """E.g. `cublas`."""
    measurement: Measurement
    notes: tuple[str, ...] = ()
    """How its algorithm was chosen."""


@dataclass(frozen=True)
class Compared:
    """Kernels measured in turn, and the vendor's routine among them where there is one."""

    measurements: tuple[Measurement, ...]
    vendor: VendorTime | None = None


class Stages(Protocol):
    """The only seam of a trial: the real GPU, a fake for tests, a replay, or prediction without a GPU.

    Each method raises `StageFailure` with the status to record.
    """

    origin: Origin

    def compile(self, candidate: Candidate, source: Source) -> CompiledKernel:
        """The native code for the candidate's GPU."""
        ...

    def verify(self, candidate: Candidate, run: Runnable) -> Accuracy | None:
        """The worst error where the result is right; None where nothing is run (prediction)."""
        ...

    def measure(self, candidate: Candidate, run: Runnable, best_ms: float | None) -> Timed | float:
        """The samples, or a predicted time in ms; stops early when clearly slower than `best_ms`."""
        ...


def begin(candidate: Candidate, origin: Origin) -> Source | Outcome:
    """The part of a trial that needs neither compiler nor GPU: what to compile, or why there is nothing to."""
    broken = violations(candidate.spec, candidate.gpu, candidate.problem, candidate.config)
    if broken:
        return Outcome(Status.ILLEGAL, origin, "; ".join(str(violation) for violation in broken))

    return render(candidate.spec, candidate.gpu, candidate.problem, candidate.config)


def run_trial(
    candidate: Candidate,
    stages: Stages,
    best_ms: float | None = None,
    begun: Source | Outcome | None = None,
) -> Outcome:
    """What becomes of one candidate; raises only on programming errors and on losing the GPU for good.

    `begun` is what `begin` gave, where that was done ahead.
    """
    origin = stages.origin

    source = begun or begin(candidate, origin)
    if isinstance(source, Outcome):
        return source

    try:
        kernel = stages.compile(candidate, source)
    except StageFailure as failure:
        return Outcome(failure.status, origin, failure.reason)

    run = plan_run(candidate, kernel)
    resources = with_occupancy(kernel.resources, run.launch, candidate.gpu)
    broken = resource_violations(candidate.gpu, run.launch, resources)
    if broken:
        return Outcome(Status.ILLEGAL, origin, "; ".join(str(violation) for violation in broken), resources)

    try:
        accuracy = stages.verify(candidate, run)
    except StageFailure as failure:
        return Outcome(failure.status, origin, failure.reason, resources, failure.accuracy)

    try:
        timed = stages.measure(candidate, run, best_ms)
    except StageFailure as failure:
        return Outcome(failure.status, origin, failure.reason, resources, accuracy)

    notes = unpromising(candidate.spec, candidate.gpu, candidate.problem, candidate.config, resources)
    if isinstance(timed, float):
        return Outcome(Status.OK, origin, resources=resources, predicted_ms=timed, notes=notes)
    return Outcome(
        Status.DROPPED if timed.dropped else Status.OK,
        origin,
        resources=resources,
        accuracy=accuracy,
        measurement=timed.measurement,
        notes=notes + timed.notes,
    )

"""How far a study is: plain numbers, for whatever draws them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from autotune.config import Config
from autotune.problem import Problem
from autotune.problems import bytes_moved, flops
from autotune.records import Origin, Status, TrialRecord
from autotune.spec.kernel_spec import KernelSpec


@dataclass(frozen=True)
class Occupation:
    """How busy what a search needs has been since its first trial, each as a share of the time from 0 to 1."""

    gpu: float = 0.0
    """Verifying and measuring."""
    idle: float = 0.0
    """No candidate was ready to be tried."""
    compilers: float | None = None
    """The compiler processes, on average; None where candidates are not compiled ahead."""
    per_minute: float = 0.0
    """Trials finished."""


@dataclass(frozen=True)
class Progress:
    """The state of a run after a trial, or when a phase begins."""

    phase: str
    """`baseline`, `search` or `final`."""
    problem: Problem
    origin: Origin
    done: int
    """Measured configurations of the study, earlier runs included."""
    total: int | None
    """Trials asked for, at most the size of the space; None where only time limits the run."""
    failures: Mapping[Status, int] = field(default_factory=dict)
    """Trials of this run that gave no time, by status."""
    best_ms: float | None = None
    best_config: Config | None = None
    best_metrics: Mapping[str, float] = field(default_factory=dict)
    """The spec's metrics of the best, e.g. `gflops`."""
    elapsed_s: float = 0.0
    time_left_s: float | None = None
    """Estimated; None while there is nothing to go by."""
    occupation: Occupation = field(default_factory=Occupation)
    last: TrialRecord | None = None
    """The trial just finished."""


@dataclass(frozen=True)
class FailureGroup:
    """Trials that failed alike: same status, same reason but for its numbers."""

    status: Status
    reason: str
    """The first one's reason, in full."""
    count: int


def group_failures(records: Iterable[TrialRecord]) -> list[FailureGroup]:
    """The failed trials by kind, the most frequent first."""
    counts: Counter[tuple[Status, str]] = Counter()
    examples: dict[tuple[Status, str], str] = {}
    for record in records:
        outcome = record.outcome
        if outcome.status.timed:
            continue
        kind = (outcome.status, re.sub(r"\d+", "#", outcome.reason))
        counts[kind] += 1
        examples.setdefault(kind, outcome.reason)
    return [FailureGroup(kind[0], examples[kind], count) for kind, count in counts.most_common()]


def metrics(spec: KernelSpec, problem: Problem, time_ms: float) -> dict[str, float]:
    """The spec's metrics of a kernel that takes `time_ms` on the problem."""
    names = {
        **problem.names(),
        "flops": flops(spec, problem),
        "bytes": bytes_moved(spec, problem),
        "time_ns": time_ms * 1e6,
    }
    return {name: float(expression.evaluate(names)) for name, expression in spec.metrics.items()}  # type: ignore[arg-type]

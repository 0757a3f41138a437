"""What goes into an export and what comes out of it: entries, the report, and the rule for other sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.config import Config, value_text
from autotune.errors import InputError
from autotune.problem import Problem, octaves
from autotune.problems import flops
from autotune.records import Origin, TrialRecord
from autotune.spec.kernel_spec import KernelSpec

FAR = 3.5
"""Octaves beyond which a size is too unlike the tuned ones for their kernels to be trusted: a little more
than a factor 4 in each of three sizes, or 11 in one. Wider than what `best` calls nearest, since a header
has only its own kernels and the default to choose from."""

OTHER_SIZES = (
    "nearest by the root of the sum of squared binary logarithms of the size ratios; "
    f"beyond {FAR:g} the kernel's default"
)
"""The rule for sizes that are not listed, for files that leave the choice to the reader."""


@dataclass(frozen=True)
class ExportEntry:
    """One answer to hand over: the config for one problem, and where it comes from."""

    problem: Problem
    config: Config
    record: TrialRecord | None
    """The trial behind it; None where the config is a default that nobody tried."""
    match: str
    """How `best` found it: `exact`, `selected`, `nearest`, `predicted` or `default`."""
    baseline: TrialRecord | None = None
    """The vendor library's time for the same problem on the same board and protocol."""

    @property
    def measured(self) -> bool:
        """True where a measured trial of this very problem stands behind the entry."""
        return (
            self.record is not None
            and self.record.outcome.origin is not Origin.PREDICTED
            and self.record.problem.sizes == self.problem.sizes
        )

    @property
    def time_ms(self) -> float | None:
        """Measured or predicted time of one call; None without a record of this problem."""
        if self.record is None or self.record.problem.sizes != self.problem.sizes:
            return None
        return self.record.outcome.time_ms

    @property
    def baseline_ratio(self) -> float | None:
        """The vendor library's time over this one: above 1 is faster than it."""
        vendor = self.baseline.outcome.time_ms if self.baseline else None
        return vendor / self.time_ms if self.measured and vendor and self.time_ms else None

    def gflops(self, spec: KernelSpec) -> float | None:
        """1e9 operations per second at `time_ms`."""
        return flops(spec, self.problem) / self.time_ms / 1e6 if self.time_ms else None


@dataclass(frozen=True)
class ExportReport:
    """What was written."""

    path: Path
    kernels: int
    """Configurations, each compiled in several variants."""
    sizes: int
    """Sizes in the table of the dispatcher."""
    predicted: bool
    """True where any figure is predicted or missing rather than measured."""
    bytes: int
    """Size of the file, or of all files of the folder."""


def unique_sizes(entries: Sequence[ExportEntry], told: Sequence[str] = ()) -> list[ExportEntry]:
    """One entry for each combination of sizes, ordered by sizes; measured ones win, then the faster, then
    the first.

    A dispatcher decides by the sizes and by the classes that a call has to tell; alignment and other classes are left
    to the variants of the kernel.
    """
    chosen: dict[tuple[tuple[int, ...], tuple[str, ...]], ExportEntry] = {}
    for entry in entries:
        classes = dict(entry.problem.classes)
        key = (
            tuple(size for _, size in entry.problem.sizes),
            tuple(value_text(classes[name]) for name in told),
        )
        rival = chosen.get(key)
        if rival is None or _rank(entry) < _rank(rival):
            chosen[key] = entry
    return [chosen[key] for key in sorted(chosen)]


def cover(entries: Sequence[ExportEntry], most: int | None) -> list[ExportEntry]:
    """The entries of at most `most` distinct configurations, such that the sizes given up lie near those
    kept.

    Drops one configuration after another: each time the one whose sizes are nearest to the remaining ones,
    by the sum of `octaves` from each size to the nearest size kept. Deterministic; the order of the
    entries is kept.
    """
    if most is not None and most < 1:
        raise InputError(f"at least one kernel is needed, got {most}", key="max_kernels")
    configs = list(dict.fromkeys(entry.config for entry in entries))
    apart = [[octaves(dict(a.problem.sizes), dict(b.problem.sizes)) for b in entries] for a in entries]
    while most is not None and len(configs) > most:

        def loss(dropped: Config) -> float:
            kept = [
                i for i, entry in enumerate(entries) if entry.config != dropped and entry.config in configs
            ]
            return math.fsum(min(row[i] for i in kept) for row in apart)

        # On a tie the later one goes.
        configs.remove(min(reversed(configs), key=loss))
    return [entry for entry in entries if entry.config in configs]


def _rank(entry: ExportEntry) -> tuple[bool, float]:
    return not entry.measured, entry.time_ms if entry.time_ms is not None else math.inf

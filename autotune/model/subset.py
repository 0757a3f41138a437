"""Which few configurations serve many sizes: chosen one by one, judged by regret at sizes held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.columns import Array
from autotune.config import Config
from autotune.model.measurements import Measurements

COUNTS = (1, 2, 4, 8, 16)
MISSING = 1.0
"""Logarithm of the slowdown that a configuration counts with where it has no time: it may well have failed there."""


@dataclass(frozen=True)
class Regret:
    """How much slower than the best of all the best of so many configurations is at sizes held out; 0 for none."""

    kernels: int
    median: float
    p90: float
    worst: float


def chosen(measured: Measurements, places: Sequence[int], most: int) -> list[Config]:
    """At most so many configurations, each the one that lowers the mean logarithm of regret over places most.

    None that failed anywhere. Fewer where more would gain nothing.
    """
    return [measured.configs[row] for row in _rows(_slowdowns(measured), _allowed(measured), places, most)]


def held_out_regret(measured: Measurements) -> list[Regret]:
    """By number of configurations: chosen without a size and held against its best; empty for less than three sizes."""
    labels = [place.problem.label for place in measured.places]
    allowed = _allowed(measured)
    if len(set(labels)) < 3 or not allowed.any():
        return []
    slow = _slowdowns(measured)
    regrets: dict[int, list[float]] = {count: [] for count in COUNTS}
    for label in dict.fromkeys(labels):
        rest = [number for number, other in enumerate(labels) if other != label]
        rows = _rows(slow, allowed, rest, max(COUNTS))
        for number, other in enumerate(labels):
            if other == label:
                for count in COUNTS:
                    regrets[count].append(float(np.expm1(slow[rows[:count], number].min())))
    return [
        Regret(count, float(np.median(all_)), float(np.percentile(all_, 90)), max(all_))
        for count, all_ in regrets.items()
    ]


def _slowdowns(measured: Measurements) -> Array:
    """[configs, places]: logarithm of the time over the best one's there."""
    slow = measured.log_ms - np.nanmin(measured.log_ms, axis=0)
    return np.where(np.isfinite(slow), slow, MISSING)


def _allowed(measured: Measurements) -> Array:
    return np.array([config not in measured.failed for config in measured.configs])


def _rows(slow: Array, allowed: Array, places: Sequence[int], most: int) -> list[int]:
    table = np.where(allowed[:, None], slow[:, list(places)], np.inf)
    best = np.full(table.shape[1], np.inf)
    rows: list[int] = []
    while len(rows) < most and allowed.any():
        reached = np.minimum(table, best).mean(axis=1)
        row = int(np.argmin(reached))
        if rows and reached[row] >= best.mean():
            break
        rows.append(row)
        best = np.minimum(best, table[row])
    return rows

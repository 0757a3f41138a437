"""How good a search on a recorded table is, by the field's methodology.

A table is its times sorted from best to worst, its optimum f* and its median m. A search's worth at a moment is how far
its mean best so far has come from random search's towards the optimum:

    P(t) = (B(t) - F(t)) / (B(t) - f*)

0 is a random search, 1 the optimum. It is averaged over the evaluations until random search is expected at
f* + 0.05 (m - f*). Random search without repeats is reckoned exactly; the published formula, the value at the expected
rank, is there for comparison: it gives a true random search more than 0.

Method: F.-J. Willemsen et al., "A methodology for comparing optimization algorithms for auto-tuning", FGCS 159 (2024).
A failed configuration is an evaluation like any other and counts as the slowest time that worked.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]

CLOSE = 0.05
"""The part of the way from optimum to median that is left where the budget ends."""

NO_CHANCE = 1e-15


@dataclass(frozen=True)
class Landscape:
    """What is known of a table as a whole."""

    ascending: Times
    """One time per configuration, failures as the slowest time."""
    best: float
    median: float
    """Of those that worked."""

    @classmethod
    def of(cls, times: Sequence[float] | Times) -> Landscape:
        """From the times of all configurations; not finite where one failed."""
        all_times = np.asarray(times, dtype=np.float64)
        worked = all_times[np.isfinite(all_times)]
        if not len(worked):
            raise ValueError("a table needs a configuration that works")
        filled = np.sort(np.where(np.isfinite(all_times), all_times, worked.max()))
        return cls(filled, float(worked.min()), float(np.median(worked)))

    def exact_baseline(self, evaluations: int) -> Times:
        """The expected best of 1, 2, ... distinct configurations drawn at random.

        E[best of k] = sum over i of a_i (S(i) - S(i+1)), S(i) = C(N-i, k) / C(N, k): the chance that none of the i
        fastest is among the k drawn.
        """
        return np.fromiter(itertools.islice(self._expected_bests(), evaluations), dtype=np.float64)

    def published_baseline(self, evaluations: int) -> Times:
        """The time at the expected rank of the best of 1, 2, ... configurations, counted from the slowest."""
        count = len(self.ascending)
        drawn = np.arange(1, min(evaluations, count) + 1)
        rank = np.minimum(np.round(drawn * (count + 1) / (drawn + 1)).astype(int), count - 1)
        return self.ascending[::-1][rank]

    def budget(self) -> int:
        """Evaluations until random search is expected 95% of the way from the median to the optimum."""
        goal = self.best + CLOSE * (self.median - self.best)
        bests = enumerate(self._expected_bests(), 1)
        return next((drawn for drawn, best in bests if best <= goal), len(self.ascending))

    def _expected_bests(self) -> Iterator[float]:
        count = len(self.ascending)
        rank = np.arange(count + 1)
        missed = np.ones(count + 1)
        for k in range(1, count + 1):
            missed = missed * np.maximum(count - rank - k + 1, 0) / (count - k + 1)
            # Chances that are as good as none need no reckoning any more.
            end = max(2, int(np.searchsorted(-missed, -NO_CHANCE)) + 1)
            missed, rank = missed[:end], rank[:end]
            yield float(self.ascending[: len(missed) - 1] @ (missed[:-1] - missed[1:]))


def best_so_far(landscape: Landscape, times: Sequence[float] | Times, length: int) -> Times:
    """The best after each of `length` evaluations; a search that ended early stays where it was."""
    worst = landscape.ascending[-1]
    taken = np.asarray(times[:length], dtype=np.float64)
    filled = np.minimum(np.where(np.isfinite(taken), taken, worst), worst)
    last = filled.min() if len(filled) else worst
    padded = np.concatenate([filled, np.full(length - len(filled), last)])
    return np.minimum.accumulate(padded)


def performance(landscape: Landscape, traces: Times, baseline: Times) -> float:
    """P averaged over the evaluations that both cover; `traces` holds a search per row, as best so far."""
    length = min(traces.shape[1], len(baseline))
    found, expected = traces[:, :length].mean(axis=0), baseline[:length]
    room = expected - landscape.best
    # Where random search has all but arrived there is nothing left to gain.
    open_ = room > 1e-12 * landscape.best
    return float(((expected - found)[open_] / room[open_]).mean())


def evaluations_to(traces: Times, goal: float) -> list[float]:
    """By search, the evaluations until a time is reached; infinite where it never was."""
    reached = traces <= goal
    return [float(row.argmax()) + 1 if row.any() else np.inf for row in reached]


def expected_evaluations(landscape: Landscape, within: float) -> float:
    """Mean evaluations of random search until it meets one of the configurations within a share of the optimum."""
    good = int((landscape.ascending <= landscape.best * (1 + within)).sum())
    return (len(landscape.ascending) + 1) / (good + 1)

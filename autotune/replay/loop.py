"""A search on a table without the store and without trials: the strategy's proposals, each answered at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from autotune.columns import Array
from autotune.replay.stages import Recorded
from autotune.replay.subject import subject_of
from autotune.replay.table import Table
from autotune.study.strategies import Subject, make_sampler

if TYPE_CHECKING:
    from autotune.study.samplers import LegalSampler

SamplerFactory = Callable[[Subject, int, int | None], "LegalSampler"]
"""From what is searched, a seed and the number of evaluations to a sampler."""


@dataclass(frozen=True)
class Trace:
    """One search on a table, by evaluation."""

    rows: tuple[int, ...]
    """Which row of the table was proposed."""
    best_ms: Array
    """The table's time of the best so far; infinite until one has worked."""
    proposal_s: float
    """Wall-clock seconds that all proposals took together, learning from the answers included."""

    def evaluations_to(self, time_ms: float) -> int | None:
        """How many evaluations it took to find a configuration at least that fast; None if it never did."""
        reached = np.flatnonzero(self.best_ms <= time_ms)
        return int(reached[0]) + 1 if len(reached) else None


def replay(
    table: Table,
    strategy: str | SamplerFactory,
    seed: int,
    evaluations: int,
    recorded: Recorded | None = None,
) -> Trace:
    """What a strategy finds in a table within a number of evaluations, failed ones included.

    It sees what `recorded` answers (by default the table's times as they are); what counts as found is always
    the table's own time. The trace is shorter where the space is used up.
    """
    from autotune.study.brain import Brain

    began = time.perf_counter()
    recorded = recorded or Recorded(table)
    subject = subject_of(table)
    if isinstance(strategy, str):
        sampler = make_sampler(strategy, subject, seed)
    else:
        sampler = strategy(subject, seed, evaluations)
    brain = Brain(table.space, sampler)
    rows: list[int] = []
    answering_s = 0.0
    while len(rows) < evaluations:
        config = brain.ask()
        if config is None:
            break
        asked = time.perf_counter()
        rows.append(table.row(config))
        outcome = recorded.outcome(config)
        answering_s += time.perf_counter() - asked
        brain.tell(config, outcome)
    spent = time.perf_counter() - began - answering_s
    times = np.where(np.isfinite(table.times_ms), table.times_ms, np.inf)[rows]
    return Trace(tuple(rows), np.minimum.accumulate(times), spent)

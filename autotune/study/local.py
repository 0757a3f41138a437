"""Search around the fastest: neighbours, and crossings of two, as evolutionary searches and annealing make them."""

from __future__ import annotations

import numpy as np
import optuna
from optuna.trial import FrozenTrial

from autotune.config import Config
from autotune.space.search_space import SearchSpace
from autotune.study.evidence import Evidence, Finding
from autotune.study.samplers import RandomLegal

FIRST = 12
"""Random configurations before the first child."""
PARENTS = 20
"""From how many of the fastest parents are taken."""
WARM, COLD = 0.3, 0.03
"""Temperature at first and in the end: by how much slower, on a logarithmic scale, a parent is 1/e as likely."""
COOLING = 100
"""Over how many trials the temperature falls from one to the other."""
CROSSING = 0.3
"""The share of children that have two parents."""


class Evolution(RandomLegal):
    """Children of the fastest; who becomes a parent is drawn with a temperature that falls."""

    def __init__(self, space: SearchSpace, start: Config, seed: int | None = None) -> None:
        super().__init__(space, seed)
        self._start = start
        self._evidence = Evidence(space)

    def propose(self, study: optuna.Study, trial: FrozenTrial) -> Config | None:
        """A child that has not been seen."""
        self._evidence.update(study, trial)
        if self._start not in self.seen and self.mine(self._start):
            return self._start
        timed = sorted(self._evidence.timed, key=lambda one: one.log_time)[:PARENTS]
        if len(self.seen) < FIRST or not timed:
            return self.draw()
        first, second = self._parents(timed)
        child = first
        if self._rng.random() < CROSSING:
            child = self._crossed(first, second)
            if child not in self.seen and self.mine(child):
                return child
        return self._unseen_neighbour(child)

    def _parents(self, timed: list[Finding]) -> tuple[Config, Config]:
        times = np.array([one.log_time for one in timed])
        cooled = min(1.0, len(self._evidence.findings) / COOLING)
        chances = np.exp((times[0] - times) / (WARM * (COLD / WARM) ** cooled))
        drawn = self._rng.choice(len(timed), size=2, p=chances / chances.sum())
        return timed[drawn[0]].config, timed[drawn[1]].config

    def _crossed(self, first: Config, second: Config) -> Config:
        taken = {name: second[name] for name in first if self._rng.random() < 0.5}
        return self.space.nearest(first.replace(taken))

"""The order in which one tunes by hand: one group of parameters at a time, each fixed at its best before the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import optuna
from optuna.trial import FrozenTrial

from autotune.config import Config
from autotune.space.search_space import SearchSpace
from autotune.spec.kernel_spec import Parameter
from autotune.study.evidence import Evidence
from autotune.study.samplers import RandomLegal

TRIED_PER_GROUP = 16
"""Of more combinations of a group's values, so many are drawn at random."""
MOST_PER_GROUP = 10_000
"""How many combinations are looked at."""


def groups_of(parameters: Sequence[Parameter]) -> list[tuple[str, ...]]:
    """Parameters declared side by side that take the same values, such as rows and columns of a tile."""
    choices = [one for one in parameters if len(one.values) > 1]
    return [
        tuple(parameter.name for parameter in group)
        for _, group in groupby(choices, key=lambda parameter: repr(parameter.values))
    ]


class Hand(RandomLegal):
    """Tries what a group of parameters may be with all others fixed, keeps the best, goes on to the next group.

    The groups follow each other in the declared order, again and again until a round finds nothing faster; then
    random draws.
    """

    def __init__(self, space: SearchSpace, start: Config, seed: int | None = None) -> None:
        super().__init__(space, seed)
        self._start = start
        self._evidence = Evidence(space)
        self._plan = self._steps()

    def propose(self, study: optuna.Study, trial: FrozenTrial) -> Config | None:
        """The next of the group's; a random draw once there is no better by this way."""
        self._evidence.update(study, trial)
        if self._start not in self.seen and self.mine(self._start):
            return self._start
        for config in self._plan:
            if config not in self.seen and self.mine(config):
                return config
        return self.draw()

    def _steps(self) -> Iterator[Config]:
        best = None
        while best != self._centre():
            best = self._centre()
            for group in groups_of(self.space.parameters):
                yield from self._around(self._centre(), group)

    def _centre(self) -> Config:
        best = self._evidence.best
        return best.config if best else self._start

    def _around(self, centre: Config, group: tuple[str, ...]) -> list[Config]:
        """The legal configurations that differ from the centre in this group alone, or some of them."""
        edge = [centre]
        for name in group:
            edge = [other for one in edge for other in self._with_any(one, name)][:MOST_PER_GROUP]
        found = [config for config in edge if config != centre and config in self.space]
        drawn = self._rng.permutation(len(found))[:TRIED_PER_GROUP]
        return [found[place] for place in sorted(drawn.tolist())]

    def _with_any(self, config: Config, name: str) -> list[Config]:
        """With any value of one parameter; those illegal as they are may become legal by the group's next."""
        values = next(one.values for one in self.space.parameters if one.name == name)
        return [config.replace({name: value}) for value in values]

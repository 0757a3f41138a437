"""Names of the strategies that `--strategy` takes, and the sampler each stands for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune.config import Config
from autotune.errors import InputError, nearest_name
from autotune.gpu import GpuSpec
from autotune.legality import nearest_legal
from autotune.problem import Problem
from autotune.space.search_space import SearchSpace
from autotune.spec.kernel_spec import KernelSpec
from autotune.starts import starting_points

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autotune.model.fitted import FittedModel
    from autotune.study.foresight import Prior
    from autotune.study.samplers import LegalSampler

STRATEGIES = {
    "auto": "a surrogate of the time, from the spec's starting points on",
    "tpe": "Optuna's TPE, repaired to legal configurations",
    "random": "uniform over the legal configurations",
    "evolution": "neighbours and crossings of the fastest",
    "hand": "one group of parameters at a time, as one tunes by hand",
    "exhaustive": "every legal configuration in order",
    "model": "in the performance model's order, best first",
}
"""Name and one line of explanation."""


@dataclass(frozen=True)
class Subject:
    """What is being searched: the kernel on one GPU for one problem, and its legal space."""

    spec: KernelSpec
    gpu: GpuSpec
    problem: Problem
    space: SearchSpace
    model: FittedModel | None = None
    """Fitted to what is recorded of the kernel on the GPU; None for the closed form."""

    def predict(self, configs: Sequence[Config]) -> list[float]:
        """The performance model's times in ms, from estimated resources where none are recorded."""
        from autotune.model import rank

        if self.model is not None and self.model.learnt:
            return self.model.predict(self.problem, configs)
        return rank(self.spec, self.gpu, self.problem, configs)


def check_strategy(name: str) -> None:
    """Raises InputError for a name that is no strategy."""
    if name not in STRATEGIES:
        raise InputError(
            f"no such strategy {name!r}", key="--strategy", nearest=nearest_name(name, STRATEGIES)
        )


def make_sampler(name: str, subject: Subject, seed: int, priors: Sequence[Prior] = ()) -> LegalSampler:
    """The sampler of a strategy; raises InputError for an unknown one. Only `auto` makes use of `priors`."""
    from autotune.study import samplers
    from autotune.study.auto import Auto
    from autotune.study.hand import Hand
    from autotune.study.local import Evolution

    check_strategy(name)
    space = subject.space

    def rank(configs: Sequence[Config]) -> Sequence[Config]:
        return by_model(subject, configs)

    if name == "tpe":
        return samplers.LegalSampler(space, samplers.tpe(seed), seed)
    if name == "random":
        return samplers.RandomLegal(space, seed)
    if name == "exhaustive":
        return samplers.Exhaustive(space, seed)
    if name == "model":
        return samplers.ModelOrder(space, rank, seed)
    if name == "evolution":
        return Evolution(space, default_config(subject), seed)
    if name == "hand":
        return Hand(space, default_config(subject), seed)
    return Auto(space, starting_configs(subject), subject.predict, priors, seed)


def starting_configs(subject: Subject) -> list[Config]:
    """The spec's starting points for this problem, then its default, or the nearest to it where it does not fit."""
    points = starting_points(subject.spec, subject.gpu, subject.problem)
    named = [point.config for point in points if point.config in subject.space]
    default = subject.spec.default_config(subject.gpu.table)
    if default not in subject.space:
        default = nearest_legal(subject.space, default)
    return list(dict.fromkeys([*named, default]))


def default_config(subject: Subject) -> Config:
    """What the search begins with: the first start, else the default."""
    return starting_configs(subject)[0]


def by_model(subject: Subject, configs: Sequence[Config]) -> list[Config]:
    """The configurations in the performance model's order, from estimated resources.

    The default and its neighbours are always among them: a sample of a huge space holds nothing near them. Those that
    the model holds equal, to 1%, are ordered by how little they differ from the default.
    """
    default = default_config(subject)
    pool = list(dict.fromkeys([default, *subject.space.neighbours(default), *configs]))
    times = subject.predict(pool)

    def promise(place: int) -> tuple[int, int, float]:
        level = round(math.log(max(times[place], 1e-9)) / math.log(1.01))
        return level, sum(pool[place][name] != value for name, value in default.values_by_name), times[place]

    return [pool[place] for place in sorted(range(len(pool)), key=promise)]

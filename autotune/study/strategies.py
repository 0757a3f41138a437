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

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autotune.study.samplers import LegalSampler

STRATEGIES = {
    "auto": "the default, well-predicted ones that differ, then TPE",
    "tpe": "Optuna's TPE, repaired to legal configurations",
    "random": "uniform over the legal configurations",
    "exhaustive": "every legal configuration in order",
    "model": "in the performance model's order, best first",
}
"""Name and one line of explanation."""

RANKED_SHARE = 0.2
"""The part of an `auto` study that follows the performance model before TPE takes over."""
RANKED_TRIALS = 20
"""The same in trials, where only the time is limited."""


@dataclass(frozen=True)
class Subject:
    """What is being searched: the kernel on one GPU for one problem, and its legal space."""

    spec: KernelSpec
    gpu: GpuSpec
    problem: Problem
    space: SearchSpace


def check_strategy(name: str) -> None:
    """Raises InputError for a name that is no strategy."""
    if name not in STRATEGIES:
        raise InputError(
            f"no such strategy {name!r}", key="--strategy", nearest=nearest_name(name, STRATEGIES)
        )


def make_sampler(name: str, subject: Subject, seed: int, trials: int | None) -> LegalSampler:
    """The sampler of a strategy; raises InputError for an unknown one."""
    from autotune.study import samplers

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
    ranked = RANKED_TRIALS if trials is None else max(1, round(RANKED_SHARE * trials))
    return samplers.Auto(space, rank, default_config(subject), ranked, seed)


def default_config(subject: Subject) -> Config:
    """The spec's default for this GPU, or the nearest legal configuration where it does not fit."""
    config = subject.spec.default_config(subject.gpu.table)
    return config if config in subject.space else nearest_legal(subject.space, config)


def by_model(subject: Subject, configs: Sequence[Config]) -> list[Config]:
    """The configurations in the performance model's order, from estimated resources.

    The default and its neighbours are always among them: a sample of a huge space holds nothing near them. Those that
    the model holds equal, to 1%, are ordered by how little they differ from the default.
    """
    from autotune.model import rank

    default = default_config(subject)
    pool = list(dict.fromkeys([default, *subject.space.neighbours(default), *configs]))
    times = rank(subject.spec, subject.gpu, subject.problem, pool)

    def promise(place: int) -> tuple[int, int, float]:
        level = round(math.log(max(times[place], 1e-9)) / math.log(1.01))
        return level, sum(pool[place][name] != value for name, value in default.values_by_name), times[place]

    return [pool[place] for place in sorted(range(len(pool)), key=promise)]

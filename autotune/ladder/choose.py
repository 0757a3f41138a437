"""Which configuration stands for a step: its default, and with more trials the best of those the model likes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.candidate import Candidate, Runnable
from autotune.compile.ahead import CompilesAhead
from autotune.config import Config, Value
from autotune.errors import NothingFound
from autotune.gpu import GpuSpec
from autotune.launch import plan_run
from autotune.legality import nearest_legal, search_space, unpromising, violations
from autotune.model import rank
from autotune.problem import Problem
from autotune.records import Outcome, Status
from autotune.render import render
from autotune.spec.kernel_spec import KernelSpec
from autotune.trial import Stages, run_trial

SAMPLED = 400
"""Configurations that the model ranks."""


@dataclass(frozen=True)
class Choice:
    """What was tried, and the best of it; None where nothing worked."""

    tried: tuple[tuple[Config, Outcome], ...]
    best: Candidate | None = None
    outcome: Outcome | None = None


def candidates(
    spec: KernelSpec,
    gpu: GpuSpec,
    problem: Problem,
    count: int,
    fixed: Mapping[str, Value] | None = None,
    base: Config | None = None,
    seed: int = 0,
) -> list[Candidate]:
    """The default first, or `base`, then those of a sample that the model ranks best; `fixed` holds in all.

    Raises NothingFound where nothing is legal.
    """
    pinned = dict(fixed or {})
    first = (base or spec.default_config(gpu.table)).replace(pinned)
    broken = violations(spec, gpu, problem, first)
    if count == 1 and not broken:  # the space takes a while to build
        return [Candidate(spec, gpu, problem, first)]
    space = search_space(spec, gpu, problem)
    if broken:
        first = _nearest(spec, gpu, problem, nearest_legal(space, first), pinned)
    if count == 1:
        return [Candidate(spec, gpu, problem, first)]
    drawn = space.sample(np.random.default_rng(seed), SAMPLED)
    others = {config.replace(pinned): None for config in drawn}
    legal = [
        config
        for config in others
        if config != first and config in space and not unpromising(spec, gpu, problem, config, None)
    ]
    times = rank(spec, gpu, problem, legal)
    order = sorted(range(len(legal)), key=times.__getitem__)[: count - 1]
    return [Candidate(spec, gpu, problem, config) for config in (first, *(legal[i] for i in order))]


def _nearest(
    spec: KernelSpec, gpu: GpuSpec, problem: Problem, config: Config, pinned: Mapping[str, Value]
) -> Config:
    """The config with the pinned values where that is legal."""
    wanted = config.replace(pinned)
    broken = violations(spec, gpu, problem, wanted)
    if broken:
        raise NothingFound(f"not legal on {gpu.name}: {broken[0].rule}")
    return wanted


def taken_over(spec: KernelSpec, gpu: GpuSpec, config: Config) -> Config:
    """The default of a kernel with all it shares of another kernel's config."""
    values = {
        parameter.name: config[parameter.name]
        for parameter in spec.parameters
        if parameter.name in config and config[parameter.name] in parameter.values
    }
    return spec.default_config(gpu.table).replace(values)


def begin(chosen: Iterable[Candidate], stages: Stages) -> None:
    """Starts compiling, where the stages can, so that the GPU does not wait for it."""
    if isinstance(stages, CompilesAhead):
        for each in chosen:
            stages.prefetch(each, render(each.spec, each.gpu, each.problem, each.config))


def try_all(chosen: Sequence[Candidate], stages: Stages) -> Choice:
    """Runs every candidate, each verified before it is timed."""
    tried: list[tuple[Config, Outcome]] = []
    best: tuple[float, Candidate, Outcome] | None = None
    for each in chosen:
        outcome = run_trial(each, stages, best[0] if best else None)
        tried.append((each.config, outcome))
        time_ms = outcome.time_ms if outcome.status is Status.OK else None
        if time_ms is not None and (best is None or time_ms < best[0]):
            best = (time_ms, each, outcome)
    return Choice(tuple(tried), *best[1:]) if best else Choice(tuple(tried))


def runnable(candidate: Candidate, stages: Stages) -> Runnable:
    """The compiled candidate, from the cache where it was compiled before."""
    source = render(candidate.spec, candidate.gpu, candidate.problem, candidate.config)
    return plan_run(candidate, stages.compile(candidate, source))

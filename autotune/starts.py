"""What to run where nothing has been measured: the spec's `starts`, else its defaults."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.config import Config
from autotune.gpu import GpuSpec
from autotune.legality import nearest_legal, search_space, violations
from autotune.problem import Problem
from autotune.spec.kernel_spec import KernelSpec

DEFAULTS = "defaults"
"""The name that the spec's own defaults go by."""


@dataclass(frozen=True)
class StartingPoint:
    """A legal configuration that nobody had to measure."""

    name: str
    """Of the spec's start, or `DEFAULTS`."""
    config: Config
    exact: bool = True
    """False where it is only the nearest that is legal."""


def starting_points(spec: KernelSpec, gpu: GpuSpec, problem: Problem) -> tuple[StartingPoint, ...]:
    """The spec's starts that are for this problem and legal there, in the spec's order, each config once."""
    default = spec.default_config(gpu.table)
    names = {**gpu.names(), **problem.names()}
    found: dict[Config, StartingPoint] = {}
    for start in spec.starts:
        config = default.replace(start.config)
        if config not in found and start.when.evaluate(names) and not violations(spec, gpu, problem, config):
            found[config] = StartingPoint(start.name, config)
    return tuple(found.values())


def starting_point(spec: KernelSpec, gpu: GpuSpec, problem: Problem) -> StartingPoint:
    """The first start that is for this problem and legal there; else the defaults, or the nearest that is legal.

    Raises NothingFound where no configuration is legal.
    """
    for point in starting_points(spec, gpu, problem):
        return point
    default = spec.default_config(gpu.table)
    if not violations(spec, gpu, problem, default):
        return StartingPoint(DEFAULTS, default)
    return StartingPoint(DEFAULTS, nearest_legal(search_space(spec, gpu, problem), default), exact=False)

"""The winner's last check: problems that break kernels which look right at the size they were tuned for."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Protocol, runtime_checkable

from autotune.candidate import Candidate, CompiledKernel, Runnable, Source
from autotune.config import Value
from autotune.errors import StageFailure
from autotune.launch import plan_run
from autotune.legality import violations
from autotune.problem import Problem
from autotune.problems import make_problem
from autotune.records import Accuracy
from autotune.render import render
from autotune.spec.kernel_spec import KernelSpec

OFF_THE_TILE = ((257, 131, 67), (130, 263, 45), (33, 517, 5), (1, 1, 1), (300, 1, 129))
"""Sizes that no tile divides, in the order of the spec's sizes."""
WHOLE_TILES = (16, 48, 64, 192, 320)
"""Values of the last size: one, odd and even numbers of whole tiles for every depth from 8 to 64."""
WIDE = 256
"""The other sizes beside those, which most tiles divide."""


@runtime_checkable
class Verifies(Protocol):
    """Stages that can verify with other data and values than a trial has."""

    def compile(self, candidate: Candidate, source: Source) -> CompiledKernel:
        """The native code."""
        ...

    def verify_run(
        self, run: Runnable, data: str = "", values: Mapping[str, float | int] | None = None
    ) -> Accuracy:
        """The worst error; raises StageFailure."""
        ...


@dataclass(frozen=True)
class Case:
    """One problem to verify on."""

    what: str
    problem: Problem
    data: str = ""
    values: Mapping[str, float | int] = field(default_factory=dict)


def thorough_cases(spec: KernelSpec, problem: Problem) -> Iterator[Case]:
    """The problems, small enough to take milliseconds each; outputs that must not be read hold NaN in all."""
    names = spec.problem.sizes
    own = dict(problem.classes)
    for odd_sizes in OFF_THE_TILE:
        yield Case("sizes off the tile", _problem(spec, _spread(odd_sizes, names)))
    for last in WHOLE_TILES:
        sizes = {**_spread((WIDE,), names), names[-1]: last}
        yield Case("whole tiles", _problem(spec, sizes))
    odd = _spread(OFF_THE_TILE[0], names)
    for problem_class in spec.problem.classes:
        for value in problem_class.values:
            yield Case(
                f"{problem_class.name} {value}", _problem(spec, odd, {**own, problem_class.name: value})
            )
    smallest = {problem_class.name: problem_class.values[-1] for problem_class in spec.problem.classes}
    yield Case("every class at its last value", _problem(spec, odd, smallest))
    if spec.reference == "matmul":
        yield from _product_cases(spec, odd)


def verify_thoroughly(candidate: Candidate, stages: Verifies) -> Accuracy:
    """The worst error over all cases; raises StageFailure that names the first case which fails.

    Problems for which the config is not legal are left out: it is never offered for them.
    """
    worst: Accuracy | None = None
    elements = 0
    for case in thorough_cases(candidate.spec, candidate.problem):
        own = dataclasses.replace(candidate, problem=case.problem)
        if violations(own.spec, own.gpu, own.problem, own.config):
            continue
        try:
            source = render(own.spec, own.gpu, own.problem, own.config)
            accuracy = stages.verify_run(plan_run(own, stages.compile(own, source)), case.data, case.values)
        except StageFailure as failure:
            reason = f"{case.what} ({case.problem.key}): {failure.reason}"
            raise StageFailure(failure.status, reason, failure.accuracy) from failure
        elements += accuracy.elements
        if worst is None or accuracy.worst_error > worst.worst_error:
            worst = accuracy
    assert worst is not None, "a config is legal at least for the problem it won"
    return dataclasses.replace(worst, elements=elements)


def _product_cases(spec: KernelSpec, odd: Mapping[str, int]) -> Iterator[Case]:
    depth, rows = spec.problem.sizes[-1], spec.problem.sizes[0]
    classes: Sequence[Mapping[str, Value]] = [{}]
    for problem_class in spec.problem.classes:
        if problem_class.name == "beta":
            classes = [{"beta": value} for value in problem_class.values]
    for chosen in classes:
        yield Case("no depth", _problem(spec, {**odd, depth: 0}, chosen))
        yield Case("no rows", _problem(spec, {**odd, rows: 0}, chosen))
        yield Case("alpha zero, NaN in A and B", _problem(spec, odd, chosen), "nan", {"alpha": 0.0})
        yield Case("alpha 0.5", _problem(spec, odd, chosen), values={"alpha": 0.5})


def _problem(
    spec: KernelSpec, sizes: Mapping[str, int], classes: Mapping[str, Value] | None = None
) -> Problem:
    """Classes not given are those of packed arrays."""
    return make_problem(spec, sizes, classes=classes)


def _spread(sizes: Sequence[int], names: Sequence[str]) -> dict[str, int]:
    return dict(zip(names, islice(cycle(sizes), len(names)), strict=True))

"""Random calls of the SGEMM kernel: a legal configuration and a problem that fits nothing in particular.

    from draws import Draws
    for draw in Draws(seed=1).some(5000): ...      draw.source, draw.launch, draw.scalars

Sizes lie around the tile's, pitches exceed the rows, operands are transposed and unaligned, alpha and beta take
their special values, and now and then a size is zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from autotune.candidate import BufferPlan, LaunchPlan, ScalarPlan, Source
from autotune.config import Config, Value
from autotune.expressions import Expression
from autotune.gpu import GpuSpec
from autotune.gpu_tables import find_gpu
from autotune.launch import config_names, plan_launch
from autotune.legality import gpu_rules
from autotune.problem import Problem
from autotune.render import render
from autotune.space.search_space import SearchSpace
from autotune.spec.kernel_spec import KernelSpec, Rule
from autotune.spec.load import load_spec

KINDS = ("tile", "rows", "columns")
ALIGNED = (4, 2, 1)


@dataclass(frozen=True)
class Draw:
    """One call."""

    spec: KernelSpec
    gpu: GpuSpec
    config: Config
    problem: Problem
    wider: tuple[int, ...]
    """What each array's pitch exceeds a packed row by, in multiples of its alignment."""
    scalars: Mapping[str, float]

    @cached_property
    def source(self) -> Source:
        """The rendered kernel; calls of the same alignment, guards, transpositions and beta share it."""
        return render(self.spec, self.gpu, self.problem, self.config)

    @cached_property
    def launch(self) -> LaunchPlan:
        """The launch, with the drawn pitches and scalars."""
        launch = plan_launch(self.spec, self.problem, self.config, self.gpu)
        names = dict(self.problem.classes)
        pitches = {
            array.pitch: plan.pitch + more * int(str(names[array.align]))
            for array, plan, more in zip(self.spec.arrays, launch.buffers, self.wider, strict=True)
        }
        of_array = {array.name: pitches[array.pitch] for array in self.spec.arrays}
        given = {**pitches, **self.scalars}
        arguments = tuple(
            replace(plan, value=given.get(plan.name, plan.value))
            if isinstance(plan, ScalarPlan)
            else replace(plan, pitch=of_array[plan.name])
            if isinstance(plan, BufferPlan)
            else plan
            for plan in launch.arguments
        )
        return replace(launch, arguments=arguments)

    def __str__(self) -> str:
        return f"{self.config} on {self.problem.key}, pitches +{self.wider}, {dict(self.scalars)}"


class Draws:
    """Seeded draws; `rule` narrows the configurations, e.g. `CLUSTER == 1 and LOAD != 'tma'` for the CPU."""

    def __init__(
        self, seed: int, gpu: GpuSpec | None = None, rule: str = "True", kinds: tuple[str, ...] = KINDS
    ) -> None:
        self.spec = load_spec("sgemm")
        self.gpu = gpu or find_gpu("h200")
        self.rng = np.random.default_rng(seed)
        # Kind by kind, since by number nearly all configurations are tiles.
        self.spaces = [self._space(f"KIND == {kind!r} and ({rule})") for kind in kinds]

    def some(self, count: int, per_config: int = 1, per_kernel: int = 1) -> Iterator[Draw]:
        """`count` calls, `per_config` of each configuration, of which `per_kernel` in a row share transpositions,
        alignments and beta's class, and so but for guards the compiled kernel.
        """
        for number in range(count):
            if number % per_config == 0:
                config = self.config(number // per_config)
            if number % per_config % per_kernel == 0:
                classes = self.classes()
            yield self.draw(config, classes)

    def config(self, number: int) -> Config:
        """A legal configuration; the kinds take turns."""
        return self.spaces[number % len(self.spaces)].sample(self.rng, 1)[0]

    def classes(self) -> dict[str, Value]:
        """Transpositions, alignments and beta's class."""
        pick = self.rng.choice
        classes: dict[str, Value] = {name: str(pick(["n", "t"])) for name in ("trans_a", "trans_b")}
        exact = self.rng.random() < 0.3
        for name in ("align_a", "align_b", "align_c"):
            classes[name] = 4 if exact else int(pick(ALIGNED))
        classes["beta"] = str(pick(["zero", "general"]))
        return classes

    def draw(self, config: Config, classes: Mapping[str, Value] | None = None) -> Draw:
        """A call of this configuration, in these classes or random ones."""
        pick = self.rng.choice
        sizes = tuple(zip("MNK", self._sizes(config), strict=True))
        classes = dict(classes or self.classes())
        beta = 0.0 if classes["beta"] == "zero" else float(pick([0.5, -1.0, 1.0, 0.0]))
        scalars = {"alpha": float(pick([1.0, 1.0, -0.5, 2.0, 0.0])), "beta": beta}
        wider = tuple(int(more) for more in self.rng.integers(0, 4, size=3))
        problem = Problem(sizes, self.spec.problem.dtype, tuple(classes.items()))
        return Draw(self.spec, self.gpu, config, problem, wider, scalars)

    def _sizes(self, config: Config) -> tuple[int, ...]:
        """Each size less than, equal to, or a little off some tiles; all of them exact in one of four calls."""
        names = config_names(self.spec, self.gpu, config)
        small, wide = int(str(names["SMALL"])), 32 * int(str(names["WIDE"]))
        step = int(str(names["UNROLL"])) * int(str(names["WARPS"]))
        tile = {
            "tile": [int(str(names[name])) for name in ("BM", "BN", "BK")],
            "rows": [small, wide, step],
            "columns": [wide, small, step],
        }[str(config["KIND"])]
        whole = [int(count) * size for count, size in zip(self.rng.integers(1, 4, size=3), tile, strict=True)]
        if self.rng.random() < 0.25:
            return tuple(whole)
        if self.rng.random() < 0.05:
            whole[int(self.rng.integers(3))] = 0
            return tuple(whole)
        return tuple(
            int(self.rng.integers(1, size + 1))
            if self.rng.random() < 0.4
            else max(1, size + int(self.rng.integers(-3, 4)))
            for size in whole
        )

    def _space(self, rule: str) -> SearchSpace:
        of_problem = {*self.spec.problem.sizes, *(kind.name for kind in self.spec.problem.classes)}
        rules = [one for one in self.spec.constraints if not one.rule.names & of_problem]
        rules += [limit.rule for limit in gpu_rules(self.spec, self.gpu)]
        rules.append(Rule(Expression.parse(rule), "what is drawn from"))
        return SearchSpace(self.spec.parameters, rules, self.spec.derived, self.gpu.names())

"""How many raw combinations a single rule makes illegal."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from autotune.columns import Array, as_column
from autotune.config import Value
from autotune.expressions import Expression
from autotune.space.diagram import build_diagram
from autotune.space.folding import holding, values_where_defined
from autotune.spec.kernel_spec import Parameter, Rule

if TYPE_CHECKING:
    from autotune.space.search_space import SearchSpace

EXACT_POINTS = 1_000_000
"""A rule over at most this many combinations of its own parameters is counted exactly, others on a sample."""

SAMPLE = 100_000


def removed_by(space: SearchSpace, rule: Rule) -> int:
    """The raw combinations in which this rule alone does not hold; estimated where `is_estimated` says so."""
    own = _own_parameters(space, rule) or list(space.parameters[:1])
    derived = {name: expression.tree for name, expression in used_derived([rule.rule], space.derived).items()}
    if is_estimated(space, rule):
        return _broken_in_sample(own, rule, derived, space.constants) * space.raw_count // SAMPLE
    values = {parameter.name: parameter.values for parameter in own}
    diagram = build_diagram(values, [rule.rule.tree], derived, space.constants)
    points = math.prod(map(len, values.values()))
    return (points - diagram.count) * (space.raw_count // points)


def is_estimated(space: SearchSpace, rule: Rule) -> bool:
    """Whether the rule has too many combinations of its own parameters to look at them all."""
    return math.prod(len(parameter.values) for parameter in _own_parameters(space, rule)) > EXACT_POINTS


def used_derived(
    expressions: Iterable[Expression], derived: Mapping[str, Expression]
) -> dict[str, Expression]:
    """The derived names that the expressions use, themselves or through others, in the declared order."""
    names = {name for expression in expressions for name in expression.names}
    used: dict[str, Expression] = {}
    for name in reversed(list(derived)):
        if name in names:
            used[name] = derived[name]
            names |= derived[name].names
    return dict(reversed(used.items()))


def _own_parameters(space: SearchSpace, rule: Rule) -> list[Parameter]:
    used = used_derived([rule.rule], space.derived).values()
    names = rule.rule.names.union(*(expression.names for expression in used))
    return [parameter for parameter in space.parameters if parameter.name in names]


def _broken_in_sample(
    parameters: list[Parameter], rule: Rule, derived: Mapping[str, ast.expr], constants: Mapping[str, Value]
) -> int:
    rng = np.random.default_rng(1)
    columns: dict[str, Array | Value] = dict(constants)
    for parameter in parameters:
        columns[parameter.name] = as_column(parameter.values)[
            rng.integers(len(parameter.values), size=SAMPLE)
        ]
    good = np.ones(SAMPLE, dtype=bool)
    for name, tree in derived.items():
        columns[name], defined = values_where_defined(tree, columns, SAMPLE)
        good &= defined
    return SAMPLE - int((good & holding(rule.rule.tree, columns, SAMPLE)).sum())

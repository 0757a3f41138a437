"""Legal configs near a point: keeping its values in order of priority, or changing as few as possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from autotune.columns import Array
from autotune.config import Value
from autotune.space.diagram import Diagram
from autotune.spec.kernel_spec import Parameter

_SETTLED = 2**55
"""Costs more than all that a group of parameters can come to together."""

_GROUP_LIMIT = 2**54


def keep_in_order(
    diagram: Diagram, parameters: Sequence[Parameter], point: Mapping[str, Value], ranked: Sequence[str]
) -> Array:
    """Codes of the combination closest to the point: in the first name above all, then in the second, ..."""
    by_name = {parameter.name: parameter for parameter in parameters}
    open_names = [name for name in ranked if name in point]
    fixed: dict[str, Array] = {}
    while True:
        group, weight = _group(open_names, by_name)
        costs = {name: np.zeros(len(by_name[name].values), dtype=np.int64) for name in by_name} | fixed
        for name in group:
            weight //= len(by_name[name].values)
            costs[name] = _ranks(by_name[name], point[name]) * weight
        codes = diagram.cheapest([costs[name] for name in by_name])
        open_names = open_names[len(group) :]
        if not open_names:
            return codes
        for name, code in zip(by_name, codes.tolist(), strict=True):
            if name in group:
                fixed[name] = np.where(np.arange(len(by_name[name].values)) == code, 0, _SETTLED)


def fewest_changes(diagram: Diagram, parameters: Sequence[Parameter], point: Mapping[str, Value]) -> Array:
    """Codes of the combination that differs from the point in the fewest values, then by the fewest steps."""
    steps = [
        _steps(parameter, point[parameter.name])
        if parameter.name in point
        else np.zeros(len(parameter.values), dtype=np.int64)
        for parameter in parameters
    ]
    change = sum(int(own.max()) for own in steps) + 1
    return diagram.cheapest([own + (own > 0) * change for own in steps])


def next_up_and_down(chosen: Sequence[int], changes: Sequence[tuple[int, int]], codes: Array) -> list[int]:
    """Of the chosen changes (position, new code), for each position the closest above and below."""
    closest: dict[tuple[int, bool], int] = {}
    for index in chosen:
        position, code = changes[index]
        side = (position, bool(code > codes[position]))
        if side not in closest or abs(code - codes[position]) < abs(
            changes[closest[side]][1] - codes[position]
        ):
            closest[side] = index
    return sorted(closest.values())


def _group(order: Sequence[str], parameters: Mapping[str, Parameter]) -> tuple[list[str], int]:
    """As many names as can be ranked at once in 64 bits, and the product of their numbers of values."""
    group: list[str] = []
    product = 1
    for name in order:
        if product * len(parameters[name].values) > _GROUP_LIMIT:
            break
        product *= len(parameters[name].values)
        group.append(name)
    return group, product


def _distances(parameter: Parameter, wanted: Value) -> list[float]:
    """How far each value is from the wanted one: in positions; by size for a number that is not listed."""
    texts = [repr(value) for value in parameter.values]
    if repr(wanted) in texts:
        return [abs(index - texts.index(repr(wanted))) for index in range(len(texts))]
    numbers = [value for value in parameter.values if isinstance(value, int | float)]
    if isinstance(wanted, int | float) and len(numbers) == len(parameter.values):
        return [abs(value - wanted) for value in numbers]
    return [0.0] * len(texts)


def _ranks(parameter: Parameter, wanted: Value) -> Array:
    distances = _distances(parameter, wanted)
    ranks = {distance: rank for rank, distance in enumerate(sorted(set(distances)))}
    return np.array([ranks[distance] for distance in distances], dtype=np.int64)


def _steps(parameter: Parameter, wanted: Value) -> Array:
    ranks = _ranks(parameter, wanted)
    # A value that is not listed differs from all of them.
    return ranks if repr(wanted) in map(repr, parameter.values) else ranks + 1

"""How far apart the values of a parameter are, as seen by a surrogate: nothing but the values themselves is used."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from autotune.columns import Array
from autotune.config import Value
from autotune.spec.kernel_spec import Parameter

TIED = 0.1
"""From which correlation among legal configurations on two sizes count as tied to each other by the rules."""
MOST_JOINT = 16
"""How many joint axes there are at most: those of the strongest ties."""


class Axes:
    """The parameters that have a choice, and joint ones; each with the distances between its values.

    Sizes lie on a logarithmic axis, a doubling being one unit, since tile sizes act by products and ratios. Any two
    values that are no numbers are one unit apart, and so are the two of a parameter that has only two.

    Where legal configurations are given, sizes that the rules tie together have a joint axis as well: the ratio of
    two that rise together (a tile and what divides it: the work of a thread), the product of two that bound each
    other (the threads of a block).
    """

    def __init__(self, parameters: Sequence[Parameter], legal: Array | None = None) -> None:
        """`legal` holds rows of codes, all or a sample."""
        self.columns = [place for place, one in enumerate(parameters) if len(one.values) > 1]
        """Where they stand in a row of codes."""
        self.single = len(self.columns)
        """So many axes are parameters; the joint ones follow."""
        self.apart = [_apart(parameters[place].values) for place in self.columns]
        """By axis: [values, values]."""
        self._joint: list[tuple[int, int, Array]] = []
        for first, second, joint in _joined(parameters, self.columns, legal):
            values, places = np.unique(joint, return_inverse=True)
            self._joint.append((first, second, places.reshape(joint.shape)))
            self.apart.append(np.abs(values[:, None] - values[None, :]))
        self._offsets = np.cumsum([0, *(len(table) for table in self.apart)])
        self.single_width = int(self._offsets[self.single])
        """So many values do all parameters have together."""

    def __len__(self) -> int:
        return len(self.apart)

    def places(self, codes: Array) -> list[Array]:
        """By axis: where the value of each row stands in the axis' table."""
        joint = [places[codes[:, first], codes[:, second]] for first, second, places in self._joint]
        return [codes[:, column] for column in self.columns] + joint

    def distances(self, codes: Array) -> Array:
        """[axes, rows, rows]: how far apart rows of codes are along each axis."""
        tables = zip(self.apart, self.places(codes), strict=True)
        return np.array([table[place[:, None], place[None, :]] for table, place in tables])

    def one_hot(self, codes: Array) -> Array:
        """[rows, all values of all axes], 1 where a row has the value: what sums of tables are looked up with."""
        result = np.zeros((len(codes), int(self._offsets[-1])), dtype=np.float32)
        rows = np.arange(len(codes))
        for offset, place in zip(self._offsets[:-1], self.places(codes), strict=True):
            result[rows, offset + place] = 1
        return result

    def spread(self, codes: Array) -> Array:
        """[rows, parameters or more]: points whose city-block distance counts each parameter at most once."""
        parts = []
        for table, column in zip(self.apart[: self.single], self.columns, strict=True):
            # Along a line, the distance from an end is the place; else each value has a corner of its own.
            end = int(np.argmax(table[0]))
            line = table[end]
            if np.allclose(np.abs(line[:, None] - line[None, :]), table):
                parts.append((line / line.max())[codes[:, column], None])
            else:
                parts.append(np.eye(len(table))[codes[:, column]] / 2)
        return np.hstack(parts)


def _joined(
    parameters: Sequence[Parameter], columns: Sequence[int], legal: Array | None
) -> list[tuple[int, int, Array]]:
    """Two columns each and, by their codes, the logarithm of the ratio or product; the strongest ties first."""
    if legal is None:
        return []
    sizes = {}
    for column in columns:
        line = _line(parameters[column].values)
        if line is not None and min(parameters[column].values) > 0:  # type: ignore[operator]
            sizes[column] = line
    seen = {column: line[legal[:, column]] for column, line in sizes.items()}
    found = []
    for first, second in combinations([column for column in sizes if seen[column].std() > 0], 2):
        tie = float(np.corrcoef(seen[first], seen[second])[0, 1])
        if abs(tie) >= TIED:
            joint = sizes[first][:, None] - np.sign(tie) * sizes[second][None, :]
            # Rounded, so that equal ratios are one value.
            found.append((-abs(tie), first, second, np.round(joint, 6)))
    found.sort(key=lambda one: one[:3])
    return [(first, second, joint) for _, first, second, joint in found[:MOST_JOINT]]


def _line(values: tuple[Value, ...]) -> Array | None:
    """Places of at least three numbers on a line, a doubling being one unit; None for anything else."""
    numbers = [
        float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    if len(numbers) < len(values) or len(values) == 2:
        return None
    line = np.array(numbers)
    if line.min() > 0:
        return np.asarray(np.log2(line))
    if line.min() == 0:
        return np.asarray(np.log2(1.0 + line))
    return np.argsort(np.argsort(line)).astype(float)


def _apart(values: tuple[Value, ...]) -> Array:
    line = _line(values)
    if line is None:
        return 1.0 - np.eye(len(values))
    return np.asarray(np.abs(line[:, None] - line[None, :]))

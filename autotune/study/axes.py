"""How far apart the values of a parameter are, as seen by a surrogate: nothing but the values themselves is used."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.columns import Array
from autotune.config import Value
from autotune.spec.kernel_spec import Parameter


class Axes:
    """The parameters that have a choice; each with the distances between its values.

    Sizes lie on a logarithmic axis, a doubling being one unit, since tile sizes act by products and ratios. Any two
    values that are no numbers are one unit apart, and so are the two of a parameter that has only two.
    """

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self.columns = [place for place, one in enumerate(parameters) if len(one.values) > 1]
        """Where they stand in a row of codes."""
        self.apart = [_apart(parameters[place].values) for place in self.columns]
        """By parameter: [values, values]."""
        self._offsets = np.cumsum([0, *(len(table) for table in self.apart)])

    def __len__(self) -> int:
        return len(self.columns)

    def distances(self, codes: Array) -> Array:
        """[parameters, rows, rows]: how far apart rows of codes are along each parameter."""
        taken = [codes[:, column] for column in self.columns]
        return np.array([t[c[:, None], c[None, :]] for t, c in zip(self.apart, taken, strict=True)])

    def one_hot(self, codes: Array) -> Array:
        """[rows, all values of all parameters], 1 where a row has the value: what sums of tables are looked up with."""
        result = np.zeros((len(codes), int(self._offsets[-1])), dtype=np.float32)
        rows = np.arange(len(codes))
        for offset, column in zip(self._offsets[:-1], self.columns, strict=True):
            result[rows, offset + codes[:, column]] = 1
        return result

    def spread(self, codes: Array) -> Array:
        """[rows, parameters or more]: points whose city-block distance counts each parameter at most once."""
        parts = []
        for table, column in zip(self.apart, self.columns, strict=True):
            # Along a line, the distance from an end is the place; else each value has a corner of its own.
            end = int(np.argmax(table[0]))
            line = table[end]
            if np.allclose(np.abs(line[:, None] - line[None, :]), table):
                parts.append((line / line.max())[codes[:, column], None])
            else:
                parts.append(np.eye(len(table))[codes[:, column]] / 2)
        return np.hstack(parts)


def _apart(values: tuple[Value, ...]) -> Array:
    numbers = [
        float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    if len(numbers) < len(values) or len(values) == 2:
        return 1.0 - np.eye(len(values))
    line = np.array(numbers)
    if line.min() > 0:
        line = np.log2(line)
    elif line.min() == 0:
        line = np.log2(1.0 + line)
    else:
        line = np.argsort(np.argsort(line)).astype(float)
    apart: Array = np.abs(line[:, None] - line[None, :])
    return apart

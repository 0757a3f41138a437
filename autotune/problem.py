"""One problem: the sizes, the element type and the classes that a kernel is asked to solve."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from autotune.config import Value, value_text


@dataclass(frozen=True)
class Problem:
    """What a kernel is run on; two problems are the same exactly when their keys are.

    A class is a property of the call, beside its sizes, that may change the code which runs: the alignment of an
    operand, whether beta is zero, a transposition. The spec names the classes and their values.
    """

    sizes: tuple[tuple[str, int], ...]
    """In the spec's order, e.g. `(("M", 4096), ("N", 4096), ("K", 4096))`."""
    dtype: str
    """NumPy name of the element type, e.g. `float32`."""
    classes: tuple[tuple[str, Value], ...] = ()
    """In the spec's order, e.g. `(("align_a", 4), ("beta", "zero"))`."""

    @cached_property
    def key(self) -> str:
        """Text that identifies the problem in the database."""
        sizes = ",".join(f"{name}={size}" for name, size in self.sizes)
        classes = ",".join(f"{name}={value_text(value)}" for name, value in self.classes)
        return ";".join(part for part in (sizes, self.dtype, classes) if part)

    @property
    def label(self) -> str:
        """The sizes as users write them, e.g. `4096x4096x1024`."""
        return "x".join(str(size) for _, size in self.sizes)

    def names(self) -> Mapping[str, Value]:
        """Sizes and classes by name, for expressions."""
        return {**dict(self.sizes), **dict(self.classes)}


def octaves(one: Mapping[str, int], other: Mapping[str, int]) -> float:
    """How far apart two problems' sizes are: the root of the sum of squared binary logarithms of their ratios.

    A size of 0 counts as 1.
    """
    return math.sqrt(
        sum((math.log2(max(one[name], 1)) - math.log2(max(other[name], 1))) ** 2 for name in one)
    )

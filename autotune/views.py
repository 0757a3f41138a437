"""How the arrays of a call lie in memory, as far as a kernel cares: address, pitch, stride, transposed or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autotune.candidate import stored
from autotune.config import Value
from autotune.errors import InputError
from autotune.spec.kernel_spec import ArrayArgument


@dataclass(frozen=True)
class View:
    """What matters of one array argument."""

    shape: tuple[int, ...]
    pitch: int
    """Elements from one row to the next."""
    address: int
    transposed: bool = False
    """Whether the last two dimensions lie exchanged."""
    stride: int = 0
    """Elements from one matrix of a batch to the next; 0 where there is one, or one for all."""

    def alignment(self, item_bytes: int, allowed: Sequence[Value]) -> int:
        """The largest allowed alignment, in elements, that base, rows and matrices have; 1 where none does."""
        fitting = [
            value
            for value in allowed
            if isinstance(value, int)
            and self.pitch % value == 0
            and self.stride % value == 0
            and self.address % (value * item_bytes) == 0
        ]
        return max(fitting, default=1)


def view_of(array: ArrayArgument, shape: tuple[int, ...], value: Any) -> View:
    """How an array of this shape lies; raises InputError for what a kernel cannot take.

    Rows are contiguous, with any pitch where the argument has one; where it may lie transposed, columns may be instead.
    """
    item, strides = int(value.dtype.itemsize), tuple(map(int, value.strides))
    if value.size == 0:
        return View(shape, max(1, shape[-1] if shape else 1), int(value.data.ptr))
    for transposed in (False, True) if array.transposed else (False,):
        lying, steps = stored(shape, transposed), stored(strides, transposed)
        distances = _distances(array, lying, steps, item)
        if distances is not None:
            return View(shape, distances[0], int(value.data.ptr), transposed, distances[1])
    ways = "contiguous rows or columns" if array.transposed else "contiguous rows"
    raise InputError(
        f"{array.name} must have {ways}, got strides {strides}",
        nearest=f"cupy.ascontiguousarray({array.name})",
    )


def _distances(
    array: ArrayArgument, shape: tuple[int, ...], strides: tuple[int, ...], item: int
) -> tuple[int, int] | None:
    """Pitch and stride in elements of an array that is not empty; None where it cannot lie so."""
    if any(step % item for step, length in zip(strides, shape, strict=True) if length > 1):
        return None
    steps = [step // item for step in strides]
    columns = shape[-1] if shape else 1
    if columns > 1 and steps[-1] != 1:
        return None
    pitch = columns
    if len(shape) > 1 and array.pitch and shape[-2] > 1:
        pitch = steps[-2]
    elif len(shape) > 1 and shape[-2] > 1 and steps[-2] != columns:
        return None
    if pitch < columns:
        return None
    packed = pitch * (shape[-2] if len(shape) > 1 else 1)
    for length, step in zip(shape[-3::-1], steps[-3::-1], strict=True):
        if length > 1 and step != packed and not (array.stride and _apart(array, step, packed)):
            return None
        if array.stride:
            return pitch, step if length > 1 else packed
        packed *= length
    return pitch, 0


def _apart(array: ArrayArgument, step: int, packed: int) -> bool:
    """Whether matrices may be so far from each other: results must not lie over one another."""
    return step >= (0 if array.role == "in" else packed)

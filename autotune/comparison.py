"""How far a result is off its reference, element by element, in units of the reference's scale."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

import numpy as np

from autotune.errors import InputError
from autotune.records import Accuracy
from autotune.references import BLOCK_BYTES, Array, Arrays, Expected


@dataclass(frozen=True)
class WorstElement:
    """The element of the outputs with the largest error."""

    output: str
    index: tuple[int, ...]
    got: float
    expected: float
    error: float
    """In units of its scale; infinite where NaN or an infinity stands in the wrong place."""


def in_range(arrays: Arrays, expected: Expected, xp: ModuleType = np) -> bool:
    """Whether all that is expected is finite in the outputs' own types."""
    largest = {name: _largest(array.dtype) for name, array in arrays.items()}
    return all(
        bool((xp.abs(value) <= largest[name]).all()) for name, value in expected.values.items() if value.size
    )


def quick_error(got: Arrays, expected: Expected, xp: ModuleType = np) -> float:
    """The error of the worst element where all that is expected is `in_range`; NaN or infinite for odd results.

    A few passes over the arrays, and a single number comes back from the device; `worst_element` looks closely.
    """
    if got.keys() != expected.values.keys():
        return float("nan")
    worst = []
    with np.errstate(invalid="ignore", over="ignore"):
        for name, value in expected.values.items():
            if value.size == 0:
                continue
            scale = xp.broadcast_to(expected.scale[name], value.shape)
            block = max(1, BLOCK_BYTES * (value.shape[0] if value.ndim else 1) // (8 * value.size))
            for top in range(0, value.shape[0] if value.ndim else 1, block):
                part = slice(top, top + block) if value.ndim else ...
                errors = xp.asarray(got[name][part], dtype=xp.float64) - value[part]
                worst.append((xp.abs(errors) / scale[part]).max())
    return float(xp.stack(worst).max()) if worst else 0.0


def worst_element(got: Arrays, expected: Expected, xp: ModuleType = np) -> WorstElement | None:
    """The worst element over all outputs, compared in row blocks; None where the outputs are empty.

    Raises InputError where the reference does not give every output, since the rest would go unverified.
    """
    if got.keys() != expected.values.keys():
        rule = f"must give all that the kernel writes ({', '.join(got)}), got {', '.join(expected.values)}"
        raise InputError(rule, key="reference")
    worst: WorstElement | None = None
    for name, value in expected.values.items():
        result = got[name]
        if value.size == 0:
            continue
        scale = xp.broadcast_to(expected.scale[name], value.shape)
        rows = value.shape[0] if value.ndim else 1
        block = max(1, BLOCK_BYTES * rows // (8 * value.size))
        for top in range(0, rows, block):
            part = slice(top, top + block) if value.ndim else ...
            errors = _errors(result[part], value[part], scale[part], xp)
            flat = int(errors.argmax())
            error = float(errors.ravel()[flat])
            if worst is None or error > worst.error:
                inner = [int(i) for i in np.unravel_index(flat, errors.shape)]
                index = (inner[0] + top, *inner[1:]) if inner else ()
                worst = WorstElement(name, index, float(result[index]), float(value[index]), error)
    return worst


def accuracy(got: Arrays, expected: Expected, xp: ModuleType = np) -> Accuracy:
    """The worst error of a result against its reference."""
    worst = worst_element(got, expected, xp)
    elements = sum(int(value.size) for value in expected.values.values())
    return Accuracy(worst.error if worst else 0.0, expected.tolerance, elements)


def passes(result: Accuracy) -> bool:
    """Whether a result is right; False for a NaN error."""
    return result.worst_error <= result.tolerance


def _errors(got: Array, expected: Array, scale: Array, xp: ModuleType) -> Array:
    wide = got.astype(xp.float64)
    # What is beyond the range of the kernel's type is expected to be infinite there.
    largest = _largest(got.dtype)
    if largest < float("inf"):
        expected = xp.where(xp.abs(expected) > largest, xp.copysign(xp.inf, expected), expected)
    same = (wide == expected) | (xp.isnan(wide) & xp.isnan(expected))
    comparable = xp.isfinite(wide) & xp.isfinite(expected) & ~xp.isnan(scale)
    distance = xp.abs(xp.where(comparable, wide, 0.0) - xp.where(comparable, expected, 0.0))
    difference = xp.where(comparable, distance / scale, xp.inf)
    errors: Array = xp.where(same, 0.0, difference)
    return errors


def _largest(dtype: object) -> float:
    """The largest finite number of a floating-point type; infinite for others."""
    kind = np.dtype(str(dtype))
    return float(np.finfo(kind).max) if np.issubdtype(kind, np.floating) else float("inf")

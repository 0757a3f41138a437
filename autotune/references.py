"""What a kernel's result should be, in float64, and in which unit its error is counted.

A reference gives the expected outputs together with a *scale* for each element: the size of the rounding
error that a kernel of the output's type may make there. Kernels add up in float32 at least, and in the output's
type where that is wider. The error of a result is the largest |got - expected| / scale; a kernel is right when
that is at most the tolerance. NaN and infinities pass only where they are expected.

Everything here runs on NumPy or CuPy arrays alike; `xp` is the module that made them.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from autotune.config import Value
from autotune.errors import InputError, nearest_name
from autotune.spec.kernel_spec import KernelSpec
from autotune.spec.yaml_file import read_yaml

Array: TypeAlias = npt.NDArray[Any]
"""A NumPy array, or a CuPy one, which behaves the same."""
Arrays: TypeAlias = Mapping[str, Array]
"""The array arguments by name in the order of the kernel's signature, as logical views without padding."""
Scalars: TypeAlias = Mapping[str, Value]
"""The scalar arguments by name in order; behind them the problem's classes and the spec's constants of other names."""

MATMUL_TOLERANCE = 4.0
"""In units of eps * sqrt(K) * |A_i| * |B_j|. Rounding after each of K additions, in the worst order (one
after the other) and for all-positive data, stays near 1; a single product with alpha and beta reaches 1.5.
Leaving out 8 of K products costs about 10 even at K = 32768."""
CALLABLE_TOLERANCE = 32.0
"""In units of eps * (|expected| + its root mean square), for callables that state no scale of their own."""

BLOCK_FLOPS = 1.0e11
"""One step of a matrix product; under half a second on GPUs with 1/64-rate float64."""
BLOCK_BYTES = 256 * 2**20
"""Largest float64 copy of a part of an operand, or of a comparison's temporaries."""

_MISTAKES = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, TypeError, ValueError)
"""What a reference function with a mistake in it raises; memory that runs out, say, is none."""


@dataclass(frozen=True)
class Precision:
    """What can be asked of results of one element type."""

    eps: float
    """Distance from 1 to the next number, of the type itself; for integers, which have to be exact, float64's."""
    sum_eps: float
    """The same of what kernels add up in."""
    floor: float
    """Keeps scales above zero and forgives results that underflow."""

    @classmethod
    def of(cls, dtype: object) -> Precision:
        """By the type's NumPy name or the type of a NumPy or CuPy array."""
        kind = np.dtype(str(dtype))
        info = np.finfo(kind if kind.kind == "f" else np.float64)
        # Half-precision numbers are not flushed to zero as float32 ones may be.
        floor = info.smallest_subnormal if kind.itemsize == 2 and kind.kind == "f" else info.tiny
        return cls(float(info.eps), min(float(info.eps), float(np.finfo(np.float32).eps)), float(floor))


@dataclass(frozen=True)
class Expected:
    """Expected outputs with the unit of their error; arrays by output name."""

    values: dict[str, Array]
    """In float64."""
    scale: dict[str, Array]
    """Broadcasts against the value of the same name; positive."""
    tolerance: float
    """Largest |got - expected| / scale that is still right; zero demands equality."""


ReferenceFunction: TypeAlias = Callable[[Arrays, Scalars, ModuleType], "Expected | dict[str, Array]"]


@dataclass(frozen=True)
class Reference:
    """A named way to compute what a kernel should give."""

    name: str
    function: ReferenceFunction

    def expected(self, arrays: Arrays, scalars: Scalars, xp: ModuleType = np) -> Expected:
        """The expected outputs; `arrays` hold what the kernel finds, outputs that it reads included.

        A function that returns plain arrays gets the default scale and tolerance for the outputs' types. Raises
        InputError where it fails, gives an array that is no argument, or one of another shape.
        """
        result = self._call(arrays, scalars, xp)
        if isinstance(result, Expected):
            values = result.values
        else:
            values = {name: xp.asarray(value, dtype=xp.float64) for name, value in result.items()}
        for name, value in values.items():
            if name not in arrays:
                rule = f"{self.name} gives {name!r}, which is no array of the kernel"
                raise InputError(rule, key="reference", nearest=nearest_name(name, arrays))
            if value.shape != arrays[name].shape:
                rule = f"{self.name} gives {name} with shape {value.shape}, and it has {arrays[name].shape}"
                raise InputError(rule, key="reference")
        if isinstance(result, Expected):
            return result
        scale = {name: _default_scale(value, arrays[name].dtype, xp) for name, value in values.items()}
        return Expected(values, scale, CALLABLE_TOLERANCE)

    def _call(self, arrays: Arrays, scalars: Scalars, xp: ModuleType) -> Expected | dict[str, Array]:
        try:
            result = self.function(arrays, scalars, xp)
        except _MISTAKES as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(last.filename).name}:{last.lineno}"
            rule = f"{self.name} failed at {place}: {type(error).__name__}: {' '.join(str(error).split())}"
            raise InputError(rule, key="reference") from error
        if isinstance(result, Expected | Mapping):
            return result
        rule = (
            f"{self.name} must return the outputs by name, e.g. {{'C': ...}}, got a {type(result).__name__}"
        )
        raise InputError(rule, key="reference")


def get_reference(reference: object) -> Reference:
    """The reference of a built-in name, a `module:function` text, or a callable `(arrays, scalars, xp)`.

    Raises InputError for any other value.
    """
    if isinstance(reference, Reference):
        return reference
    if callable(reference):
        return Reference(getattr(reference, "__qualname__", repr(reference)), reference)
    text = str(reference)
    if text in REFERENCES:
        return Reference(text, REFERENCES[text])
    if ":" in text:
        return Reference(text, _import_function(text))
    raise InputError(
        f"must be a built-in reference, `module:function` or a callable, got {text!r}",
        key="reference",
        nearest=nearest_name(text, REFERENCES),
    )


def check_reference(spec: KernelSpec) -> None:
    """Raises InputError, with its place in the spec's file, where the spec's reference cannot be found."""
    try:
        get_reference(spec.reference)
    except InputError as error:
        if spec.source_file is not None:
            error.where = read_yaml(spec.source_file).where(("reference",))
        raise


def check_importable(reference: object) -> None:
    """Raises InputError for a function that another process cannot find again by its name."""
    module, name = getattr(reference, "__module__", ""), getattr(reference, "__qualname__", "")
    if callable(reference) and (module == "__main__" or "<" in name):
        raise InputError(
            f"the GPU's process must be able to import the function, got {module}.{name}",
            key="reference",
            nearest="define it at the top level of a module",
        )


def matmul(arrays: Arrays, scalars: Scalars, xp: ModuleType) -> Expected:
    """C = alpha * A @ B + beta * C for the three arrays in order; as in BLAS, zero factors read nothing.

    With three dimensions, a product for each index of the first.
    """
    if len(arrays) != 3:
        raise InputError(f"matmul has two inputs and an output, got {', '.join(arrays)}", key="reference")
    a, b, c = arrays.values()
    values, scale = product(a, b, c, scalars, xp)
    output = list(arrays)[-1]
    return Expected({output: values}, {output: scale}, MATMUL_TOLERANCE)


def matmul_epilogue(arrays: Arrays, scalars: Scalars, xp: ModuleType) -> Expected:
    """Like `matmul` for the first three arrays, then what `autotune.epilogue` adds; a fourth is the bias."""
    from autotune.epilogue import expected_epilogue

    if len(arrays) not in (3, 4):
        rule = f"matmul_epilogue has two inputs, an output and maybe a bias, got {', '.join(arrays)}"
        raise InputError(rule, key="reference")
    a, b, c, *bias = arrays.values()
    output = list(arrays)[2]
    values, scale = product(a, b, c, scalars, xp)
    eps = Precision.of(c.dtype).sum_eps
    values, scale = expected_epilogue(values, scale, bias[0] if bias else None, scalars, eps, xp)
    return Expected({output: values}, {output: scale}, MATMUL_TOLERANCE)


def product(a: Array, b: Array, c: Array, scalars: Scalars, xp: ModuleType) -> tuple[Array, Array]:
    """alpha * A @ B + beta * C in float64, with the scale of each element's error."""
    if a.ndim == 3:
        pairs = [product(*matrices, scalars, xp) for matrices in zip(a, b, c, strict=True)]
        if not pairs:
            return xp.zeros(c.shape, dtype=xp.float64), xp.ones(c.shape, dtype=xp.float64)
        values, scales = zip(*pairs, strict=True)
        return xp.stack(values), xp.stack(scales)
    alpha, beta = number(scalars, "alpha", 1.0), number(scalars, "beta", 0.0)
    (rows, depth), columns = a.shape, b.shape[1]

    precision = Precision.of(c.dtype)
    values = xp.zeros((rows, columns), dtype=xp.float64)
    scale = xp.full((rows, columns), precision.floor, dtype=xp.float64)
    if beta != 0.0:
        values += beta * c.astype(xp.float64)
        scale += precision.sum_eps * xp.abs(values)
    if alpha != 0.0 and depth > 0:
        block_columns = max(1, min(columns, BLOCK_BYTES // (8 * depth)))
        block_rows = max(
            1, min(rows, BLOCK_BYTES // (8 * depth), int(BLOCK_FLOPS / (2 * depth * block_columns)))
        )
        for left in range(0, columns, block_columns):
            across = slice(left, left + block_columns)
            b64 = b[:, across].astype(xp.float64)
            b_norms = xp.sqrt((b64 * b64).sum(axis=0))
            for top in range(0, rows, block_rows):
                down = slice(top, top + block_rows)
                a64 = a[down].astype(xp.float64)
                a_norms = xp.sqrt((a64 * a64).sum(axis=1))
                values[down, across] += alpha * (a64 @ b64)
                unit = precision.sum_eps * depth**0.5 * abs(alpha)
                scale[down, across] += unit * xp.outer(a_norms, b_norms)
    if precision.eps > precision.sum_eps:
        scale += precision.eps / 2 * xp.abs(values)  # one rounding, of the sum
    return values, scale


def number(scalars: Scalars, name: str, default: float = 0.0) -> float:
    """A scalar's value."""
    value = scalars.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{name} must be a number, got {value!r}", key="reference")
    return float(value)


def transpose(arrays: Arrays, scalars: Scalars, xp: ModuleType) -> Expected:
    """The last array is the first one with rows and columns exchanged, exactly."""
    return _exactly(list(arrays)[-1], next(iter(arrays.values())).T, xp)


def copy(arrays: Arrays, scalars: Scalars, xp: ModuleType) -> Expected:
    """The last array equals the first, exactly."""
    return _exactly(list(arrays)[-1], next(iter(arrays.values())), xp)


def scale(arrays: Arrays, scalars: Scalars, xp: ModuleType) -> dict[str, Array]:
    """The last array is the first one times the first scalar."""
    factor = number(scalars, next(iter(scalars)))
    return {list(arrays)[-1]: next(iter(arrays.values())).astype(xp.float64) * factor}


def add(arrays: Arrays, scalars: Scalars, xp: ModuleType) -> dict[str, Array]:
    """The last array is the sum of the first two."""
    one, other = list(arrays.values())[:2]
    return {list(arrays)[-1]: one.astype(xp.float64) + other}


def softmax(arrays: Arrays, scalars: Scalars, xp: ModuleType) -> dict[str, Array]:
    """The last array holds exp of the first one, each row (along the last axis) divided by its sum."""
    values = next(iter(arrays.values())).astype(xp.float64)
    if values.size:
        values = xp.exp(values - values.max(axis=-1, keepdims=True))
        values /= values.sum(axis=-1, keepdims=True)
    return {list(arrays)[-1]: values}


REFERENCES: dict[str, ReferenceFunction] = {
    "matmul": matmul,
    "matmul_epilogue": matmul_epilogue,
    "transpose": transpose,
    "copy": copy,
    "scale": scale,
    "add": add,
    "softmax": softmax,
}


def _exactly(output: str, value: Array, xp: ModuleType) -> Expected:
    return Expected({output: value.astype(xp.float64)}, {output: xp.ones((), dtype=xp.float64)}, 0.0)


def _default_scale(value: Array, dtype: object, xp: ModuleType) -> Array:
    precision = Precision.of(dtype)
    finite = xp.where(xp.isfinite(value), value, 0.0)
    mean_square = (finite * finite).mean() if value.size else 0.0
    unit = precision.sum_eps
    if precision.eps > unit:
        unit += 4 * precision.eps / CALLABLE_TOLERANCE  # a few roundings on the way, rather than sums
    scale: Array = unit * (xp.abs(finite) + xp.sqrt(xp.asarray(mean_square))) + precision.floor
    return scale


def _import_function(text: str) -> ReferenceFunction:
    module, _, name = text.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        cure = f"put the folder of {module}.py on PYTHONPATH"
        raise InputError(f"cannot import {text!r}: {error}", key="reference", nearest=cure) from error
    if not callable(function):
        raise InputError(f"{text!r} is not callable", key="reference")
    return function  # type: ignore[no-any-return]

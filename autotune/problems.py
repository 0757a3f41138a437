"""Problems of a kernel: from what a user writes to sizes and classes, and how much work they are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from autotune.config import Value, value_text
from autotune.errors import InputError, nearest_name
from autotune.expressions import Expression
from autotune.problem import Problem
from autotune.spec.kernel_spec import KernelSpec, ProblemClass

MAX_SIZE = 2**31 - 1
"""Sizes and leading dimensions reach the kernel as 32-bit integers."""

Sizes = Mapping[str, int] | Sequence[int] | int


def make_problem(
    spec: KernelSpec, sizes: Sizes, dtype: str | None = None, classes: Mapping[str, Value] | None = None
) -> Problem:
    """The problem of these sizes; classes not given are those of a call on packed arrays.

    One integer stands for all sizes equal. Raises InputError on sizes, an element type or classes that the
    kernel does not have.
    """
    named = _named_sizes(spec, sizes)
    if dtype not in (None, spec.problem.dtype):
        raise InputError(f"{spec.name} computes in {spec.problem.dtype}, got {dtype!r}", key="dtype")
    asked = dict(classes or {})
    known = [problem_class.name for problem_class in spec.problem.classes]
    for name in asked:
        if name not in known:
            rule = f"{spec.name} has no problem class {name!r}"
            raise InputError(rule, key="classes", nearest=nearest_name(name, known))
    # How arrays lie decides what their packed pitches are, and these what the other classes of a plain call are.
    layouts = {array.transposed for array in spec.arrays if array.transposed}
    names: dict[str, Value] = {}
    for problem_class in spec.problem.classes:
        if problem_class.name in layouts:
            value = asked.get(problem_class.name, problem_class.default.evaluate(named))
            names[problem_class.name] = _class_value(problem_class, value)
    names |= {**named, **_distances(spec, {**named, **names})}
    chosen: dict[str, Value] = {}
    for problem_class in spec.problem.classes:
        name = problem_class.name
        value = asked[name] if name in asked else problem_class.default.evaluate(names)
        chosen[name] = names[name] = _class_value(problem_class, value)
    return Problem(tuple(named.items()), spec.problem.dtype, tuple(chosen.items()))


def check_problem(spec: KernelSpec, problem: Problem) -> None:
    """Raises InputError for a problem that is none of this kernel's."""
    made = make_problem(spec, dict(problem.sizes), problem.dtype, dict(problem.classes))
    if made.key != problem.key:
        raise InputError(f"a problem of {spec.name} is written {made.key}, got {problem.key}", key="size")


def parse_size(text: str, spec: KernelSpec) -> tuple[int, ...]:
    """The sizes in `text`: `4096` for all sizes equal, else one for each, e.g. `4096x4096x1024`."""
    parts = re.split("[xX×]", text.strip())
    if not all(re.fullmatch("[0-9]{1,10}", part) for part in parts) or len(parts) not in (
        1,
        len(spec.problem.sizes),
    ):
        form = "x".join(spec.problem.sizes)
        raise InputError(f"must be one whole number or {form}, got {text!r}", key="size")
    sizes = tuple(int(part) for part in parts) * (len(spec.problem.sizes) if len(parts) == 1 else 1)
    return tuple(_named_sizes(spec, sizes).values())


def flops(spec: KernelSpec, problem: Problem) -> float:
    """Floating-point operations of one call."""
    return _amount(spec.problem.flops, problem)


def bytes_moved(spec: KernelSpec, problem: Problem) -> float:
    """Compulsory traffic of one call: each input read once, each output written once."""
    return _amount(spec.problem.bytes, problem)


def packed_pitches(spec: KernelSpec, problem: Problem) -> dict[str, int]:
    """Leading dimensions, and strides of batches, by name, in elements, where the rows of every array follow without
    gaps."""
    return _distances(spec, problem.names())


def _named_sizes(spec: KernelSpec, sizes: Sizes) -> dict[str, int]:
    names = spec.problem.sizes
    if isinstance(sizes, int):
        sizes = [sizes] * len(names)
    if isinstance(sizes, Mapping):
        for name in sizes:
            if name not in names:
                raise InputError(
                    f"{spec.name} has no size {name!r}", key="size", nearest=nearest_name(name, names)
                )
        missing = [name for name in names if name not in sizes]
        if missing:
            raise InputError(
                f"needs the sizes {', '.join(names)}, got none for {', '.join(missing)}", key="size"
            )
        named = {name: sizes[name] for name in names}
    elif not isinstance(sizes, Sequence) or isinstance(sizes, str):
        raise InputError(f"sizes are whole numbers, one or {len(names)}, got {sizes!r}", key="size")
    elif len(sizes) == len(names):
        named = dict(zip(names, sizes, strict=True))
    else:
        raise InputError(f"needs {len(names)} sizes ({'x'.join(names)}), got {len(sizes)}", key="size")
    for name, size in named.items():
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= MAX_SIZE:
            raise InputError(f"{name} must be a whole number from 0 to {MAX_SIZE}, got {size!r}", key="size")
    return named


def _distances(spec: KernelSpec, sizes: Mapping[str, Value]) -> dict[str, int]:
    distances: dict[str, int] = {}
    for array in spec.arrays:
        if array.pitch:
            shape = [size.evaluate(sizes) for size in array.shape]
            exchanged = bool(array.transposed) and sizes[array.transposed] == "t"
            width, rows = shape[-2:] if exchanged else (shape[-1], shape[-2] if len(shape) > 1 else 1)
            assert isinstance(width, int)
            assert isinstance(rows, int)
            distances[array.pitch] = max(width, distances.get(array.pitch, 0))
            if array.stride:
                distances[array.stride] = max(rows * width, distances.get(array.stride, 0))
    return distances


def _class_value(problem_class: ProblemClass, value: Value) -> Value:
    for allowed in problem_class.values:
        if type(allowed) is type(value) and allowed == value:
            return value
    choices = [value_text(allowed) for allowed in problem_class.values]
    rule = f"must be one of {', '.join(choices)}, got {value_text(value)}"
    raise InputError(
        rule, key=f"classes.{problem_class.name}", nearest=nearest_name(value_text(value), choices)
    )


def _amount(expression: Expression, problem: Problem) -> float:
    amount = expression.evaluate(problem.names())
    if not isinstance(amount, int | float):
        raise InputError(f"{expression.text!r} must be a number, got {amount!r}", expression.where)
    return float(amount)

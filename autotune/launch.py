"""From a config and a problem to the numbers of one launch: names, grid, block, shared memory, arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from autotune.candidate import (
    BufferPlan,
    Candidate,
    CompiledKernel,
    LaunchPlan,
    Runnable,
    ScalarPlan,
    ScratchPlan,
    stored,
)
from autotune.config import Config, Value
from autotune.errors import InputError
from autotune.expressions import Expression
from autotune.gpu import GpuSpec
from autotune.problem import Problem
from autotune.spec.kernel_spec import (
    ArrayArgument,
    KernelSpec,
    PitchArgument,
    ScalarArgument,
    ScratchArgument,
    SizeArgument,
    StrideArgument,
)

WIDEST_ACCESS_BYTES = 16
"""The widest a thread loads or stores at once: alignment beyond it changes nothing."""

ITEM_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "int8": 1, "uint8": 1, "int16": 2}
ITEM_BYTES |= {"uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8, "bool": 1, "complex64": 8}


def config_names(
    spec: KernelSpec, gpu: GpuSpec, config: Mapping[str, Value], problem: Problem | None = None
) -> dict[str, Value]:
    """Every name an expression of this spec may ask for, with its value.

    Parameters, constants, GPU and derived names; with a problem also its sizes, classes and the variants of both.
    Raises InputError where a derived name or variant cannot be evaluated.
    """
    names: dict[str, Value] = {
        **gpu.names(),
        **spec.constants,
        **(problem.names() if problem else {}),
        **config,
    }
    for name, expression in spec.derived.items():
        names[name] = expression.evaluate(names)
    if problem is not None:
        variants = {name: expression.evaluate(names) for name, expression in spec.variants.items()}
        names.update(variants)
    return names


def plan_launch(spec: KernelSpec, problem: Problem, config: Config, gpu: GpuSpec) -> LaunchPlan:
    """The launch of one config for one problem; empty where a grid dimension is zero."""
    names = config_names(spec, gpu, config, problem)
    return LaunchPlan(
        grid=dimensions(spec.launch.grid, names, "launch.grid"),
        block=dimensions(spec.launch.block, names, "launch.block"),
        dynamic_smem_bytes=whole_number(spec.launch.smem, names, "launch.smem"),
        arguments=plan_arguments(spec, problem, names),
        facts=(*problem.classes, *spec.constants.items()),
    )


def plan_arguments(
    spec: KernelSpec, problem: Problem, names: Mapping[str, Value] | None = None
) -> tuple[BufferPlan | ScalarPlan | ScratchPlan, ...]:
    """What the kernel gets, in the order of its signature.

    The same for every config, apart from scratch memory, whose size may need the config's `names`; without them it
    has none. Raises InputError where a number is out of the range of its type.
    """
    buffers = {array.name: buffer_layout(array, problem) for array in spec.arrays}
    pitches = pitch_values(spec, problem)
    strides = {array.stride: buffers[array.name].stride for array in spec.arrays if array.stride}
    arguments: list[BufferPlan | ScalarPlan | ScratchPlan] = []
    for argument in spec.arguments:
        match argument:
            case ArrayArgument(name=name):
                arguments.append(buffers[name])
            case ScalarArgument(name=name, dtype=dtype, value=value):
                arguments.append(_scalar(name, value.evaluate(problem.names()), dtype))
            case SizeArgument(name=name):
                arguments.append(_scalar(name, dict(problem.sizes)[name], "int32"))
            case PitchArgument(name=name):
                arguments.append(_scalar(name, pitches[name], "int32"))
            case StrideArgument(name=name):
                arguments.append(_scalar(name, strides[name], "int64"))
            case ScratchArgument(name=name):
                arguments.append(ScratchPlan(name, scratch_bytes(spec, names) if names is not None else 0))
    return tuple(arguments)


def check_call(spec: KernelSpec, problem: Problem, gpu: GpuSpec) -> None:
    """Raises InputError for a problem that no config could run: arguments out of range, memory beyond the GPU's."""
    needed = array_bytes(spec, problem)
    if needed > gpu.memory_bytes:
        rule = f"the arrays of {problem.label} take {needed:,} bytes, and {gpu.name} has {gpu.memory_bytes:,}"
        raise InputError(rule, key="size")
    names = {**gpu.names(), **spec.constants, **problem.names()}
    if spec.scratch and spec.scratch.bytes.names <= set(names):
        nbytes = scratch_bytes(spec, names)
        if needed + nbytes > gpu.memory_bytes:
            raise InputError(
                f"scratch memory of {nbytes:,} bytes, beside {needed:,} of the arrays of {problem.label}, exceeds the "
                f"{gpu.memory_bytes:,} of {gpu.name}",
                spec.scratch.bytes.where,
                f"arguments.{spec.scratch.name}.bytes",
            )


def array_bytes(spec: KernelSpec, problem: Problem) -> int:
    """Device memory that the arrays of a problem take."""
    buffers = [plan for plan in plan_arguments(spec, problem) if isinstance(plan, BufferPlan)]
    return sum(math.prod(plan.shape[:-1]) * plan.pitch * item_bytes(plan.dtype) for plan in buffers)


def scratch_bytes(spec: KernelSpec, names: Mapping[str, Value]) -> int:
    """Scratch memory that one launch takes; 0 for kernels without."""
    if spec.scratch is None:
        return 0
    return whole_number(spec.scratch.bytes, names, f"arguments.{spec.scratch.name}.bytes")


def plan_run(candidate: Candidate, kernel: CompiledKernel) -> Runnable:
    """All that verifying and measuring a compiled candidate need."""
    from autotune.problems import bytes_moved, flops

    spec, problem = candidate.spec, candidate.problem
    return Runnable(
        kernel=kernel,
        launch=plan_launch(spec, problem, candidate.config, candidate.gpu),
        problem=problem,
        reference=spec.reference,
        flops=flops(spec, problem),
        bytes=bytes_moved(spec, problem),
    )


def buffer_layout(array: ArrayArgument, problem: Problem) -> BufferPlan:
    """Where an array lies in memory so that it has exactly the alignment its class states, and no more.

    An alignment of `a` elements puts the base `a` elements past a 256-byte boundary, unless `a` elements fill
    the widest access, which is as aligned as it gets. Rows are packed where `a` divides them, else padded.
    """
    shape = tuple(
        whole_number(size, problem.names(), f"arguments.{array.name}.shape") for size in array.shape
    )
    transposed = is_transposed(array, problem)
    row = max(1, stored(shape, transposed)[-1] if shape else 1)
    align = dict(problem.classes).get(array.align, 1) if array.align else 1
    if isinstance(align, bool) or not isinstance(align, int) or align < 1:
        raise InputError(f"an alignment is a number of elements, got {align!r}", key=array.align)
    widest = WIDEST_ACCESS_BYTES // item_bytes(array.dtype)
    return BufferPlan(
        name=array.name,
        role=array.role,
        shape=shape,
        dtype=array.dtype,
        pitch=-(-row // align) * align,
        offset=align if array.align and align < widest else 0,
        transposed=transposed,
    )


def is_transposed(array: ArrayArgument, problem: Problem) -> bool:
    """Whether the array lies with its last two dimensions exchanged."""
    return bool(array.transposed) and dict(problem.classes)[array.transposed] == "t"


def pitch_values(spec: KernelSpec, problem: Problem) -> dict[str, int]:
    """The leading dimensions by name, in elements."""
    return {array.pitch: buffer_layout(array, problem).pitch for array in spec.arrays if array.pitch}


def item_bytes(dtype: str) -> int:
    """Bytes of one element; raises InputError for a type that kernels here cannot take."""
    if dtype not in ITEM_BYTES:
        raise InputError(f"element type must be one of {', '.join(ITEM_BYTES)}, got {dtype!r}", key="dtype")
    return ITEM_BYTES[dtype]


def dimensions(
    expressions: Sequence[Expression], names: Mapping[str, Value], key: str
) -> tuple[int, int, int]:
    """One to three expressions as x, y, z; missing ones are 1."""
    sizes = [whole_number(expression, names, key) for expression in expressions]
    x, y, z = (*sizes, 1, 1, 1)[:3]
    return (x, y, z)


def whole_number(expression: Expression, names: Mapping[str, Value], key: str) -> int:
    """The value of an expression that must be a whole number, zero or more."""
    value = expression.evaluate(names)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InputError(f"{expression.text!r} must be a whole number, got {value!r}", expression.where, key)
    return value


def _scalar(name: str, value: Value, dtype: str) -> ScalarPlan:
    key = f"arguments.{name}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"a scalar argument is a number, got {value!r}", key=key)
    if not dtype.startswith(("int", "uint")):
        return ScalarPlan(name, dtype, float(value))
    if value != value // 1:
        raise InputError(f"a scalar argument of type {dtype} is a whole number, got {value!r}", key=key)
    bits = 8 * item_bytes(dtype)
    low, high = (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if not low <= value <= high:
        raise InputError(f"is passed as {dtype}, which goes from {low} to {high}, got {value}", key=key)
    return ScalarPlan(name, dtype, int(value))

"""Predicts the time of a config from its resources, its launch and what its spec declares under `cost`.

A block runs its steps one after another; the blocks that share an SM overlap. A step takes as long as the
busiest of issuing, multiply-adds, shared memory and L2, and no less than a warp's own chain of waits.
Blocks run in waves over the SMs; device memory and the launch bound the whole from below. The keys of
`cost`, per step of a block:

    multiply_adds   FP32 multiply-adds of a thread
    instructions    other instructions of a thread
    times_NAME      how often a warp makes the shared access NAME
    fetch_bytes     what a block fetches from global memory
    ahead           how many steps its fetches run ahead; 0 where it waits for them
    stall_cycles    waits of a warp that only other warps can hide

and for the whole call:

    steps           steps of a block
    output_bytes    what a block reads and writes at its end
    dram_bytes      traffic of device memory where the data exceed the L2
    efficiency      share of the rate that is left by what is not modelled, 0 to 1
    min_blocks      blocks per SM asked of the compiler, 0 for none

`steps` and `multiply_adds` are required. Without `cost` the time is the roofline's, widened by occupancy and
by the grid's unevenness. Constants were set on one H200, where a 128x256x16 tiled product of 4096 cubed
took 2.60 ms; `autotune.model.fitted` fits them to measurements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from autotune.banks import wavefronts
from autotune.candidate import Candidate
from autotune.columns import Array, as_column
from autotune.config import Config, Value
from autotune.errors import InputError, nearest_name
from autotune.expressions import Expression
from autotune.gpu import GpuSpec
from autotune.model.constants import Constants
from autotune.model.terms import RooflineTerms, StepTerms
from autotune.occupancy import occupancy
from autotune.problem import Problem
from autotune.problems import bytes_moved, flops
from autotune.records import Resources
from autotune.spec.kernel_spec import KernelSpec, SharedAccess

REGISTERS_WHERE_UNKNOWN = 32
SPILL_DIVISOR = 90.0
"""Estimated registers over the cap, cubed, over this: bytes spilled (86 too many were seen to give 9,280)."""
WELL_OCCUPIED = 0.5
"""Share of the resident warps from which on more of them hide no more latency, for kernels without `cost`."""

REQUIRED_COST_KEYS = ("steps", "multiply_adds")
COST_KEYS = (
    *REQUIRED_COST_KEYS,
    "instructions",
    "fetch_bytes",
    "output_bytes",
    "ahead",
    "stall_cycles",
    "efficiency",
    "min_blocks",
    "dram_bytes",
)

Columns = dict[str, Array | Value]


def predict_ms(candidate: Candidate, resources: Resources | None) -> float:
    """Predicted time of one call in ms; by the spec's estimate of registers where `resources` is None."""
    return rank(candidate.spec, candidate.gpu, candidate.problem, [candidate.config], [resources])[0]


def rank(
    spec: KernelSpec,
    gpu: GpuSpec,
    problem: Problem,
    configs: Sequence[Config],
    resources: Sequence[Resources | None] | None = None,
) -> list[float]:
    """Predicted time in ms of each of many legal configs, with their `resources` where they are known."""
    if not configs:
        return []
    times = prepare(spec, gpu, problem, configs, resources).terms.time_ms(Constants())
    return [float(time) for time in times]


@dataclass(frozen=True)
class Use:
    """Columns of what each config takes of an SM."""

    threads: Array
    blocks_per_sm: Array
    registers: Array
    spill_bytes: Array
    """Loads and stores per thread."""


@dataclass(frozen=True)
class _Work:
    """Columns of what each config's problem asks for."""

    flops: Array
    compulsory_bytes: Array
    """Each operand read or written once."""


@dataclass(frozen=True)
class Prepared:
    """Many configs on one GPU, ready for any constants."""

    columns: Columns
    use: Use
    terms: StepTerms | RooflineTerms


def prepare(
    spec: KernelSpec,
    gpu: GpuSpec,
    problem: Problem,
    configs: Sequence[Config],
    resources: Sequence[Resources | None] | None = None,
) -> Prepared:
    """All that does not depend on the constants; at least one config, each legal."""
    return prepare_all(spec, gpu, [(problem, len(configs))], configs, resources or [None] * len(configs))


def prepare_all(
    spec: KernelSpec,
    gpu: GpuSpec,
    problems: Sequence[tuple[Problem, int]],
    configs: Sequence[Config],
    resources: Sequence[Resources | None],
) -> Prepared:
    """The same for several problems at once: of the configs the first so many are for the first problem, and so on."""
    check_cost(spec)
    counts = [count for _, count in problems]
    columns = _columns(spec, gpu, _problem_columns([problem for problem, _ in problems], counts), configs)
    per_dimension = [_numbers(size, columns, len(configs)) for size in spec.launch.grid]
    blocks = np.prod(per_dimension, axis=0)
    use = _resource_use(spec, gpu, columns, resources)
    work = _Work(
        np.repeat([float(flops(spec, problem)) for problem, _ in problems], counts),
        np.repeat([float(bytes_moved(spec, problem)) for problem, _ in problems], counts),
    )
    terms = _step_terms if spec.cost else _roofline_terms
    return Prepared(columns, use, terms(spec, gpu, work, columns, use, blocks))


def check_cost(spec: KernelSpec) -> None:
    """Raises InputError where `cost` has a key unknown to the model, or lacks one that it requires."""
    known = {*COST_KEYS, *(f"times_{access.name}" for access in spec.shared_accesses)}
    for key, expression in spec.cost.items():
        if key not in known:
            nearest = nearest_name(key, sorted(known))
            raise InputError("unknown key", expression.where, f"cost.{key}", nearest)
    for key in REQUIRED_COST_KEYS:
        if spec.cost and key not in spec.cost:
            where = next(iter(spec.cost.values())).where
            raise InputError(f"needs {' and '.join(REQUIRED_COST_KEYS)}, got no {key}", where, "cost")


def config_columns(spec: KernelSpec, gpu: GpuSpec, problem: Problem, configs: Sequence[Config]) -> Columns:
    """`launch.config_names` for many configs at once: an array for each name that varies."""
    return _columns(spec, gpu, dict(problem.names()), configs)


def _columns(spec: KernelSpec, gpu: GpuSpec, problem: Columns, configs: Sequence[Config]) -> Columns:
    columns: Columns = {**gpu.names(), **spec.constants, **problem}
    distinct = {config: number for number, config in enumerate(dict.fromkeys(configs))}
    rows = [distinct[config] for config in configs]
    for name in spec.parameter_names:
        columns[name] = as_column([config[name] for config in distinct])[rows]
    for name, expression in spec.derived.items():
        columns[name] = expression.vector(columns)
    columns.update({name: expression.vector(columns) for name, expression in spec.variants.items()})
    return columns


def _problem_columns(problems: Sequence[Problem], counts: Sequence[int]) -> Columns:
    """Sizes and classes by name: one value where all the problems agree."""
    names = [problem.names() for problem in problems]
    columns: Columns = {}
    for name, first in names[0].items():
        values = [each[name] for each in names]
        same = all(type(value) is type(first) and value == first for value in values)
        columns[name] = first if same else np.repeat(as_column(values), counts)
    return columns


def sustained_clock_mhz(gpu: GpuSpec) -> float:
    """The clock under a full load of multiply-adds: the vendor's quoted rate where that is below boost."""
    quoted = gpu.quoted_fp32_tflops or gpu.peak_fp32_tflops
    return gpu.max_clock_mhz * min(1.0, quoted / gpu.peak_fp32_tflops)


def _resource_use(
    spec: KernelSpec, gpu: GpuSpec, columns: Columns, resources: Sequence[Resources | None]
) -> Use:
    rows = len(resources)
    threads = np.prod([_numbers(size, columns, rows) for size in spec.launch.block], axis=0)
    dynamic_smem = _numbers(spec.launch.smem, columns, rows)
    estimates = _column(columns.get("registers", REGISTERS_WHERE_UNKNOWN), rows)
    min_blocks = np.maximum(1, _cost(spec, "min_blocks", columns, rows, 1.0))
    blocks, spills, taken = np.ones(rows), np.zeros(rows), np.zeros(rows)
    seen: dict[tuple[int, int, int], int] = {}
    for row, known in enumerate(resources):
        smem_bytes = int(dynamic_smem[row])
        if known is None:
            cap = _register_cap(gpu, int(threads[row] * min_blocks[row]))
            registers = min(int(estimates[row]), cap)
            spills[row] = max(0, int(estimates[row]) - cap) ** 3 / SPILL_DIVISOR
        else:
            registers = known.registers
            smem_bytes += known.static_smem_bytes
            spills[row] = known.spill_store_bytes + known.spill_load_bytes
        taken[row] = registers
        key = (int(threads[row]), registers, smem_bytes)
        if key not in seen:
            seen[key] = max(1, occupancy(gpu, *key).blocks_per_sm)
        blocks[row] = (known.blocks_per_sm if known else None) or seen[key]
    return Use(threads, blocks, taken, spills)


def _register_cap(gpu: GpuSpec, resident_threads: int) -> int:
    """The most registers per thread with which that many threads are resident on an SM."""
    unit = gpu.register_allocation_unit // gpu.warp_size
    cap = gpu.registers_per_sm // max(1, resident_threads) // unit * unit
    return max(unit, min(gpu.max_registers_per_thread, cap))


def _step_terms(
    spec: KernelSpec, gpu: GpuSpec, work: _Work, columns: Columns, use: Use, blocks: Array
) -> StepTerms:
    rows = len(blocks)
    costs = {name: _cost(spec, name, columns, rows, 0.0) for name in spec.cost}

    def cost(name: str, default: float = 0.0) -> Array:
        return costs.get(name, np.full(rows, default))

    def same(value: float) -> Array:
        return np.full(rows, value)

    clock_hz = sustained_clock_mhz(gpu) * 1e6
    return StepTerms(
        blocks=blocks,
        blocks_per_sm=use.blocks_per_sm,
        sm_count=same(gpu.sm_count),
        warps=np.ceil(use.threads / gpu.warp_size),
        partitions=same(gpu.sm_partitions),
        warp_over_lanes=same(gpu.warp_size * gpu.sm_partitions / gpu.fp32_lanes_per_sm),
        clock_hz=same(clock_hz),
        bytes_per_cycle=same(gpu.memory_gbps * 1e9 / gpu.sm_count / clock_hz),
        memory_bytes_per_s=same(gpu.memory_gbps * 1e9),
        steps=cost("steps"),
        multiply_adds=cost("multiply_adds"),
        instructions=cost("instructions"),
        spilled_words=use.spill_bytes / 4,
        shared=_shared_wavefronts(spec, columns, costs, rows),
        fetch_bytes=cost("fetch_bytes"),
        ahead=cost("ahead", 1.0),
        stall_cycles=cost("stall_cycles"),
        output_bytes=cost("output_bytes"),
        efficiency=cost("efficiency", 1.0),
        dram_bytes=_dram_bytes(gpu, work, cost("dram_bytes")),
    )


def _dram_bytes(gpu: GpuSpec, work: _Work, declared: Array) -> Array:
    compulsory = work.compulsory_bytes
    return np.where(compulsory <= gpu.l2_bytes, compulsory, np.maximum(declared, compulsory))


def _roofline_terms(
    spec: KernelSpec, gpu: GpuSpec, work: _Work, columns: Columns, use: Use, blocks: Array
) -> RooflineTerms:
    rate = gpu.peak_fp32_tflops * sustained_clock_mhz(gpu) / gpu.max_clock_mhz * 1e12
    warps = np.ceil(use.threads / gpu.warp_size) * use.blocks_per_sm
    occupied = warps * gpu.warp_size / gpu.max_threads_per_sm
    uneven = np.ceil(blocks / gpu.sm_count) * gpu.sm_count / np.maximum(1, blocks)
    spilling = 1 + use.spill_bytes / 256
    return RooflineTerms(
        blocks=blocks,
        compute_ms=work.flops / rate * 1e3,
        memory_ms=work.compulsory_bytes / gpu.memory_gbps / 1e6,
        widening=uneven * spilling / np.minimum(1.0, occupied / WELL_OCCUPIED),
    )


def _shared_wavefronts(spec: KernelSpec, columns: Columns, costs: Mapping[str, Array], rows: int) -> Array:
    """Wavefronts of a warp's declared shared accesses in one step."""
    total = np.zeros(rows)
    for access in spec.shared_accesses:
        times = costs.get(f"times_{access.name}")
        if times is not None:
            total += times * _access_wavefronts(access, columns, rows)
    return total


def _access_wavefronts(access: SharedAccess, columns: Columns, rows: int) -> Array:
    """The access's wavefronts in each row; each combination of its names is simulated once."""
    used = sorted((access.address.names | access.width.names) - {"lane"})
    keys = list(zip(*(_listed(columns[name], rows) for name in used), strict=True)) or [()] * rows
    found = {key: _simulated(access, tuple(zip(used, key, strict=True))) for key in set(keys)}
    return np.array([found[key] for key in keys], dtype=float)


@lru_cache(maxsize=2**17)
def _simulated(access: SharedAccess, names: tuple[tuple[str, Value], ...]) -> int:
    return wavefronts(access, dict(names))


def _cost(spec: KernelSpec, name: str, columns: Columns, rows: int, default: float) -> Array:
    expression = spec.cost.get(name)
    return np.full(rows, default) if expression is None else _numbers(expression, columns, rows)


def _numbers(expression: Expression, columns: Mapping[str, Array | Value], rows: int) -> Array:
    return _column(expression.vector(columns), rows)


def _column(value: Array | Value, rows: int) -> Array:
    column: Array = np.broadcast_to(np.asarray(value, dtype=float), (rows,))
    return column


def _listed(column: Array | Value, rows: int) -> list[Value]:
    values: list[Value]
    if isinstance(column, np.ndarray):
        values = column.tolist() if column.ndim else [column.item()] * rows
    else:
        values = [column] * rows
    return values

"""What a config must satisfy, asked twice: by arithmetic before compiling, exactly once it is compiled."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune.candidate import LaunchPlan
from autotune.config import Config, Value, value_text
from autotune.errors import InputError
from autotune.expressions import Expression
from autotune.gpu import GpuSpec
from autotune.launch import array_bytes, config_names, dimensions, scratch_bytes, whole_number
from autotune.occupancy import registers_per_warp
from autotune.problem import Problem
from autotune.records import Resources
from autotune.spec.kernel_spec import KernelSpec, Rule

if TYPE_CHECKING:
    from autotune.space.search_space import SearchSpace


@dataclass(frozen=True)
class Violation:
    """One limit that a config breaks; `str` gives the rule with its numbers on one line."""

    limit: str
    """What is exceeded: a limit's name, e.g. `max_threads_per_block`, or the text of a constraint."""
    required: Value
    """What the config needs; for a constraint, the values it was asked with."""
    allowed: Value
    """The most that is there; for a constraint, what it has to be."""
    rule: str
    """The sentence behind it."""

    def __str__(self) -> str:
        return self.rule


def violations(spec: KernelSpec, gpu: GpuSpec, problem: Problem, config: Config) -> tuple[Violation, ...]:
    """What arithmetic alone shows to be wrong: values, the spec's constraints, the GPU's limits, the grid."""
    unknown = _unknown_values(spec, config)
    if unknown:
        return unknown
    try:
        names = config_names(spec, gpu, config, problem)
    except InputError as error:
        # A broken rule often leaves a derived name without a value (no threads, so nothing to divide by).
        names = _names_with_values(spec, gpu, problem, config)
        rules = [rule for rule in spec.constraints if rule.rule.names <= set(names)]
        broken = [_constraint_violation(rule, names) for rule in rules if not _holds(rule, names)]
        return tuple(broken) or (Violation("derived", "a value", "none", str(error)),)
    broken = [_constraint_violation(rule, names) for rule in spec.constraints if not _holds(rule, names)]
    if broken:
        # The limits below reckon with numbers that make sense only where the spec's own rules hold.
        return tuple(broken)
    limits = gpu_rules(spec, gpu)
    broken = [_limit_violation(limit, names) for limit in limits if not _holds(limit.rule, names)]
    return (*broken, *_launch_violations(spec, gpu, names), *_scratch_violations(spec, gpu, problem, names))


def resource_violations(gpu: GpuSpec, launch: LaunchPlan, resources: Resources) -> tuple[Violation, ...]:
    """What the compiled kernel's exact resources show to be impossible. Spilling is slow, not illegal."""
    registers = resources.registers
    static, dynamic = resources.static_smem_bytes, launch.dynamic_smem_bytes
    warps = -(-launch.threads // gpu.warp_size)
    per_warp = registers_per_warp(gpu, registers)
    # Each partition of the SM holds whole warps: it may have registers left that no warp can use.
    of_block = gpu.sm_partitions * -(-warps // gpu.sm_partitions) * per_warp
    limits = [
        _over(
            "max_threads_per_block",
            launch.threads,
            gpu.max_threads_per_block,
            f"threads per block must not exceed {gpu.name}'s",
        ),
        _over(
            "max_registers_per_thread",
            registers,
            gpu.max_registers_per_thread,
            f"registers per thread must not exceed {gpu.name}'s",
        ),
        _over(
            "registers_per_sm",
            of_block,
            gpu.registers_per_sm,
            f"a block's registers ({registers} per thread, allocated as {per_warp // gpu.warp_size},"
            f" x {launch.threads} threads = {warps} warps of {per_warp}) must fit {gpu.name}'s",
        ),
        _over(
            "smem_static_limit_bytes",
            static,
            gpu.smem_static_limit_bytes,
            "static shared memory in bytes must not exceed what a block has without opting in, the",
        ),
        _over(
            "smem_per_block_bytes",
            static + dynamic,
            gpu.smem_per_block_bytes,
            f"shared memory of a block in bytes ({static} static + {dynamic} dynamic) must not exceed"
            f" {gpu.name}'s",
        ),
    ]
    broken = tuple(violation for violation in limits if violation)
    if not broken and resources.blocks_per_sm == 0:
        rule = f"at least one block must be resident on {gpu.name}'s SM, got 0"
        return (Violation("blocks_per_sm", 0, "at least 1", rule),)
    return broken


def unpromising(
    spec: KernelSpec, gpu: GpuSpec, problem: Problem, config: Config, resources: Resources | None
) -> tuple[str, ...]:
    """Why a legal config is probably slow, one sentence per reason; exact where `resources` are known."""
    names = config_names(spec, gpu, config, problem)
    exact = resources is not None
    notes = [
        f"{rule.because} ({_values_text(rule.rule, names)})"
        for rule in spec.unpromising
        # A rule about the estimate of registers is moot once the compiler has told the number.
        if not (exact and "registers" in rule.rule.names) and _holds(rule, names)
    ]
    if resources is not None and resources.spill_store_bytes + resources.spill_load_bytes > 0:
        notes.append(
            f"spills {resources.spill_store_bytes} bytes of stores and {resources.spill_load_bytes} of loads"
            f" per thread at {resources.registers} registers"
        )
    return tuple(notes)


@dataclass(frozen=True)
class GpuRule:
    """A limit of the GPU as a rule over derived names, so that a search space can reckon with it."""

    name: str
    """The limit's field in the GPU table."""
    quantity: str
    """The derived name that it bounds."""
    allowed: int
    rule: Rule


def gpu_rules(spec: KernelSpec, gpu: GpuSpec) -> tuple[GpuRule, ...]:
    """The GPU's limits on the spec's derived names `threads` and `smem_bytes`."""
    rules = []
    if "threads" in spec.derived:
        most = gpu.max_threads_per_block
        because = f"a block has 1 to {most} threads on {gpu.name} (max_threads_per_block)"
        rule = Rule(Expression.parse(f"1 <= threads <= {most}"), because)
        rules.append(GpuRule("max_threads_per_block", "threads", most, rule))
    if "smem_bytes" in spec.derived:
        most = gpu.smem_per_block_bytes
        because = f"a block has at most {most} bytes of shared memory on {gpu.name} (smem_per_block_bytes)"
        rule = Rule(Expression.parse(f"0 <= smem_bytes <= {most}"), because)
        rules.append(GpuRule("smem_per_block_bytes", "smem_bytes", most, rule))
    return tuple(rules)


def search_space(spec: KernelSpec, gpu: GpuSpec, problem: Problem | None = None) -> SearchSpace:
    """The legal configs of a spec on a GPU; without a problem, those that are legal for some problem."""
    from autotune.space.search_space import SearchSpace

    rules = [*spec.constraints, *(limit.rule for limit in gpu_rules(spec, gpu))]
    constants: dict[str, Value] = dict(gpu.names())
    if problem is None:
        of_problem = {*spec.problem.sizes, *(kind.name for kind in spec.problem.classes)}
        rules = [rule for rule in rules if not rule.rule.names & of_problem]
    else:
        constants.update(problem.names())
        # A grid that depends on no parameter is the same for every config; violations() reports it.
        rules += [
            rule
            for rule in [*_grid_rules(spec, gpu), *_scratch_rules(spec, gpu, problem)]
            if rule.rule.names - set(constants)
        ]
    return SearchSpace(spec.parameters, rules, spec.derived, constants)


def nearest_legal(space: SearchSpace, config: Config) -> Config:
    """The legal config that differs from `config` in the fewest parameters, by the fewest steps.

    Values that the space does not have, and names it does not know, are left aside. Raises NothingFound where
    no config is legal.
    """
    if config in space:
        return config
    known = {parameter.name for parameter in space.parameters}
    return space.nearest({name: value for name, value in config.items() if name in known})


def _grid_rules(spec: KernelSpec, gpu: GpuSpec) -> list[Rule]:
    return [
        Rule(
            Expression.parse(f"({size.text}) <= {most}", size.where),
            f"a grid has at most {most} blocks along {axis} on {gpu.name}",
        )
        for size, most, axis in zip(spec.launch.grid, gpu.max_grid, "xyz", strict=False)
    ]


def _scratch_rules(spec: KernelSpec, gpu: GpuSpec, problem: Problem) -> list[Rule]:
    known = {*spec.parameter_names, *spec.derived, *gpu.names(), *problem.names()}
    if spec.scratch is None or not spec.scratch.bytes.names <= known:
        return []  # what variants have a part in, violations() alone can tell
    size, most = spec.scratch.bytes, max(0, gpu.memory_bytes - array_bytes(spec, problem))
    because = f"scratch memory beside the arrays has at most {most} bytes on {gpu.name}"
    return [Rule(Expression.parse(f"({size.text}) <= {most}", size.where), because)]


def _unknown_values(spec: KernelSpec, config: Config) -> tuple[Violation, ...]:
    found = []
    for parameter in spec.parameters:
        texts = [value_text(value) for value in parameter.values]
        if parameter.name not in config:
            rule = f"{parameter.name} must be given, one of {', '.join(texts)}"
            found.append(Violation(parameter.name, "nothing", " ".join(texts), rule))
        elif not any(
            type(value) is type(config[parameter.name]) and value == config[parameter.name]
            for value in parameter.values
        ):
            got = value_text(config[parameter.name])
            rule = f"{parameter.name} must be one of {', '.join(texts)}, got {got}"
            found.append(Violation(parameter.name, got, " ".join(texts), rule))
    extra = [name for name in config if name not in spec.parameter_names]
    known = ", ".join(spec.parameter_names)
    found += [Violation(name, name, known, f"{name} is not a parameter ({known})") for name in extra]
    return tuple(found)


def _names_with_values(spec: KernelSpec, gpu: GpuSpec, problem: Problem, config: Config) -> dict[str, Value]:
    names: dict[str, Value] = {**gpu.names(), **problem.names(), **config}
    for name, expression in spec.derived.items():
        with suppress(InputError):
            names[name] = expression.evaluate(names)
    return names


def _holds(rule: Rule, names: Mapping[str, Value]) -> bool:
    try:
        return bool(rule.rule.evaluate(names))
    except InputError:
        return False


def _constraint_violation(rule: Rule, names: Mapping[str, Value]) -> Violation:
    values = _values_text(rule.rule, names)
    because = f"{rule.because}{_place(rule.where)}"
    return Violation(rule.rule.text, values, "true", f"{rule.rule.text} must hold, got {values}: {because}")


def _place(where: str) -> str:
    return f" [{where}]" if where else ""


def _limit_violation(limit: GpuRule, names: Mapping[str, Value]) -> Violation:
    required = names[limit.quantity]
    sentence = f"{limit.quantity} is {required}, but {limit.rule.because}"
    return Violation(limit.name, required, limit.allowed, sentence)


def _launch_violations(spec: KernelSpec, gpu: GpuSpec, names: Mapping[str, Value]) -> tuple[Violation, ...]:
    grid = dimensions(spec.launch.grid, names, "launch.grid")
    block = dimensions(spec.launch.block, names, "launch.block")
    threads = block[0] * block[1] * block[2]
    smem_bytes = whole_number(spec.launch.smem, names, "launch.smem")
    found = [
        _over("max_grid", size, most, f"blocks along {axis} must not exceed {gpu.name}'s")
        for axis, size, most in zip("xyz", grid, gpu.max_grid, strict=True)
    ]
    # What the spec gives as derived names is bounded by gpu_rules(), unless the launch uses something else.
    if names.get("threads") != threads or "threads" not in spec.derived:
        rule = f"threads per block must not exceed {gpu.name}'s"
        found.append(_over("max_threads_per_block", threads, gpu.max_threads_per_block, rule))
    if names.get("smem_bytes") != smem_bytes or "smem_bytes" not in spec.derived:
        rule = f"dynamic shared memory of a block in bytes must not exceed {gpu.name}'s"
        found.append(_over("smem_per_block_bytes", smem_bytes, gpu.smem_per_block_bytes, rule))
    if threads == 0:
        found.append(Violation("threads", 0, "at least 1", "a block must have at least 1 thread, got 0"))
    if threads <= gpu.max_threads_per_block:
        found += [
            _over("max_block", size, most, f"threads along {axis} must not exceed {gpu.name}'s")
            for axis, size, most in zip("xyz", block, gpu.max_block, strict=True)
        ]
    return tuple(violation for violation in found if violation)


def _scratch_violations(
    spec: KernelSpec, gpu: GpuSpec, problem: Problem, names: Mapping[str, Value]
) -> tuple[Violation, ...]:
    if spec.scratch is None:
        return ()
    needed, arrays = scratch_bytes(spec, names), array_bytes(spec, problem)
    key = f"arguments.{spec.scratch.name}.bytes{_place(spec.scratch.bytes.where)}"
    rule = f"scratch memory in bytes, {key}, must fit beside {arrays} of the arrays into {gpu.name}'s"
    over = _over("memory_bytes", needed, gpu.memory_bytes - arrays, rule) if needed else None
    return (over,) if over else ()


def _over(limit: str, required: int, allowed: int, rule: str) -> Violation | None:
    if required <= allowed:
        return None
    return Violation(limit, required, allowed, f"{rule} {limit}: needs {required}, at most {allowed}")


def _values_text(expression: Expression, names: Mapping[str, Value]) -> str:
    return ", ".join(
        f"{name}={value_text(names[name])}" for name in sorted(expression.names) if name in names
    )

"""What a config must satisfy, asked twice: by arithmetic before compiling, exactly once it is compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune.candidate import LaunchPlan
from autotune.config import Config, Value, value_text
from autotune.errors import InputError
from autotune.expressions import Expression
from autotune.gpu import GpuSpec
from autotune.launch import config_names, dimensions, whole_number
from autotune.occupancy import registers_per_warp, smem_per_block_taken
from autotune.problem import Problem
from autotune.records import Resources
from autotune.spec import KernelSpec, Rule

if TYPE_CHECKING:
    from autotune.space import SearchSpace


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
        return (Violation("derived", "a value", "none", str(error)),)
    broken = [_constraint_violation(rule, names) for rule in spec.constraints if not _holds(rule, names)]
    if broken:
        # The limits below reckon with numbers that make sense only where the spec's own rules hold.
        return tuple(broken)
    limits = gpu_rules(spec, gpu)
    broken = [_limit_violation(limit, gpu, names) for limit in limits if not _holds(limit.rule, names)]
    return tuple(broken) + _launch_violations(spec, gpu, names)


def resource_violations(gpu: GpuSpec, launch: LaunchPlan, resources: Resources) -> tuple[Violation, ...]:
    """What the compiled kernel's exact resources show to be impossible. Spilling is slow, not illegal."""
    found = []
    warps = -(-launch.threads // gpu.warp_size)
    if resources.registers > gpu.max_registers_per_thread:
        found.append(
            _over(
                "max_registers_per_thread",
                resources.registers,
                gpu.max_registers_per_thread,
                f"registers per thread must not exceed {gpu.name}'s",
            )
        )
    else:
        # Each partition of the SM holds whole warps: it may have registers left that no warp can use.
        per_warp = registers_per_warp(gpu, resources.registers)
        needed = gpu.sm_partitions * -(-warps // gpu.sm_partitions) * per_warp
        found.append(
            _over(
                "registers_per_sm",
                needed,
                gpu.registers_per_sm,
                f"a block's registers ({resources.registers} per thread, allocated as"
                f" {per_warp // gpu.warp_size}, x {launch.threads} threads = {warps} warps of {per_warp})"
                f" must fit {gpu.name}'s SM",
            )
        )
    static, dynamic = resources.static_smem_bytes, launch.dynamic_smem_bytes
    found.append(
        _over(
            "smem_static_limit_bytes",
            static,
            gpu.smem_static_limit_bytes,
            "static shared memory in bytes must not exceed what a block has without opting in",
        )
    )
    total = f"shared memory of a block in bytes ({static} static + {dynamic} dynamic)"
    found.append(
        _over(
            "smem_per_block_bytes",
            static + dynamic,
            gpu.smem_per_block_bytes,
            f"{total} must not exceed {gpu.name}'s",
        )
    )
    found.append(
        _over(
            "smem_per_sm_bytes",
            smem_per_block_taken(gpu, static + dynamic),
            gpu.smem_per_sm_bytes,
            f"{total}, rounded up and with {gpu.smem_reserved_bytes} reserved, must fit {gpu.name}'s SM",
        )
    )
    found.append(
        _over(
            "max_threads_per_block",
            launch.threads,
            gpu.max_threads_per_block,
            f"threads per block must not exceed {gpu.name}'s",
        )
    )
    return tuple(violation for violation in found if violation)


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
    rule: Rule


def gpu_rules(spec: KernelSpec, gpu: GpuSpec) -> tuple[GpuRule, ...]:
    """The GPU's limits on the spec's derived names `threads` and `smem_bytes`."""
    rules = []
    if "threads" in spec.derived:
        most = gpu.max_threads_per_block
        rules.append(
            _gpu_rule("max_threads_per_block", "threads", f"1 <= threads <= {most}", "a block has", gpu)
        )
    if "smem_bytes" in spec.derived:
        most = min(gpu.smem_per_block_bytes, gpu.smem_per_sm_bytes - gpu.smem_reserved_bytes)
        rules.append(
            _gpu_rule("smem_per_block_bytes", "smem_bytes", f"smem_bytes <= {most}", "a block shares", gpu)
        )
    return tuple(rules)


def search_space(spec: KernelSpec, gpu: GpuSpec, problem: Problem | None = None) -> SearchSpace:
    """The legal configs of a spec on a GPU; without a problem, those that are legal for some problem."""
    from autotune.space import SearchSpace

    rules = [*spec.constraints, *(limit.rule for limit in gpu_rules(spec, gpu))]
    constants: dict[str, Value] = dict(gpu.names())
    if problem is None:
        of_problem = {*spec.problem.sizes, *(kind.name for kind in spec.problem.classes)}
        rules = [rule for rule in rules if not rule.rule.names & of_problem]
    else:
        constants.update(problem.names())
        # A grid that depends on no parameter is the same for every config; violations() reports it.
        rules += [rule for rule in _grid_rules(spec, gpu) if rule.rule.names - set(constants)]
    return SearchSpace(spec.parameters, rules, spec.derived, constants)


def nearest_legal(space: SearchSpace, config: Config) -> Config:
    """A legal config near `config`, improved until no neighbour is nearer; `config` itself where legal."""
    if config in space:
        return config
    repaired = space.repair(config)
    best, best_distance = repaired, _distance(space, config, repaired)
    improved = True
    while improved:
        improved = False
        for neighbour in space.neighbours(best):
            distance = _distance(space, config, neighbour)
            if distance < best_distance:
                best, best_distance, improved = neighbour, distance, True
    return best


def _gpu_rule(limit: str, quantity: str, text: str, because: str, gpu: GpuSpec) -> GpuRule:
    unit = "threads" if quantity == "threads" else "bytes of shared memory"
    most = text.rsplit(" ", 1)[1]
    sentence = f"{because} at most {most} {unit} on {gpu.name} ({limit})"
    return GpuRule(limit, quantity, Rule(Expression.parse(text), sentence))


def _grid_rules(spec: KernelSpec, gpu: GpuSpec) -> list[Rule]:
    return [
        Rule(
            Expression.parse(f"({size.text}) <= {most}", size.where),
            f"a grid has at most {most} blocks along {axis} on {gpu.name}",
        )
        for size, most, axis in zip(spec.launch.grid, gpu.max_grid, "xyz", strict=False)
    ]


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


def _holds(rule: Rule, names: Mapping[str, Value]) -> bool:
    try:
        return bool(rule.rule.evaluate(names))
    except InputError:
        return False


def _constraint_violation(rule: Rule, names: Mapping[str, Value]) -> Violation:
    values = _values_text(rule.rule, names)
    place = f" [{rule.where}]" if rule.where else ""
    return Violation(
        rule.rule.text, values, "true", f"{rule.rule.text} must hold, got {values}: {rule.because}{place}"
    )


def _limit_violation(limit: GpuRule, gpu: GpuSpec, names: Mapping[str, Value]) -> Violation:
    required = names[limit.quantity]
    allowed = getattr(gpu, limit.name)
    return Violation(
        limit.name, required, allowed, f"{limit.quantity} = {required}, but {limit.rule.because}"
    )


def _launch_violations(spec: KernelSpec, gpu: GpuSpec, names: Mapping[str, Value]) -> tuple[Violation, ...]:
    grid = dimensions(spec.launch.grid, names, "launch.grid")
    block = dimensions(spec.launch.block, names, "launch.block")
    found = [
        _over(f"max_{what}", size, most, f"{what} dimension {axis} must not exceed {gpu.name}'s")
        for what, sizes, limits in (("grid", grid, gpu.max_grid), ("block", block, gpu.max_block))
        for axis, size, most in zip("xyz", sizes, limits, strict=True)
    ]
    threads = block[0] * block[1] * block[2]
    smem_bytes = whole_number(spec.launch.smem, names, "launch.smem")
    rule = f"dynamic shared memory of a block in bytes must not exceed {gpu.name}'s"
    if "smem_bytes" not in spec.derived:
        found.append(_over("smem_per_block_bytes", smem_bytes, gpu.smem_per_block_bytes, rule))
    if "threads" not in spec.derived:
        rule = f"threads per block must not exceed {gpu.name}'s"
        found.append(_over("max_threads_per_block", threads, gpu.max_threads_per_block, rule))
    if threads == 0:
        found.append(Violation("threads", 0, "at least 1", "a block must have at least 1 thread, got 0"))
    return tuple(violation for violation in found if violation)


def _over(limit: str, required: int, allowed: int, rule: str) -> Violation | None:
    if required <= allowed:
        return None
    return Violation(limit, required, allowed, f"{rule} {limit}: needs {required}, has {allowed}")


def _values_text(expression: Expression, names: Mapping[str, Value]) -> str:
    return ", ".join(
        f"{name}={value_text(names[name])}" for name in sorted(expression.names) if name in names
    )


def _distance(space: SearchSpace, wanted: Config, found: Config) -> tuple[int, int]:
    """How many parameters differ, then by how many steps of their value lists."""
    differing = steps = 0
    for parameter in space.parameters:
        have, want = found[parameter.name], wanted.get(parameter.name)
        if value_text(have) == (None if want is None else value_text(want)):
            continue
        differing += 1
        values = [value_text(value) for value in parameter.values]
        known = want is not None and value_text(want) in values
        steps += abs(values.index(value_text(have)) - values.index(value_text(want))) if known else 1  # type: ignore[arg-type]
    return differing, steps

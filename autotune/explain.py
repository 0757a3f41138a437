"""The numbers behind one config: what it takes of an SM, how it fills the GPU, how fast it could be."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from autotune.banks import AccessCost, access_costs
from autotune.candidate import Candidate
from autotune.config import Config
from autotune.errors import NothingFound
from autotune.launch import config_names, plan_launch
from autotune.legality import (
    Violation,
    nearest_legal,
    resource_violations,
    search_space,
    unpromising,
    violations,
)
from autotune.model import REGISTERS_WHERE_UNKNOWN, predict_ms
from autotune.occupancy import Occupancy, occupancy, with_occupancy
from autotune.problems import bytes_moved, flops
from autotune.records import Resources


@dataclass(frozen=True)
class Roofline:
    """The least time a problem can take on a GPU, whatever the kernel."""

    flops: float
    bytes: float
    """Compulsory traffic: each input read once, each output written once."""
    boost_ms: float
    """Its flops at the GPU's highest clock."""
    quoted_ms: float | None
    """Its flops at the rate that is quoted for the GPU; None where none is."""
    memory_ms: float
    """Its bytes at the peak bandwidth."""

    @property
    def intensity(self) -> float:
        """Flops per byte."""
        return self.flops / self.bytes if self.bytes else 0.0

    @property
    def floor_ms(self) -> float:
        """What bounds the time from below: the larger of the flops at boost and the bytes."""
        return max(self.boost_ms, self.memory_ms)

    @property
    def bound_by(self) -> str:
        """`compute` or `memory`."""
        return "compute" if self.boost_ms >= self.memory_ms else "memory"


@dataclass(frozen=True)
class Use:
    """What a config takes of the GPU, and how evenly."""

    threads: int
    """Per block."""
    blocks: int
    """In the grid."""
    dynamic_smem_bytes: int
    static_smem_bytes: int
    registers: int
    """Per thread."""
    registers_exact: bool
    """True where the compiler told them, False for an estimate."""
    spill_bytes: int
    """Loads and stores per thread; zero where not compiled."""
    occupancy: Occupancy
    waves: float
    """Blocks over what all SMs hold at once."""
    wave_efficiency: float
    """How full the waves are on average, 0 to 1: 1.01 waves take as long as 2."""
    tile_efficiency: float | None
    """Useful over executed multiply-adds, 0 to 1; None where the spec declares no cost."""
    accesses: tuple[AccessCost, ...]
    """Shared-memory wavefronts of each declared access."""


@dataclass(frozen=True)
class Explanation:
    """Everything known of a candidate without running it."""

    candidate: Candidate
    roofline: Roofline
    violations: tuple[Violation, ...]
    nearest: Config | None
    """A legal config close by, where this one is not legal by arithmetic and there is any."""
    use: Use | None
    """None where the config is illegal by arithmetic: it has no launch."""
    notes: tuple[str, ...]
    """Why it is probably slow."""
    predicted_ms: float | None
    """None where illegal."""

    @property
    def legal(self) -> bool:
        """Whether it breaks nothing that is known so far."""
        return not self.violations


def explain(candidate: Candidate, resources: Resources | None = None) -> Explanation:
    """The candidate's numbers; exact where the compiled kernel's `resources` are given, else estimated."""
    spec, gpu, problem, config = candidate.spec, candidate.gpu, candidate.problem, candidate.config
    broken = violations(spec, gpu, problem, config)
    if broken:
        try:
            nearest = nearest_legal(search_space(spec, gpu, problem), config)
        except NothingFound:
            nearest = None
        return Explanation(candidate, roofline(candidate), broken, nearest, None, (), None)
    use = _use(candidate, resources)
    if resources is not None:
        launch = plan_launch(spec, problem, config, gpu)
        broken = resource_violations(gpu, launch, with_occupancy(resources, launch, gpu))
    return Explanation(
        candidate=candidate,
        roofline=roofline(candidate),
        violations=broken,
        nearest=None,
        use=use,
        notes=unpromising(spec, gpu, problem, config, resources),
        predicted_ms=None if broken else predict_ms(candidate, resources),
    )


def roofline(candidate: Candidate) -> Roofline:
    """The bounds of the candidate's problem on its GPU."""
    gpu = candidate.gpu
    work = flops(candidate.spec, candidate.problem)
    traffic = bytes_moved(candidate.spec, candidate.problem)
    return Roofline(
        flops=work,
        bytes=traffic,
        boost_ms=work / (gpu.peak_fp32_tflops * 1e9),
        quoted_ms=work / (gpu.quoted_fp32_tflops * 1e9) if gpu.quoted_fp32_tflops else None,
        memory_ms=traffic / (gpu.memory_gbps * 1e6),
    )


def _use(candidate: Candidate, resources: Resources | None) -> Use:
    spec, gpu, problem = candidate.spec, candidate.gpu, candidate.problem
    names = config_names(spec, gpu, candidate.config, problem)
    launch = plan_launch(spec, problem, candidate.config, gpu)
    estimate = names.get("registers", REGISTERS_WHERE_UNKNOWN)
    assert isinstance(estimate, int | float)
    registers = resources.registers if resources else min(ceil(estimate), gpu.max_registers_per_thread)
    static = resources.static_smem_bytes if resources else 0
    resident = occupancy(gpu, launch.threads, registers, static + launch.dynamic_smem_bytes)
    blocks = prod(launch.grid)
    slots = gpu.sm_count * resident.blocks_per_sm
    waves = blocks / slots if slots else 0.0
    return Use(
        threads=launch.threads,
        blocks=blocks,
        dynamic_smem_bytes=launch.dynamic_smem_bytes,
        static_smem_bytes=static,
        registers=registers,
        registers_exact=resources is not None,
        spill_bytes=resources.spill_store_bytes + resources.spill_load_bytes if resources else 0,
        occupancy=resident,
        waves=waves,
        wave_efficiency=waves / ceil(waves) if waves else 0.0,
        tile_efficiency=_tile_efficiency(candidate, launch.threads * blocks),
        accesses=access_costs(spec, names),
    )


def _tile_efficiency(candidate: Candidate, threads: int) -> float | None:
    spec, problem = candidate.spec, candidate.problem
    if not spec.cost:
        return None
    names = config_names(spec, candidate.gpu, candidate.config, problem)
    per_step, steps = (spec.cost[name].evaluate(names) for name in ("multiply_adds", "steps"))
    assert isinstance(per_step, int | float)
    assert isinstance(steps, int | float)
    executed = 2 * threads * per_step * steps
    # Scaling the output adds a few flops outside of the steps.
    return min(1.0, flops(spec, problem) / executed) if executed else None

"""How much a configuration moves and computes, counted from its spec's `cost`, and which unit that keeps busiest.

Global memory is counted in what a block's loads and stores ask for, before any cache; shared memory in what all
lanes ask for, words that several share included. Neither is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from autotune.banks import wavefronts
from autotune.candidate import Candidate
from autotune.launch import config_names, plan_launch
from autotune.model import DRAM_SHARE, L2_BYTES_PER_CYCLE_PER_SM, sustained_clock_mhz
from autotune.problems import bytes_moved, flops

WORD_BYTES = 4
BUSY = 0.6
"""A unit that needs less than this share of the time by itself does not explain it: then waits do."""


@dataclass(frozen=True)
class Counts:
    """Totals of one call."""

    flops: float
    """Of the problem, without what tiles compute beyond its edges."""
    global_bytes: float
    shared_bytes: float
    unit_ms: Mapping[str, float]
    """The least time that each unit of the GPU needs for its part, were it alone."""

    def busiest(self, time_ms: float) -> tuple[str, float]:
        """The unit that needs the largest share of this time, and the share."""
        name = max(self.unit_ms, key=lambda unit: self.unit_ms[unit])
        return name, self.unit_ms[name] / time_ms

    def limiter(self, time_ms: float, occupancy: float, occupancy_limiter: str) -> str:
        """What the time is spent on: the busiest unit, or waits that too few warps hide."""
        name, share = self.busiest(time_ms)
        if share >= BUSY:
            return f"{name} {share:.0%}"
        return f"latency ({occupancy:.0%} occupied, {occupancy_limiter}; {name} {share:.0%})"


def count(candidate: Candidate) -> Counts | None:
    """The candidate's totals; None where its spec declares no cost."""
    spec, gpu, problem = candidate.spec, candidate.gpu, candidate.problem
    if not spec.cost:
        return None
    names = config_names(spec, gpu, candidate.config, problem)

    def cost(name: str) -> float:
        value = spec.cost[name].evaluate(names) if name in spec.cost else 0
        assert isinstance(value, int | float), name
        return float(value)

    launch = plan_launch(spec, problem, candidate.config, gpu)
    blocks = prod(launch.grid)
    warps = -(-launch.threads // gpu.warp_size)
    rounds = cost("steps") * blocks
    requests, fronts = 0.0, 0.0
    for access in spec.shared_accesses:
        times = cost(f"times_{access.name}") * warps * rounds
        width = access.width.evaluate(names)
        assert isinstance(width, int), access.name
        requests += times * gpu.warp_size * width * WORD_BYTES
        fronts += times * wavefronts(access, names)
    fetched = cost("fetch_bytes") * rounds
    written = cost("output_bytes") * blocks
    multiply_adds = cost("multiply_adds") * rounds
    per_ms = gpu.sm_count * sustained_clock_mhz(gpu) * 1e3  # cycles of all SMs
    return Counts(
        flops=flops(spec, problem),
        global_bytes=fetched + written,
        shared_bytes=requests,
        unit_ms={
            "multiply-adds": multiply_adds * launch.threads / gpu.fp32_lanes_per_sm / per_ms,
            "issue": (multiply_adds + cost("instructions") * rounds) * warps / gpu.sm_partitions / per_ms,
            "shared memory": fronts / per_ms,
            "L1 and L2": fetched / L2_BYTES_PER_CYCLE_PER_SM / per_ms,
            "device memory": bytes_moved(spec, problem) / (gpu.memory_gbps * 1e6 * DRAM_SHARE),
        },
    )

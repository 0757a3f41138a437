"""Physical constants of the closed form: defaults set on one H200, and the same fitted to measurements."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from autotune.columns import Array

LAUNCH_MS = 0.002
"""Shortest time between two kernels of a replayed graph."""
FETCH_LATENCY_NS = 350.0
"""From asking for data in device memory to having it."""
BARRIER_CYCLES = 40.0
L2_BYTES_PER_CYCLE_PER_SM = 24.0
"""With all SMs asking."""
DRAM_SHARE = 0.9
"""Of the peak bandwidth, what a copy reaches."""
SMOOTHING = 4.0
"""Exponent to add the times of units that work side by side: near ties do not overlap wholly."""


@dataclass(frozen=True)
class Constants:
    """What the closed form reckons with; all positive."""

    launch_ms: float = LAUNCH_MS
    latency_ns: float = FETCH_LATENCY_NS
    barrier_cycles: float = BARRIER_CYCLES
    l2_bytes_per_cycle: float = L2_BYTES_PER_CYCLE_PER_SM
    """Per SM."""
    dram_share: float = DRAM_SHARE
    smoothing: float = SMOOTHING
    block_latencies: float = 2.0
    """How many latencies a block takes to begin and to end."""
    instruction_weight: float = 1.0
    """Issue slots of a declared instruction."""
    shared_weight: float = 1.0
    """Cycles of a wavefront of shared memory."""
    stall_weight: float = 1.0
    """Of the declared `stall_cycles`."""
    output_weight: float = 1.0
    """Of the declared `output_bytes`."""
    efficiency: float = 1.0
    """Share of the rate that is left by what is not modelled, times the declared one."""

    @classmethod
    def scaled(cls, logs: Array) -> Constants:
        """The defaults, each multiplied by the exponential of its entry."""
        default = cls()
        names = [field.name for field in fields(cls)]
        factors = np.exp(logs)
        return cls(
            **{
                name: float(getattr(default, name) * factor)
                for name, factor in zip(names, factors, strict=True)
            }
        )


CONSTANT_NAMES = tuple(field.name for field in fields(Constants))

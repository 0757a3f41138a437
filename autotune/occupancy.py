"""How many blocks an SM holds at once, and which of its limits decides that.

The formula is that of NVIDIA's occupancy calculator; for every compiled kernel it gives what the driver's own
occupancy call gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil

from autotune.candidate import LaunchPlan
from autotune.gpu import GpuSpec
from autotune.records import Resources


@dataclass(frozen=True)
class Occupancy:
    """Resident blocks and warps of one SM."""

    blocks_per_sm: int
    limiter: str
    """What stops one more block; every limit that ties, e.g. `threads, registers`."""
    warps: int
    """Resident warps per SM."""
    max_warps: int
    limits: Mapping[str, int]
    """Blocks per SM that each limit alone would allow."""

    @property
    def fraction(self) -> float:
        """Resident warps over the most an SM can hold, 0 to 1."""
        return self.warps / self.max_warps


def occupancy(gpu: GpuSpec, threads: int, registers: int, smem_bytes: int) -> Occupancy:
    """Blocks per SM for blocks of `threads` with `registers` each and `smem_bytes` (static and dynamic).

    Zero blocks where a single one exceeds a limit.
    """
    warps = max(1, ceil(threads / gpu.warp_size))
    limits = {
        "threads": gpu.max_threads_per_sm // (warps * gpu.warp_size)
        if threads <= gpu.max_threads_per_block
        else 0,
        "registers": resident_warps_by_registers(gpu, registers) // warps,
        "blocks": gpu.max_blocks_per_sm,
    }
    smem_taken = smem_per_block_taken(gpu, smem_bytes)
    if smem_bytes > gpu.smem_per_block_bytes:
        limits["shared memory"] = 0
    elif smem_taken > 0:
        limits["shared memory"] = gpu.smem_per_sm_bytes // smem_taken
    blocks = min(limits.values())
    limiter = ", ".join(name for name, limit in limits.items() if limit == blocks)
    return Occupancy(blocks, limiter, blocks * warps, gpu.max_threads_per_sm // gpu.warp_size, limits)


def resident_warps_by_registers(gpu: GpuSpec, registers: int) -> int:
    """Warps of `registers` per thread that an SM's register files hold; each partition holds whole warps."""
    if registers > gpu.max_registers_per_thread:
        return 0
    per_partition = gpu.registers_per_sm // gpu.sm_partitions
    return gpu.sm_partitions * (per_partition // registers_per_warp(gpu, registers))


def registers_per_warp(gpu: GpuSpec, registers: int) -> int:
    """Registers one warp takes: `registers` per thread, rounded up to whole allocation units."""
    return gpu.register_allocation_unit * max(
        1, ceil(registers * gpu.warp_size / gpu.register_allocation_unit)
    )


def smem_per_block_taken(gpu: GpuSpec, smem_bytes: int) -> int:
    """Shared memory one resident block takes of its SM: rounded up, plus what the system keeps per block."""
    unit = gpu.smem_allocation_unit_bytes
    return ceil(smem_bytes / unit) * unit + gpu.smem_reserved_bytes


def with_occupancy(resources: Resources, launch: LaunchPlan, gpu: GpuSpec) -> Resources:
    """The compiler's resources, completed by the launch's dynamic shared memory and the blocks per SM."""
    smem_bytes = resources.static_smem_bytes + launch.dynamic_smem_bytes
    found = occupancy(gpu, launch.threads, resources.registers, smem_bytes)
    return replace(resources, dynamic_smem_bytes=launch.dynamic_smem_bytes, blocks_per_sm=found.blocks_per_sm)

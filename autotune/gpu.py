"""GPU tables: what a configuration has to fit into, and what the performance model reckons with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.config import Value
from autotune.records import DeviceIdentity


@dataclass(frozen=True)
class GpuSpec:
    """One kind of GPU, from `configs/gpus/*.yaml` or from the device's own properties."""

    table: str
    """Short name, e.g. `a6000`."""
    name: str
    """The CUDA name, e.g. `NVIDIA RTX A6000`."""
    compute_capability: tuple[int, int]
    sm_count: int
    fp32_lanes_per_sm: int
    max_clock_mhz: int
    """The highest SM clock the board reaches (boost)."""
    memory_bytes: int
    memory_gbps: float
    """Peak device-memory bandwidth, 1e9 bytes per second."""
    l2_bytes: int
    smem_per_sm_bytes: int
    smem_per_block_bytes: int
    """The largest a block can have, after opting in."""
    smem_reserved_bytes: int
    """Taken by the system from each resident block's share."""
    registers_per_sm: int
    max_registers_per_thread: int
    max_threads_per_sm: int
    max_threads_per_block: int
    max_blocks_per_sm: int
    aliases: tuple[str, ...] = ()
    mig_profile: str = ""
    quoted_fp32_tflops: float | None = None
    """The vendor's round figure where it differs from lanes x clock."""

    smem_static_limit_bytes: int = 48 * 1024
    """What a block has without opting in; static shared memory stops here on every CUDA device."""
    smem_allocation_unit_bytes: int = 128
    """A block's shared memory is rounded up to a multiple of this."""
    register_allocation_unit: int = 256
    """Registers are handed to whole warps in multiples of this."""
    sm_partitions: int = 4
    """Parts of an SM with a register file each; a warp lives in one of them."""
    warp_size: int = 32
    max_grid: tuple[int, int, int] = (2**31 - 1, 65_535, 65_535)
    max_block: tuple[int, int, int] = (1024, 1024, 64)

    @property
    def arch(self) -> str:
        """Compiler target, e.g. `sm_86`."""
        return f"sm_{self.compute_capability[0]}{self.compute_capability[1]}"

    @property
    def peak_fp32_tflops(self) -> float:
        """SMs x lanes x 2 x maximum clock."""
        return self.sm_count * self.fp32_lanes_per_sm * 2 * self.max_clock_mhz * 1e6 / 1e12

    @property
    def identity(self) -> DeviceIdentity:
        """What records about boards of this kind say of the device."""
        major, minor = self.compute_capability
        return DeviceIdentity(
            self.table, self.name, f"{major}.{minor}", self.sm_count, self.memory_bytes, self.mig_profile
        )

    def names(self) -> Mapping[str, Value]:
        """What expressions in a spec may ask of the GPU."""
        return {
            "compute_capability": self.compute_capability[0] * 10 + self.compute_capability[1],
            "sm_count": self.sm_count,
            "smem_per_block_bytes": self.smem_per_block_bytes,
            "smem_per_sm_bytes": self.smem_per_sm_bytes,
            "max_threads_per_block": self.max_threads_per_block,
            "max_registers_per_thread": self.max_registers_per_thread,
            "registers_per_sm": self.registers_per_sm,
            "l2_bytes": self.l2_bytes,
        }

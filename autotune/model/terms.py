"""What the closed form takes for each configuration, apart from its constants; and its time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Protocol, TypeVar

import numpy as np

from autotune.columns import Array
from autotune.model.constants import Constants

Kind = TypeVar("Kind", bound="StepTerms | RooflineTerms")


class Terms(Protocol):
    """Columns with a row for each configuration."""

    def __len__(self) -> int:
        """The number of rows."""
        ...

    def time_ms(self, constants: Constants) -> Array:
        """Time of one call in ms."""
        ...

    def parts(self, constants: Constants) -> dict[str, Array]:
        """What takes the time, by name, in one unit: only their ratios mean anything."""
        ...

    def least_ms(self) -> Array:
        """Time in ms that no launch can take less than at the sustained clock; 0 where nothing says so."""
        ...


@dataclass(frozen=True)
class StepTerms:
    """For kernels that declare `cost`: blocks run steps one after another."""

    blocks: Array
    blocks_per_sm: Array
    sm_count: Array
    warps: Array
    """Of a block."""
    partitions: Array
    warp_over_lanes: Array
    """Cycles in which a partition multiplies and adds once for all lanes of a warp."""
    clock_hz: Array
    bytes_per_cycle: Array
    """Peak bandwidth of device memory per SM and cycle."""
    memory_bytes_per_s: Array
    steps: Array
    multiply_adds: Array
    instructions: Array
    spilled_words: Array
    shared: Array
    """Wavefronts of a warp in one step, without spills."""
    fetch_bytes: Array
    ahead: Array
    stall_cycles: Array
    output_bytes: Array
    efficiency: Array
    dram_bytes: Array

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.blocks)

    def time_ms(self, constants: Constants) -> Array:
        """Blocks run in waves over the SMs; device memory and the launch bound the whole from below."""
        slots = self.sm_count * self.blocks_per_sm
        full_waves, left = np.divmod(self.blocks, slots)
        cycles = full_waves * self._block_cycles(self.blocks_per_sm, constants)
        resident = np.ceil(left / self.sm_count)
        cycles += np.where(left > 0, self._block_cycles(resident, constants), 0.0)
        # No more than the declared share of what is not modelled can be won back.
        efficiency = np.minimum(1.0, self.efficiency * constants.efficiency)
        compute_ms = cycles / efficiency / self.clock_hz * 1e3
        dram_ms = self.dram_bytes / (self.memory_bytes_per_s * np.minimum(1.0, constants.dram_share)) * 1e3
        busy = overlapped(constants.smoothing, compute_ms, dram_ms)
        return np.asarray(constants.launch_ms + np.where(self.blocks > 0, busy, 0.0))

    def parts(self, constants: Constants) -> dict[str, Array]:
        """Cycles of one SM with as many blocks as it holds, in one step."""
        count = np.minimum(self.blocks_per_sm, np.ceil(self.blocks / self.sm_count))
        issue, shared, fetch = self._throughput(count, constants)
        warps = count * self.warps / self.partitions
        return {
            "issue": issue,
            "multiply_adds": np.ceil(warps) * self.multiply_adds * self.warp_over_lanes,
            "shared": shared,
            "fetch": fetch,
            "latency": self._latency(constants) / np.maximum(self.ahead, 0.5),
            "output": count * self.output_bytes / self.bytes_per_cycle / np.maximum(1, self.steps),
            "own": self._busy(constants) + self.stall_cycles * constants.stall_weight,
        }

    def least_ms(self) -> Array:
        """The declared multiply-adds alone, spread evenly over all lanes of the GPU."""
        lanes = self.sm_count * self.partitions / self.warp_over_lanes
        return np.asarray(
            self.blocks * self.warps * self.steps * self.multiply_adds / lanes / self.clock_hz * 1e3
        )

    def _busy(self, constants: Constants) -> Array:
        """Cycles that one warp keeps its partition's scheduler, and its multiply-add lanes."""
        issue = self.multiply_adds + constants.instruction_weight * self.instructions + self.spilled_words
        return np.asarray(np.maximum(issue, self.multiply_adds * self.warp_over_lanes))

    def _latency(self, constants: Constants) -> Array:
        return np.asarray(constants.latency_ns * 1e-9 * self.clock_hz)

    def _throughput(self, count: Array, constants: Constants) -> tuple[Array, Array, Array]:
        """Cycles of `count` blocks on an SM for one step: of issuing, of shared memory, of fetching."""
        warps_per_partition = np.ceil(count * self.warps / self.partitions)
        return (
            warps_per_partition * self._busy(constants),
            count * self.warps * (self.spilled_words + self.shared * constants.shared_weight),
            count * self.fetch_bytes / constants.l2_bytes_per_cycle,
        )

    def _block_cycles(self, resident: Array, constants: Constants) -> Array:
        """Cycles of blocks that run side by side, `resident` on each SM."""
        at_least_one = np.maximum(1, resident)
        latency = self._latency(constants)
        own = self._busy(constants) + self.stall_cycles * constants.stall_weight
        step = np.maximum(overlapped(constants.smoothing, *self._throughput(resident, constants)), own)
        step = step + constants.barrier_cycles / at_least_one
        # Fetches that run ahead overlap with steps; other waits show when all blocks of the SM wait at once.
        step = np.where(
            self.ahead > 0,
            np.maximum(step, latency / np.maximum(self.ahead, 1e-9)),
            step + latency / at_least_one**2,
        )
        output = constants.output_weight * self.output_bytes / self.bytes_per_cycle
        return np.asarray(self.steps * step + constants.block_latencies * latency + resident * output)


@dataclass(frozen=True)
class RooflineTerms:
    """For kernels without `cost`: the roofline, widened by occupancy and by the grid's unevenness."""

    blocks: Array
    compute_ms: Array
    memory_ms: Array
    """At the peak bandwidth."""
    widening: Array

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.blocks)

    def time_ms(self, constants: Constants) -> Array:
        """The longer of multiply-adds and memory traffic, widened."""
        dram_ms = self.memory_ms / np.minimum(1.0, constants.dram_share)
        floor = np.maximum(self.compute_ms / min(1.0, constants.efficiency), dram_ms)
        return np.asarray(constants.launch_ms + np.where(self.blocks > 0, floor * self.widening, 0.0))

    def parts(self, constants: Constants) -> dict[str, Array]:
        """The two bounds."""
        return {"multiply_adds": self.compute_ms, "memory": self.memory_ms}

    def least_ms(self) -> Array:
        """Nothing: the kernel may work on other units than the roofline is that of."""
        return np.zeros(len(self))


def joined(parts: Sequence[Kind]) -> Kind:
    """The rows of several, one after another."""
    first = parts[0]
    return type(first)(
        **{
            field.name: np.concatenate([getattr(part, field.name) for part in parts])
            for field in fields(first)
        }
    )


def taken(terms: Kind, rows: Array) -> Kind:
    """Some of the rows."""
    return type(terms)(**{field.name: getattr(terms, field.name)[rows] for field in fields(terms)})


def overlapped(smoothing: float, *times: Array) -> Array:
    """Time of parts that run side by side: the longest, and a little more where others come close to it."""
    longest: Array = np.maximum.reduce(times)
    safe = np.where(longest > 0, longest, 1.0)
    total: Array = longest * np.sum([(part / safe) ** smoothing for part in times], axis=0) ** (1 / smoothing)
    return total

"""Occupancy: known kernels, ties, and what more of a resource can do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.candidate import LaunchPlan
from autotune.gpu_tables import find_gpu, list_gpus
from autotune.occupancy import occupancy, with_occupancy
from autotune.records import Resources

A6000, H200, T4 = find_gpu("a6000"), find_gpu("h200"), find_gpu("t4")


def test_shared_memory_kernel_on_a6000_as_published() -> None:
    """1024 threads, 37 registers, 8 KB: 11 blocks by shared memory, 1 by the rest; 32 of 48 warps."""
    found = occupancy(A6000, threads=1024, registers=37, smem_bytes=8 * 1024)
    assert found.limits["shared memory"] == 11
    assert found.limits["threads"] == 1
    assert found.limits["registers"] == 1
    assert (found.blocks_per_sm, found.warps, found.max_warps) == (1, 32, 48)
    assert int(100 * found.fraction) == 66
    assert found.limiter == "threads, registers"


@pytest.mark.parametrize(
    ("gpu", "threads", "registers", "smem_bytes", "blocks", "limiter"),
    [
        (H200, 256, 208, 3 * 4 * 16 * (132 + 256), 1, "registers"),
        (H200, 128, 168, 48 * 1024, 3, "registers"),
        (H200, 128, 168, 64 * 1024, 3, "registers, shared memory"),
        (H200, 32, 32, 0, 32, "blocks"),
        (H200, 128, 128, 227 * 1024, 1, "shared memory"),
        (H200, 128, 128, 227 * 1024 + 1, 0, "shared memory"),
        (H200, 512, 156, 0, 0, "registers"),
        (H200, 512, 128, 0, 1, "registers"),
        (H200, 32, 256, 0, 0, "registers"),
        (H200, 2048, 16, 0, 0, "threads"),
        (A6000, 256, 32, 0, 6, "threads"),
        (A6000, 256, 40, 33 * 1024, 2, "shared memory"),
        (T4, 256, 64, 0, 4, "threads, registers"),
        (T4, 64, 16, 32 * 1024, 2, "shared memory"),
    ],
)
def test_blocks_and_what_limits_them(
    gpu, threads: int, registers: int, smem_bytes: int, blocks: int, limiter: str
) -> None:
    found = occupancy(gpu, threads, registers, smem_bytes)
    assert (found.blocks_per_sm, found.limiter) == (blocks, limiter)


def test_registers_go_to_whole_warps_of_one_partition() -> None:
    # 152 registers, 4864 per warp: 3 warps in each of 4 partitions, though 13 warps' 63,232 are under 65,536.
    assert occupancy(H200, 12 * 32, 152, 0).blocks_per_sm == 1
    assert occupancy(H200, 13 * 32, 152, 0).blocks_per_sm == 0


def test_a_block_that_is_no_whole_number_of_warps_takes_the_last_warp_whole() -> None:
    assert occupancy(H200, 33, 32, 0) == occupancy(H200, 64, 32, 0)


gpus = st.sampled_from(list_gpus())
threads_values = st.integers(1, 1024)
register_values = st.integers(1, 255)
smem_values = st.integers(0, 232448)


@given(gpus, threads_values, register_values, smem_values, st.data())
def test_more_of_any_resource_never_gives_more_warps_or_blocks(gpu, threads, registers, smem, data) -> None:
    found = occupancy(gpu, threads, registers, smem)
    more_registers = occupancy(gpu, threads, data.draw(st.integers(registers, 255)), smem)
    more_smem = occupancy(gpu, threads, registers, data.draw(st.integers(smem, 232448)))
    more_threads = occupancy(gpu, data.draw(st.integers(threads, 1024)), registers, smem)
    assert more_registers.blocks_per_sm <= found.blocks_per_sm
    assert more_smem.blocks_per_sm <= found.blocks_per_sm
    assert more_threads.blocks_per_sm <= found.blocks_per_sm


@given(gpus, threads_values, register_values, smem_values)
def test_the_resident_blocks_fit_and_one_more_would_not(gpu, threads, registers, smem) -> None:
    found = occupancy(gpu, threads, registers, smem)
    warps = -(-threads // 32)

    def fits(blocks: int) -> bool:
        per_warp = -(-registers // 8) * 256
        # Warps are dealt to the four partitions in turn.
        fullest = -(-blocks * warps // 4)
        smem_taken = -(-smem // gpu.smem_allocation_unit_bytes) * gpu.smem_allocation_unit_bytes
        return (
            blocks * warps * 32 <= gpu.max_threads_per_sm
            and blocks <= gpu.max_blocks_per_sm
            and fullest * per_warp <= 65536 // 4
            and blocks * (smem_taken + gpu.smem_reserved_bytes) <= gpu.smem_per_sm_bytes
        )

    assert fits(found.blocks_per_sm)
    assert not fits(found.blocks_per_sm + 1)


def test_with_occupancy_counts_static_and_dynamic_shared_memory() -> None:
    resources = Resources(64, 1024, 0, 0, 0)
    launch = LaunchPlan((10, 1, 1), (128, 1, 1), 48 * 1024, ())
    filled = with_occupancy(resources, launch, H200)
    assert filled.dynamic_smem_bytes == 48 * 1024
    assert filled.blocks_per_sm == 228 // 50

"""Explanations: published examples by the numbers, and what is told of illegal and of compiled configs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.candidate import Candidate
from autotune.config import Config, Value
from autotune.explain import explain
from autotune.gpu_tables import find_gpu
from autotune.legality import violations
from autotune.problems import make_problem
from autotune.records import Resources
from autotune.spec.load import load_spec

A6000, H200 = find_gpu("a6000"), find_gpu("h200")
SGEMM = load_spec("sgemm")
DEFAULT = Config.of(SGEMM.defaults)


def candidate(gpu=A6000, size=4096, beta: str = "zero", **changes: Value) -> Candidate:
    return Candidate(SGEMM, gpu, make_problem(SGEMM, size, classes={"beta": beta}), DEFAULT.replace(changes))


def test_the_roofline_of_4092_cubed_on_an_a6000() -> None:
    found = explain(candidate(size=4092, beta="general")).roofline
    assert found.flops / 1e9 == pytest.approx(137.05, abs=0.005)
    assert found.bytes / 1e6 == pytest.approx(268, abs=0.5)
    assert found.quoted_ms == pytest.approx(4.57, abs=0.005)  # 30 TFLOP/s
    assert found.boost_ms == pytest.approx(3.54, abs=0.005)  # 38.7 TFLOP/s
    assert found.memory_ms == pytest.approx(0.35, abs=0.005)  # 768 GB/s
    assert found.floor_ms == found.boost_ms
    assert found.bound_by == "compute"
    assert found.intensity == pytest.approx(511.6, abs=0.1)


def test_a_product_with_one_row_is_bound_by_memory() -> None:
    found = explain(candidate(size=(1, 4096, 4096))).roofline
    assert found.bound_by == "memory"
    assert found.floor_ms == found.memory_ms


def test_what_the_default_takes() -> None:
    found = explain(candidate(H200))
    assert found.legal
    assert found.nearest is None
    use = found.use
    assert use is not None
    assert (use.threads, use.blocks, use.dynamic_smem_bytes) == (128, 1024, 49920)
    assert not use.registers_exact
    assert use.occupancy.blocks_per_sm == 2
    assert use.occupancy.limiter == "registers"
    assert use.waves == pytest.approx(1024 / 264)
    assert use.wave_efficiency == pytest.approx(1024 / 264 / 4)
    assert use.tile_efficiency == 1.0
    assert [access.name for access in use.accesses] == ["read_a", "read_b", "write_a", "write_b"]
    assert found.predicted_ms is not None
    assert found.roofline.floor_ms < found.predicted_ms < 3 * found.roofline.floor_ms


def test_sizes_off_the_tile_waste_part_of_it() -> None:
    use = explain(candidate(size=129)).use
    assert use is not None
    assert use.tile_efficiency == pytest.approx(129**3 / (256 * 256 * 144))


def test_compiled_resources_replace_the_estimates() -> None:
    resources = Resources(168, 1024, 40, 60, 100)
    found = explain(candidate(H200), resources)
    assert found.use is not None
    assert (found.use.registers, found.use.registers_exact) == (168, True)
    assert (found.use.static_smem_bytes, found.use.spill_bytes) == (1024, 100)
    assert found.use.occupancy.blocks_per_sm == 3
    assert "spills 40 bytes of stores and 60 of loads per thread at 168 registers" in found.notes


def test_an_illegal_config_is_told_with_a_cure() -> None:
    found = explain(candidate(BM=96))
    assert not found.legal
    assert (found.use, found.predicted_ms) == (None, None)
    assert found.nearest is not None
    assert violations(SGEMM, A6000, found.candidate.problem, found.nearest) == ()
    assert sum(found.nearest[name] != found.candidate.config[name] for name in found.nearest) == 1


def test_a_compiled_config_that_cannot_launch_is_not_predicted() -> None:
    found = explain(candidate(H200), Resources(168, 1024 * 200, 0, 0, 0))
    assert [violation.limit for violation in found.violations] == [
        "smem_static_limit_bytes",
        "smem_per_block_bytes",
    ]
    assert found.predicted_ms is None
    assert found.use is not None
    assert found.use.occupancy.blocks_per_sm == 0
    assert found.use.waves == 0.0


def test_an_empty_problem_has_no_waves() -> None:
    found = explain(candidate(size=(0, 64, 64)))
    assert found.use is not None
    assert (found.use.blocks, found.use.waves, found.use.tile_efficiency) == (0, 0.0, None)


def test_a_spec_without_cost_has_no_tile_efficiency() -> None:
    spec = replace(SGEMM, cost={}, shared_accesses=())
    found = explain(replace(candidate(), spec=spec))
    assert found.use is not None
    assert found.use.tile_efficiency is None
    assert found.use.accesses == ()
    assert found.predicted_ms is not None

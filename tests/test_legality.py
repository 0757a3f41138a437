"""Legality: each limit with its numbers, agreement of rule, space and launch, and cures that really pass."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.candidate import LaunchPlan
from autotune.config import Config, Value
from autotune.expressions import Expression
from autotune.gpu_tables import find_gpu
from autotune.launch import config_names, plan_launch
from autotune.legality import nearest_legal, resource_violations, search_space, unpromising, violations
from autotune.occupancy import with_occupancy
from autotune.problems import make_problem
from autotune.records import Resources
from autotune.spec.kernel_spec import LaunchSpec, Rule
from autotune.spec.load import load_spec

A6000, H200, T4 = find_gpu("a6000"), find_gpu("h200"), find_gpu("t4")
SGEMM = load_spec("sgemm")
DEFAULT = Config.of(SGEMM.defaults)
CUBE = make_problem(SGEMM, 4096)


def texts(**changes: Value) -> list[str]:
    return [str(item) for item in violations(SGEMM, A6000, CUBE, DEFAULT.replace(changes))]


def test_the_default_is_legal_on_every_gpu_but_where_its_own_default_differs() -> None:
    assert violations(SGEMM, A6000, CUBE, DEFAULT) == ()
    assert violations(SGEMM, H200, CUBE, DEFAULT) == ()
    assert "cp.async needs compute capability 8.0" in str(violations(SGEMM, T4, CUBE, DEFAULT)[0])
    own = DEFAULT.replace(SGEMM.gpu_defaults["t4"])
    assert violations(SGEMM, T4, CUBE, own) == ()


def test_a_broken_constraint_states_the_rule_the_numbers_and_why() -> None:
    (text,) = texts(BM=96)
    assert text.startswith("BM % WM == 0 and BN % WN == 0 must hold, got BM=96, BN=128, WM=64, WN=64")
    assert "whole warp tiles cover the block tile" in text
    assert "sgemm.yaml:" in text


def test_the_rule_is_named_even_where_a_derived_name_has_no_value() -> None:
    # A warp tile larger than the block tile leaves no threads to divide the loads by.
    assert any("whole warp tiles cover the block tile" in text for text in texts(BM=32))


def test_too_many_threads() -> None:
    small_warps = {"BM": 256, "BN": 256, "WM": 16, "WN": 32, "TM": 4, "TN": 4, "STAGES": 2}
    found = violations(SGEMM, A6000, CUBE, DEFAULT.replace({**small_warps, "LANES": "rowmajor"}))
    (violation,) = found
    assert (violation.limit, violation.required, violation.allowed) == ("max_threads_per_block", 4096, 1024)
    assert str(violation) == (
        "threads is 4096, but a block has 1 to 1024 threads on NVIDIA RTX A6000 (max_threads_per_block)"
    )


def test_too_much_shared_memory() -> None:
    (found,) = violations(SGEMM, A6000, CUBE, DEFAULT.replace({"BK": 64, "STAGES": 4}))
    assert (found.limit, found.required, found.allowed) == ("smem_per_block_bytes", 266240, 101376)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"BM": 100}, "BM must be one of 16, 32, 64, 96, 128, 192, 256, got 100"),
        ({"REGDB": 1}, "REGDB must be one of false, true, got 1"),
        ({"LOAD": "dma"}, "LOAD must be one of sync, prefetch, cpasync, tma, got dma"),
    ],
)
def test_a_value_outside_the_list(changes: dict[str, Value], message: str) -> None:
    assert texts(**changes) == [message]


def test_missing_and_unknown_names() -> None:
    config = Config.of({**{name: DEFAULT[name] for name in DEFAULT if name != "BM"}, "BX": 1})
    found = [str(item) for item in violations(SGEMM, A6000, CUBE, config)]
    assert found[0].startswith("BM must be given, one of 16")
    assert found[1].startswith("BX is not a parameter (KIND, BM, BN")


def launched(grid: str, block: str, smem: str) -> LaunchSpec:
    parts = [tuple(Expression.parse(part) for part in text.split(";")) for text in (grid, block)]
    return LaunchSpec(parts[0], parts[1], Expression.parse(smem))


@pytest.mark.parametrize(
    ("launch", "limit", "required", "allowed"),
    [
        (launched("1;ceil_div(M, 32)", "128", "0"), "max_grid", 131072, 65535),
        (launched("M * 1024", "128", "0"), "max_grid", 2**32, 2**31 - 1),
        (launched("1", "2048", "0"), "max_threads_per_block", 2048, 1024),
        (launched("1", "1;1;128", "0"), "max_block", 128, 64),
        (launched("1", "128", "200000"), "smem_per_block_bytes", 200000, 101376),
        (launched("1", "0", "0"), "threads", 0, "at least 1"),
    ],
)
def test_launch_limits_hold_for_specs_without_the_usual_derived_names(
    launch: LaunchSpec, limit: str, required: int, allowed: Value
) -> None:
    spec = replace(SGEMM, launch=launch, derived={}, constraints=(), unpromising=(), cost={})
    problem = make_problem(spec, (2**22, 64, 64))
    found = violations(spec, A6000, problem, DEFAULT)
    assert (found[0].limit, found[0].required, found[0].allowed) == (limit, required, allowed)


def test_a_launch_of_more_than_the_derived_names_say_is_held_to_the_limits() -> None:
    spec = replace(SGEMM, launch=launched("1", "threads * 64", "smem_bytes * 16"))
    found = {violation.limit: violation.required for violation in violations(spec, A6000, CUBE, DEFAULT)}
    threads, smem_bytes = (
        int(str(config_names(SGEMM, A6000, DEFAULT)[name])) for name in ("threads", "smem_bytes")
    )
    assert found == {"max_threads_per_block": 64 * threads, "smem_per_block_bytes": 16 * smem_bytes}


# --- after compiling


def launch_of(threads: int, dynamic_smem_bytes: int = 0) -> LaunchPlan:
    return LaunchPlan((1, 1, 1), (threads, 1, 1), dynamic_smem_bytes, ())


def compiled(registers: int, static: int = 0, spills: int = 0) -> Resources:
    return Resources(registers, static, spills, spills, spills)


def test_T20_156_registers_at_512_threads_are_illegal_with_the_numbers() -> None:
    resources = with_occupancy(compiled(156), launch_of(512), H200)
    assert resources.blocks_per_sm == 0
    (violation,) = resource_violations(H200, launch_of(512), resources)
    assert (violation.limit, violation.required, violation.allowed) == ("registers_per_sm", 81920, 65536)
    for number in ("156 per thread", "allocated as 160", "512 threads", "16 warps of 5120", "81920", "65536"):
        assert number in str(violation)


def test_T20_spilling_is_a_note_and_never_illegal() -> None:
    resources = with_occupancy(compiled(128, spills=400), launch_of(512), H200)
    assert resource_violations(H200, launch_of(512), resources) == ()
    notes = unpromising(SGEMM, H200, CUBE, DEFAULT, resources)
    assert "spills 400 bytes of stores and 400 of loads per thread at 128 registers" in notes


@pytest.mark.parametrize(
    ("threads", "registers", "static", "dynamic", "limit"),
    [
        (128, 64, 0, 101376, None),
        (128, 64, 1024, 101376, "smem_per_block_bytes"),
        (128, 64, 49152, 0, None),
        (128, 64, 49153, 0, "smem_static_limit_bytes"),
        (1024, 64, 0, 0, None),
        (1024, 65, 0, 0, "registers_per_sm"),
        (384, 168, 0, 0, None),
        (416, 152, 0, 0, "registers_per_sm"),
        (32, 256, 0, 0, "max_registers_per_thread"),
        (1056, 16, 0, 0, "max_threads_per_block"),
    ],
)
def test_exact_resources(threads: int, registers: int, static: int, dynamic: int, limit: str | None) -> None:
    launch = launch_of(threads, dynamic)
    resources = with_occupancy(compiled(registers, static), launch, A6000)
    found = [item.limit for item in resource_violations(A6000, launch, resources)]
    assert found == ([limit] if limit else [])
    assert (resources.blocks_per_sm == 0) == (limit is not None and limit != "smem_static_limit_bytes")


def test_a_driver_that_finds_no_room_is_believed() -> None:
    resources = replace(compiled(32), blocks_per_sm=0)
    assert [item.limit for item in resource_violations(A6000, launch_of(64), resources)] == ["blocks_per_sm"]


# --- unpromising


def test_estimates_are_notes_until_the_compiler_has_spoken() -> None:
    config = DEFAULT.replace({"TN": 16, "WN": 128, "BN": 128})
    assert violations(SGEMM, H200, CUBE, config) == ()
    before = unpromising(SGEMM, H200, CUBE, config, None)
    assert any("more than 128 accumulators" in note and "TM=16, TN=16" in note for note in before)
    assert any("register estimate exceeds" in note for note in before)
    after = unpromising(SGEMM, H200, CUBE, config, compiled(255))
    assert [note for note in after if "estimate" in note] == []
    assert unpromising(SGEMM, H200, CUBE, DEFAULT, None) == ()


# --- the space


@pytest.mark.parametrize("gpu", [A6000, H200, T4], ids=lambda gpu: gpu.table)
def test_every_config_of_the_space_is_legal_and_launches(gpu) -> None:
    space = search_space(SGEMM, gpu, CUBE)
    for config in space.sample(np.random.default_rng(3), 200):
        assert violations(SGEMM, gpu, CUBE, config) == ()
        plan = plan_launch(SGEMM, CUBE, config, gpu)
        assert plan.dynamic_smem_bytes <= gpu.smem_per_block_bytes
        assert 32 <= plan.threads <= gpu.max_threads_per_block


raw_points = st.fixed_dictionaries(
    {parameter.name: st.sampled_from(parameter.values) for parameter in SGEMM.parameters}
)
SPACE = search_space(SGEMM, A6000, CUBE)


@given(raw_points)
@settings(max_examples=150, deadline=None)
def test_space_and_rule_agree_and_the_nearest_legal_value_really_passes(point: dict[str, Value]) -> None:
    config = Config.of(point)
    broken = violations(SGEMM, A6000, CUBE, config)
    assert (config in SPACE) == (not broken)
    for violation in broken:
        assert str(violation)
        assert "\n" not in str(violation)
    cure = nearest_legal(SPACE, config)
    assert violations(SGEMM, A6000, CUBE, cure) == ()
    assert (cure == config) == (not broken)


def test_a_problem_brings_in_the_grids_limits() -> None:
    launch = replace(SGEMM.launch, grid=(Expression.parse("1"), Expression.parse("ceil_div(M, BM)")))
    spec = replace(SGEMM, launch=launch)
    tall = make_problem(spec, (2**22, 64, 64))
    with_problem, without = search_space(spec, A6000, tall), search_space(spec, A6000)
    assert len(with_problem) < len(without) == len(SPACE)
    assert all(
        plan_launch(spec, tall, config, A6000).grid[1] <= 65535
        for config in with_problem.sample(np.random.default_rng(0), 50)
    )


def test_constraints_on_sizes_wait_for_a_problem() -> None:
    rule = Rule(Expression.parse("M % BM == 0"), "whole tiles only")
    spec = replace(SGEMM, constraints=(*SGEMM.constraints, rule))
    assert len(search_space(spec, A6000)) == len(SPACE)
    space = search_space(spec, A6000, make_problem(spec, (96, 64, 64)))
    assert {config["BM"] for config in space.sample(np.random.default_rng(0), 99)} <= {16, 32, 96}


def test_the_register_estimate_is_near_what_the_compiler_gave() -> None:
    """208 registers, measured for a 128x256x16 tile with 16x8 results a thread."""
    config = DEFAULT.replace({"BN": 256, "MINB": 0})
    assert abs(int(config_names(SGEMM, H200, config)["registers"]) - 208) <= 16

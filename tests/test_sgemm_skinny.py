"""SGEMM for few rows or columns of C: right on the CPU in every form, and compiled without spills."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.candidate import BufferPlan, LaunchPlan, ScalarPlan, ScratchPlan, Source
from autotune.compile.compiler import CompileOptions, compile_source
from autotune.config import Config
from autotune.cpu import check_launch
from autotune.cpu.build import Sanitize
from autotune.errors import StageFailure
from autotune.gpu_tables import find_gpu
from autotune.launch import plan_launch
from autotune.legality import search_space, violations
from autotune.model import rank
from autotune.problem import Problem
from autotune.problems import make_problem
from autotune.records import Resources, Status
from autotune.render import render
from autotune.spec.load import load_spec
from autotune.starts import starting_point, starting_points

H200 = find_gpu("h200")
SGEMM = load_spec("sgemm")


def config(kind: str, **values: object) -> Config:
    return Config.of(SGEMM.defaults).replace({"KIND": kind, "MINB": 0, **values})  # type: ignore[dict-item]


STREAM = {"SMALL": 4, "WIDE": 4, "WARPS": 2, "UNROLL": 8, "STAGES": 3, "STREAM": 1}
DOT = {"SMALL": 2, "WIDE": 2, "WARPS": 4, "UNROLL": 16, "STAGES": 2}
# The form of the kernel follows from kind and layout: with few rows, an untransposed B is contiguous along C's
# rows and a transposed one along the depth; with few columns it is A, the other way round.
CASES: dict[str, tuple[Config, dict[str, int | str]]] = {
    "rows, along C, copies": (config("rows", **STREAM), {"trans_a": "n", "trans_b": "n"}),
    "rows, along the depth, copies": (
        config("rows", **DOT),
        {"trans_a": "t", "trans_b": "t", "align_a": 1, "align_b": 1, "align_c": 1, "beta": "general"},
    ),
    "columns, along the depth, registers": (
        config("columns", LOAD="prefetch", STAGES=2, SMALL=8, WIDE=1, WARPS=2, UNROLL=32, STREAM=2),
        {"trans_a": "n", "trans_b": "n", "align_a": 2, "align_b": 1, "align_c": 2, "beta": "general"},
    ),
    "columns, along C, registers": (
        config("columns", LOAD="prefetch", STAGES=2, SMALL=1, WIDE=8, WARPS=2, UNROLL=4),
        {"trans_a": "t", "trans_b": "t", "align_a": 1, "align_b": 2, "align_c": 4},
    ),
}
SHAPES = [(1, 1, 1), (3, 70, 0), (5, 70, 41), (70, 5, 33), (17, 40, 300), (2, 129, 65), (129, 1, 64)]


@pytest.fixture(autouse=True, scope="module")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOTUNE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def prepared(a_config: Config, a_problem: Problem) -> tuple[Source, LaunchPlan]:
    return render(SGEMM, H200, a_problem, a_config), plan_launch(SGEMM, a_problem, a_config, H200)


def check(
    a_config: Config,
    sizes: tuple[int, int, int],
    classes: dict[str, int | str],
    sanitize: Sanitize = None,
    **scalars: float,
) -> None:
    source, launch = prepared(a_config, make_problem(SGEMM, sizes, classes=aligned(classes)))
    check_launch(source, launch, "matmul", scalars, sanitize)


def aligned(classes: dict[str, int | str]) -> dict[str, int | str]:
    """With the alignments that are not given at their widest: one compilation for all sizes."""
    return {"align_a": 4, "align_b": 4, "align_c": 4, **classes}


def test_the_tested_configurations_are_legal() -> None:
    space = search_space(SGEMM, H200, None)
    assert [name for name, (a_config, _) in CASES.items() if a_config not in space] == []


@pytest.mark.parametrize("name", CASES)
def test_odd_sizes(name: str) -> None:
    a_config, classes = CASES[name]
    for sizes in SHAPES:
        check(a_config, sizes, classes)


@pytest.mark.parametrize("pitch", ["lda", "ldb", "ldc"])
def test_addresses_need_more_than_32_bits(pitch: str) -> None:
    far = 2**31 - 4

    def moved(plan: BufferPlan | ScalarPlan | ScratchPlan) -> BufferPlan | ScalarPlan | ScratchPlan:
        if isinstance(plan, ScalarPlan) and plan.name == pitch:
            return replace(plan, value=far)
        if isinstance(plan, BufferPlan) and f"ld{plan.name.lower()}" == pitch:
            return replace(plan, pitch=far)
        return plan

    a_config, classes = CASES["rows, along the depth, copies"]
    source, launch = prepared(a_config, make_problem(SGEMM, (70, 5, 33), classes=aligned(classes)))
    check_launch(source, replace(launch, arguments=tuple(map(moved, launch.arguments))), "matmul")


def test_T03_with_alpha_zero_nothing_is_read_and_c_is_scaled() -> None:
    a_config, classes = CASES["columns, along the depth, registers"]
    for beta in (0.0, 0.5):
        check(a_config, (9, 5, 33), classes, alpha=0.0, beta=beta)  # with NaN in A and B
        check(a_config, (9, 5, 0), classes, alpha=2.0, beta=beta)


def test_exact_tiles_take_the_path_without_guards() -> None:
    a_config, classes = CASES["rows, along C, copies"]
    source, _ = prepared(a_config, make_problem(SGEMM, (8, 256, 64), classes=classes))
    assert "kGuard = false" in source.text
    check(a_config, (8, 256, 64), classes)


@pytest.mark.parametrize("removed", ["      __syncwarp();", "      wait_copies<kStages - 2>();\n"])
def test_broken_kernels_are_found(removed: str) -> None:
    a_config, classes = CASES["rows, along C, copies"]
    source, launch = prepared(a_config, make_problem(SGEMM, (5, 70, 300), classes=aligned(classes)))
    assert source.text.count(removed) == 1
    with pytest.raises(StageFailure) as caught:
        check_launch(replace(source, text=source.text.replace(removed, "")), launch, "matmul")
    assert caught.value.status is Status.WRONG_RESULT


def test_address_sanitizer_is_content() -> None:
    a_config, classes = CASES["rows, along the depth, copies"]
    for sizes in [(5, 70, 41), (3, 70, 0), (2, 129, 65)]:
        check(a_config, sizes, classes, "address")


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("name", CASES)
def test_free_of_races_and_stray_accesses(name: str) -> None:
    a_config, classes = CASES[name]
    for sizes in SHAPES:
        check(a_config, sizes, classes, "address")
    for sizes in [(5, 70, 41), (70, 5, 200)]:
        check(a_config, sizes, classes, "thread")


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(3, 20))]
)
def test_random_legal_configurations_are_right(seed: int) -> None:
    chooser = random.Random(seed)
    space = search_space(SGEMM, H200, None)
    values = {one.name: one.values for one in SGEMM.parameters}
    names = ["KIND", "SMALL", "WIDE", "WARPS", "UNROLL", "STREAM", "LOAD", "STAGES"]
    while True:
        drawn = {name: chooser.choice(values[name]) for name in names}
        a_config = config(**{"kind": drawn.pop("KIND"), **drawn})  # type: ignore[arg-type]
        if a_config in space and a_config["KIND"] != "tile":
            break
    classes: dict[str, int | str] = {f"align_{name}": chooser.choice([1, 2, 4]) for name in "abc"}
    classes |= {"trans_a": chooser.choice("nt"), "trans_b": chooser.choice("nt")}
    classes |= {"beta": chooser.choice(["zero", "general"])}
    for _ in range(10):
        sizes = (chooser.randint(1, 70), chooser.randint(1, 70), chooser.randint(0, 150))
        check(a_config, sizes, classes, chooser.choice([None, "address"]))


def resources(a_config: Config, sizes: tuple[int, int, int], gpu: str, folder: Path) -> Resources:
    target = find_gpu(gpu)
    source = render(SGEMM, target, make_problem(SGEMM, sizes), a_config)
    return compile_source(source, target.arch, CompileOptions(cache=folder)).resources


SKINNY = [(1, 4096, 4096), (16, 4096, 4096), (4096, 1, 4096), (8192, 32, 8192), (64, 64, 65536)]


def test_clusters_compile_without_spills(tmp_path: Path) -> None:
    starts = starting_points(SGEMM, H200, make_problem(SGEMM, (15, 4096, 4095)))
    (cluster,) = [start.config for start in starts if start.config["CLUSTER"] != 1]
    taken = resources(cluster, (15, 4096, 4095), "h200", tmp_path)
    assert (taken.spill_store_bytes, taken.stack_bytes, taken.static_smem_bytes) == (0, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "gpu",
    [
        "a6000",
        "h200",
        *(
            pytest.param(gpu, marks=pytest.mark.thorough)
            for gpu in ("a100_sxm4_40gb", "l4", "b200", "rtx5090", "t4")
        ),
    ],
)
def test_starting_points_compile_without_spills(gpu: str, tmp_path: Path) -> None:
    for sizes in SKINNY:
        for start in starting_points(SGEMM, find_gpu(gpu), make_problem(SGEMM, sizes)):
            taken = resources(start.config, sizes, gpu, tmp_path)
            assert taken.spill_store_bytes == 0, start


@pytest.mark.parametrize("gpu", ["h200", "a6000", "t4"])
def test_skinny_problems_start_with_a_kernel_that_streams(gpu: str) -> None:
    for sizes in [(1, 4096, 4096), (4, 4096, 14336), (4096, 1, 4096)]:
        start = starting_point(SGEMM, find_gpu(gpu), make_problem(SGEMM, sizes))
        assert start.config["KIND"] == ("rows" if sizes[0] < sizes[1] else "columns")
    cube = starting_point(SGEMM, find_gpu(gpu), make_problem(SGEMM, 4096))
    assert cube.config["KIND"] == "tile"


def test_the_model_puts_streaming_first_where_memory_bounds_the_time() -> None:
    for sizes in [(1, 4096, 4096), (16, 4096, 4096), (4096, 4, 4096)]:
        problem = make_problem(SGEMM, sizes)
        start = starting_point(SGEMM, H200, problem).config
        default = SGEMM.default_config("h200")
        streamed, tiled = rank(SGEMM, H200, problem, [start, default])
        assert streamed < tiled / 2
        assert streamed > 2 * 4096 * 4096 * 4 / 2 / (H200.memory_gbps * 1e6)


def test_parameters_of_other_kinds_are_refused() -> None:
    problem = make_problem(SGEMM, 4096)
    tile = Config.of(SGEMM.defaults)
    assert violations(SGEMM, H200, problem, tile.replace({"SMALL": 4}))
    assert violations(SGEMM, H200, problem, config("rows", BM=64))
    assert violations(SGEMM, H200, problem, config("rows", **STREAM, CLUSTER=2))
    assert not violations(SGEMM, H200, problem, config("rows", **{**STREAM, "STREAM": 0}, CLUSTER=2))

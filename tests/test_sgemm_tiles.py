"""SGEMM tiles: transposed operands, and results that several warps or blocks share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.compile.compiler import CompileOptions, compile_source
from autotune.config import Config, Value
from autotune.cpu import check_launch
from autotune.cpu.build import Sanitize
from autotune.errors import StageFailure
from autotune.gpu_tables import find_gpu
from autotune.launch import plan_launch
from autotune.legality import search_space
from autotune.problem import Problem
from autotune.problems import make_problem
from autotune.render import render
from autotune.spec.load import load_spec

sys.path.insert(0, str(Path(__file__).parents[1] / "tools" / "gpu"))
from draws import Draws

H200 = find_gpu("h200")
FEW_SMS = replace(H200, sm_count=5)
"""So that a small problem gives a block parts of several tiles, and whole ones between them."""
SGEMM = load_spec("sgemm")
DEFAULT = Config.of(SGEMM.defaults)
SMALL: dict[str, Value] = {"BM": 32, "BN": 32, "BK": 8, "WM": 32, "WN": 16, "TM": 4, "TN": 4}
SMALL |= {"PAD_A": 0, "MINB": 0}

SHAPES = [(1, 1, 1), (33, 70, 65), (70, 3, 129), (97, 65, 40), (7, 5, 0), (40, 40, 3)]

CONFIGS: dict[str, tuple[str, dict[str, Value]]] = {
    "blocks that share tiles": ("tn", {"STREAM": 1}),
    "warps that share results": ("nt", {"SLICEK": 2, "VN": 2, "VC": 4, "ORDER": "zigzag2"}),
    "both": ("tt", {"SLICEK": 4, "STREAM": 3, "LOAD": "prefetch", "STAGES": 2, "VA": 2, "VB": 2}),
    "sync": ("tn", {"LOAD": "sync", "STAGES": 1, "VM": 1, "PAD_A": 1, "VA": 4, "VB": 1, "STREAM": 2}),
    "five stages, padded by one": ("tt", {"STAGES": 5, "VM": 1, "PAD_A": 1, "PAD_B": 4, "SPREAD": 2}),
    "bulk copies that do not fit": ("nt", {"LOAD": "tma", "SPREAD": 1, "REGDB": False}),
}


@pytest.fixture(autouse=True, scope="module")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOTUNE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def small(**values: Value) -> Config:
    return DEFAULT.replace({**SMALL, **values})


def problem(sizes: tuple[int, int, int], transposed: str, align: int = 1, beta: str = "general") -> Problem:
    classes: dict[str, Value] = dict(zip(("trans_a", "trans_b"), transposed, strict=True))
    classes |= dict.fromkeys(("align_a", "align_b", "align_c"), align) | {"beta": beta}
    return Problem(tuple(zip("MNK", sizes, strict=True)), "float32", tuple(classes.items()))


def check(config: Config, a_problem: Problem, sanitize: Sanitize = None, **scalars: float) -> None:
    source = render(SGEMM, FEW_SMS, a_problem, config)
    launch = plan_launch(SGEMM, a_problem, config, FEW_SMS)
    check_launch(source, launch, "matmul", scalars, sanitize)


def test_the_tested_configurations_are_legal() -> None:
    space = search_space(SGEMM, H200, None)
    assert [name for name, (_, values) in CONFIGS.items() if small(**values) not in space] == []


RARE = ("sync", "five stages, padded by one", "bulk copies that do not fit")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in RARE else []) for name in CONFIGS]
)
def test_transposed_operands_and_shared_results(name: str) -> None:
    transposed, values = CONFIGS[name]
    for sizes in SHAPES:
        check(small(**values), problem(sizes, transposed))
    check(small(**values), problem((70, 65, 40), transposed), alpha=0.0)  # with NaN in A and B
    check(small(**values), problem((70, 65, 40), transposed), beta=0.0)  # with NaN in C


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("transposed", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("align", [1, 2, 4])
def test_every_way_that_operands_lie(name: str, transposed: str, align: int) -> None:
    config = small(**CONFIGS[name][1])
    check(config, problem((70, 45, 50), transposed, align), "address")
    check(config, problem((64, 32, 24), transposed, align), beta=1.0)
    check(config, problem((64, 32, 24), transposed, align, "zero"))


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("name", ["blocks that share tiles", "warps that share results", "both"])
def test_shared_results_are_free_of_races(name: str) -> None:
    check(small(**CONFIGS[name][1]), problem((70, 45, 50), CONFIGS[name][0]), "thread")


def test_a_missing_barrier_before_sums_meet_is_found() -> None:
    config, a_problem = small(SLICEK=2), problem((33, 70, 65), "nn")
    source = render(SGEMM, H200, a_problem, config)
    barrier = "  __syncthreads();\n  for (int number"
    assert source.text.count(barrier) == 1
    broken = replace(source, text=source.text.replace(barrier, "  for (int number"))
    launch = plan_launch(SGEMM, a_problem, config, H200)
    check_launch(source, launch, "matmul")
    with pytest.raises(StageFailure, match="is "):
        check_launch(broken, launch, "matmul")


def test_scratch_memory_holds_a_tile_and_a_counter_for_each_block() -> None:
    launch = plan_launch(SGEMM, problem((320, 320, 64), "nn"), small(STREAM=2), FEW_SMS)
    assert launch.grid == (10, 1, 1)
    assert launch.scratch is not None
    assert launch.scratch.nbytes == 10 * 4 * (2 * 32 * 32 + 1)
    assert plan_launch(SGEMM, problem((320, 320, 64), "nn"), small(), FEW_SMS).scratch is None


CLUSTERS_AND_BULK_COPIES: list[tuple[str, dict[str, Value]]] = [
    ("nn", {"CLUSTER": 8, "VC": 4}),
    ("tt", {"CLUSTER": 2, "SLICEK": 2, "LOAD": "prefetch", "STAGES": 2}),
    ("nn", {"LOAD": "tma", "STAGES": 4}),
    ("tn", {"LOAD": "tma", "STAGES": 2, "SPREAD": 1}),
    ("tt", {"LOAD": "tma", "CLUSTER": 4}),
    ("tn", {"LOAD": "tma", "STREAM": 1, "SLICEK": 2}),
]


@pytest.mark.parametrize(("transposed", "values"), CLUSTERS_AND_BULK_COPIES)
def test_clusters_and_bulk_copies_compile(transposed: str, values: dict[str, Value], tmp_path: Path) -> None:
    """They run on a GPU only."""
    a_problem = problem((256, 256, 256), transposed, 4, "zero")
    config = small(**values)
    assert config in search_space(SGEMM, H200, a_problem)
    source = render(SGEMM, H200, a_problem, config)
    assert ("__cluster_dims__" in source.text) == ("CLUSTER" in values)
    bulk = values.get("LOAD") == "tma" and transposed != "nt"
    bulk = bulk and (transposed[0] == "t" or transposed[1] == "n")
    assert ("cp.async.bulk" in source.text) == bulk
    taken = compile_source(source, "sm_90", CompileOptions(cache=tmp_path)).resources
    assert (taken.spill_store_bytes, taken.spill_load_bytes, taken.stack_bytes) == (0, 0, 0)


def test_bulk_copies_need_whole_tiles_and_alignment() -> None:
    config = small(LOAD="tma")
    for a_problem in (problem((256, 256, 255), "nn", 4), problem((256, 256, 256), "nn", 2)):
        assert "cp.async.bulk" not in render(SGEMM, H200, a_problem, config).text


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_defaults_compile_without_spills(arch: str, tmp_path: Path) -> None:
    for gpu in ("a6000", "h200"):
        for sizes in (4096, 4092):
            config = SGEMM.default_config(gpu)
            source = render(SGEMM, find_gpu(gpu), make_problem(SGEMM, sizes), config)
            taken = compile_source(source, arch, CompileOptions(cache=tmp_path)).resources
            assert (taken.spill_store_bytes, taken.spill_load_bytes, taken.stack_bytes) == (0, 0, 0)


ON_THE_CPU = "CLUSTER == 1 and LOAD != 'tma' and (KIND != 'tile' or TM * TN <= 64) and threads <= 256"


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(3, 13))]
)
def test_random_calls_are_right(seed: int) -> None:
    """Three configurations each; thousands of draws run on a GPU."""
    for draw in Draws(seed, FEW_SMS, ON_THE_CPU).some(18, per_config=6):
        try:
            check_launch(draw.source, draw.launch, "matmul")
        except StageFailure as failure:
            raise AssertionError(f"{draw}: {failure}") from failure


def test_draws_are_legal_and_repeat() -> None:
    draws = list(Draws(1, H200).some(30))
    assert [str(draw) for draw in draws] == [str(draw) for draw in Draws(1, H200).some(30)]
    space = search_space(SGEMM, H200, None)
    assert all(draw.config in space for draw in draws)
    assert {draw.config["KIND"] for draw in draws} == {"tile", "rows", "columns"}

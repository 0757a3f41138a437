"""The SGEMM kernel: right on the CPU for odd sizes, pitches and alignments, and compiled without spills."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.candidate import BufferPlan, LaunchPlan, ScalarPlan, Source
from autotune.compile.compiler import CompileOptions, compile_source
from autotune.config import Config
from autotune.cpu import check_launch, check_on_cpu
from autotune.cpu.build import Sanitize
from autotune.errors import StageFailure
from autotune.gpu_tables import find_gpu
from autotune.launch import config_names, plan_launch
from autotune.legality import nearest_legal, resource_violations, search_space, violations
from autotune.occupancy import with_occupancy
from autotune.problem import Problem
from autotune.problems import make_problem
from autotune.records import Resources, Status
from autotune.render import render
from autotune.space.search_space import SearchSpace
from autotune.spec.load import load_spec

H200 = find_gpu("h200")
SGEMM = load_spec("sgemm")
DEFAULT = Config.of(SGEMM.defaults)
CUBE = make_problem(SGEMM, 4096)
LARGE = DEFAULT.replace({"BN": 256, "MINB": 0})
PREFETCH = DEFAULT.replace(SGEMM.gpu_defaults["t4"])


def config(**values: object) -> Config:
    return DEFAULT.replace(values)  # type: ignore[arg-type]


SMALL = {"BM": 32, "BN": 32, "BK": 8, "WM": 32, "WN": 16, "TM": 4, "TN": 4, "PAD_A": 0, "MINB": 0}
CONFIGS = {
    "default": DEFAULT,
    "large": LARGE,
    "t4": PREFETCH,
    "sync": config(LOAD="sync", STAGES=1, REGDB=False, ORDER="nested", GROUP_M=1),
    "sync, double fragments, scalar": config(
        **SMALL, LOAD="sync", STAGES=1, LANES="rowmajor", VM=1, VN=1, VC=1, VA=1, VB=1
    ),
    "prefetch, single fragments": config(
        **SMALL, LOAD="prefetch", STAGES=2, REGDB=False, VM=2, VN=2, VC=2, VA=2
    ),
    "five stages, padded by one": config(**{**SMALL, "PAD_A": 1}, VM=1, STAGES=5, VA=2, VB=2, PAD_B=4),
    "two stages, single fragments": config(**SMALL, STAGES=2, REGDB=False, VA=1, GROUP_M=4),
    "tile of 96 x 192": config(BM=96, BN=192, BK=8, WM=32, WN=64, TM=8, TN=8, STAGES=4, MINB=1, VB=2),
    "three warps, deep tiles": config(
        BM=16, BN=96, BK=64, WM=16, WN=32, TM=4, TN=4, LOAD="prefetch", STAGES=2, MINB=0, VA=1
    ),
    "rows of several passes": config(
        BM=16, BN=256, BK=8, WM=16, WN=128, TM=4, TN=16, VB=1, LANES="rowmajor", MINB=0
    ),
}

CLASSES: dict[str, dict[str, int | str]] = {
    "aligned": {"trans_a": "n", "trans_b": "n", "align_a": 4, "align_b": 4, "align_c": 4, "beta": "zero"},
    "unaligned": {
        "trans_a": "n",
        "trans_b": "n",
        "align_a": 1,
        "align_b": 1,
        "align_c": 1,
        "beta": "general",
    },
    "mixed": {"trans_a": "n", "trans_b": "n", "align_a": 2, "align_b": 4, "align_c": 2, "beta": "general"},
}


@pytest.fixture(autouse=True, scope="module")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOTUNE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def problem(sizes: tuple[int, int, int], classes: str) -> Problem:
    """The problem made by hand, since a class may be less aligned than packed arrays of these sizes are."""
    return Problem(tuple(zip("MNK", sizes, strict=True)), "float32", tuple(CLASSES[classes].items()))


def prepared(a_config: Config, a_problem: Problem) -> tuple[Source, LaunchPlan]:
    return render(SGEMM, H200, a_problem, a_config), plan_launch(SGEMM, a_problem, a_config, H200)


def check(
    a_config: Config, a_problem: Problem, sanitize: Sanitize = None, wider: int = 0, **scalars: float
) -> None:
    """Raises where the result is wrong; `wider` adds to each pitch, in multiples of its alignment."""
    source, launch = prepared(a_config, a_problem)
    align = dict(a_problem.classes)
    names = [(f"ld{plan.name.lower()}", f"align_{plan.name.lower()}", plan.pitch) for plan in launch.buffers]
    pitches = {name: pitch + wider * int(str(align[alignment])) for name, alignment, pitch in names}
    check_launch(source, with_pitches(launch, pitches), "matmul", scalars, sanitize)


def with_pitches(launch: LaunchPlan, pitches: dict[str, int]) -> LaunchPlan:
    return replace(
        launch,
        arguments=tuple(
            replace(plan, value=pitches.get(plan.name, plan.value))
            if isinstance(plan, ScalarPlan)
            else replace(plan, pitch=pitches[f"ld{plan.name.lower()}"])
            if isinstance(plan, BufferPlan)
            else plan
            for plan in launch.arguments
        ),
    )


def sizes_for(a_config: Config) -> list[tuple[int, int, int]]:
    """Sizes off the tile: one of each, less and more than a tile, odd and even numbers of tiles of K."""
    tile = [int(config_names(SGEMM, H200, a_config)[name]) for name in ("BM", "BN", "BK")]  # type: ignore[arg-type]
    beyond = (2 * tile[0] + 1, tile[1] + 3, 3 * tile[2] + 1)
    return [(1, 1, 1), (17, 33, 5), (65, 129, 40), (33, 257, 65), (tile[0], tile[1] - 1, 2 * tile[2]), beyond]


@pytest.mark.parametrize("name", CONFIGS)
def test_odd_sizes_and_pitches(name: str) -> None:
    classes = ["unaligned", "mixed", "aligned"][list(CONFIGS).index(name) % 3]
    for number, sizes in enumerate(sizes_for(CONFIGS[name])):
        check(CONFIGS[name], problem(sizes, classes), wider=number % 3)


@pytest.mark.parametrize("name", ["default", "t4"])
def test_T03_without_depth_or_with_alpha_zero_c_is_scaled(name: str) -> None:
    for sizes in [(7, 5, 0), (17, 33, 5)]:
        for beta in (0.0, 0.5, 1.0):
            check(CONFIGS[name], problem(sizes, "unaligned"), beta=beta)
            check(CONFIGS[name], problem(sizes, "unaligned"), alpha=0.0, beta=beta)  # with NaN in A and B


def test_the_tested_configurations_are_legal() -> None:
    space = search_space(SGEMM, H200, None)
    assert [name for name, a_config in CONFIGS.items() if a_config not in space] == []


def test_T03_empty_outputs_need_no_launch() -> None:
    for sizes in [(0, 5, 7), (5, 0, 7)]:
        source, launch = prepared(DEFAULT, problem(sizes, "aligned"))
        assert launch.empty
        assert check_launch(source, launch, "matmul").elements == 0


@pytest.mark.parametrize("name", ["default", "tile of 96 x 192"])
def test_addresses_need_more_than_32_bits(name: str) -> None:
    source, launch = prepared(CONFIGS[name], problem((130, 5, 20), "unaligned"))
    far = 2**31 - 2
    a, b, c = launch.buffers
    pitches = {"lda": a.pitch, "ldb": b.pitch, "ldc": c.pitch}
    for pitch in pitches:  # one at a time, for the sake of the address space
        launch_far = with_pitches(launch, {**pitches, pitch: far})
        check_launch(source, launch_far, "matmul")


def moved(a_config: Config) -> list[tuple[int, int, int]]:
    """Sizes that tiles at the edges are moved back for: less than a tile too many, with remainders of K."""
    m, n, k = (int(config_names(SGEMM, H200, a_config)[name]) for name in ("BM", "BN", "BK"))  # type: ignore[arg-type]
    return [(m, n + 4, 3), (m + 5, 2 * n - 4, 2 * k), (2 * m - 1, n + 8, 2 * k + 5), (m + 2, n, 5 * k - 1)]


@pytest.mark.parametrize("name", CONFIGS)
def test_tiles_at_the_edges_are_moved_back_where_the_loop_needs_no_guards(name: str) -> None:
    classes = ["unaligned", "aligned"][list(CONFIGS).index(name) % 2]
    for number, sizes in enumerate(moved(CONFIGS[name])):
        source, _ = prepared(CONFIGS[name], problem(sizes, classes))
        by_vectors = CONFIGS[name]["LOAD"] in ("sync", "prefetch") and CONFIGS[name]["VA"] != 1
        if classes == "unaligned" or sizes[2] % 4 == 0 or not by_vectors:
            assert "kGuard = true" in source.text
            assert "kGuardAll = false" in source.text, sizes
        check(CONFIGS[name], problem(sizes, classes), wider=number % 3)


@pytest.mark.parametrize("trans", ["nt", "tn", "tt"])
def test_tiles_of_transposed_operands_are_moved_back(trans: str) -> None:
    for a_config in (config(**SMALL), config(**SMALL, LOAD="prefetch", STAGES=2)):
        for sizes, align in [((37, 43, 21), 1), ((36, 44, 20), 4)]:
            classes = {"trans_a": trans[0], "trans_b": trans[1], "beta": "general"}
            classes |= {"align_a": align, "align_b": align, "align_c": align}  # type: ignore[dict-item]
            a_problem = Problem(
                tuple(zip("MNK", sizes, strict=True)),
                "float32",
                tuple((one.name, classes[one.name]) for one in SGEMM.problem.classes),
            )
            assert "kGuardAll = false" in prepared(a_config, a_problem)[0].text
            check(a_config, a_problem)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "row < rows : row >= rows",
            "row < rows : true",
        ),  # then it is stored twice, and beta * C added twice
        ("column >= columns ? width : 0", "width"),
        ("if (kHeadFirst && tile == 0) loader.pass_head(depth_left);", ""),
        ("(Head || !kHeadFirst)", "!kHeadFirst"),  # then more than the remainder of K is summed up
    ],
)
def test_a_mistake_at_moved_tiles_is_found(old: str, new: str) -> None:
    source, launch = prepared(config(**SMALL), problem((40, 44, 20), "mixed"))
    assert "kGuardAll = false" in source.text
    check_launch(source, launch, "matmul")
    with pytest.raises(StageFailure) as caught:
        check_launch(mutant(source, old, new), launch, "matmul")
    assert caught.value.status is Status.WRONG_RESULT


def test_exact_tiles_take_the_path_without_guards() -> None:
    source, launch = prepared(DEFAULT, problem((256, 384, 80), "aligned"))
    assert "kGuard = false" in source.text
    check_launch(source, launch, "matmul")


def mutant(source: Source, old: str, new: str) -> Source:
    assert source.text.count(old) == 1, f"{source.text.count(old)} places to change"
    return replace(source, text=source.text.replace(old, new))


MAIN_LOOP_BARRIER = "          __syncthreads();\n"
MAIN_LOOP_WAIT = "          wait_copies<kStages - 2>();\n"
ROW_GUARD = "    if ((Turned ? kExtent : kDepthToo) && Runs::row(thread, i) >= rows_left) return 0;\n"
COLUMN_GUARD = "edge.valid(j, kStoreC)"


@pytest.mark.parametrize(
    ("old", "new"),
    [(MAIN_LOOP_WAIT, ""), (MAIN_LOOP_BARRIER, ""), ("now], fragment_b[now]", "0], fragment_b[now]")],
)
def test_broken_kernels_are_found_without_sanitizers(old: str, new: str) -> None:
    source, launch = prepared(config(**SMALL), problem((40, 40, 100), "aligned"))
    check_launch(source, launch, "matmul")
    with pytest.raises(StageFailure) as caught:
        check_launch(mutant(source, old, new), launch, "matmul")
    assert caught.value.status is Status.WRONG_RESULT


def test_writing_between_the_rows_of_c_is_found() -> None:
    source, launch = prepared(config(**SMALL), problem((40, 37, 8), "aligned"))
    with pytest.raises(StageFailure, match="between the rows"):
        check_launch(mutant(source, COLUMN_GUARD, "kStoreC"), launch, "matmul")


def test_address_sanitizer_is_content_with_odd_sizes() -> None:
    for sizes in [(17, 33, 5), (65, 129, 40), (7, 5, 0), (130, 3, 49)]:
        check(DEFAULT, problem(sizes, "mixed"), "address")


def test_address_sanitizer_finds_a_removed_guard() -> None:
    source, launch = prepared(DEFAULT, problem((17, 33, 5), "mixed"))
    with pytest.raises(StageFailure, match="AddressSanitizer: heap-buffer-overflow") as caught:
        check_launch(mutant(source, ROW_GUARD, ""), launch, "matmul", sanitize="address")
    assert caught.value.status is Status.CRASHED


def test_thread_sanitizer_is_content_with_the_default() -> None:
    check(DEFAULT, problem((65, 129, 80), "aligned"), "thread")


def test_thread_sanitizer_finds_a_removed_barrier() -> None:
    source, launch = prepared(DEFAULT, problem((65, 129, 80), "aligned"))
    with pytest.raises(StageFailure, match="data race") as caught:
        check_launch(mutant(source, MAIN_LOOP_BARRIER, ""), launch, "matmul", sanitize="thread")
    assert caught.value.status is Status.WRONG_RESULT


def drawn(space: SearchSpace, chooser: random.Random) -> Config:
    """A legal configuration that runs on the CPU: without clusters and bulk copies."""
    while True:
        a_config = space.at(chooser.randrange(space.count))
        if a_config["CLUSTER"] == 1 and a_config["LOAD"] != "tma":
            return a_config


@pytest.mark.slow
@pytest.mark.parametrize("sanitize", [None, "address"])
@pytest.mark.parametrize("seed", range(10))
def test_random_legal_configurations_are_right(seed: int, sanitize: Sanitize) -> None:
    chooser = random.Random(seed)
    a_config = drawn(search_space(SGEMM, H200, None), chooser)
    for sizes in sizes_for(a_config):
        check(a_config, problem(sizes, chooser.choice(list(CLASSES))), sanitize, chooser.randrange(3))


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_every_shape_of_the_kernel_is_free_of_races(name: str) -> None:
    for sizes in [(17, 33, 5), (65, 129, 40)]:
        check(CONFIGS[name], problem(sizes, "aligned"), "thread")


def resources(a_config: Config, arch: str, folder: Path, sizes: int = 4096) -> Resources:
    source = render(SGEMM, H200, make_problem(SGEMM, sizes), a_config)
    return compile_source(source, arch, CompileOptions(cache=folder)).resources


@pytest.mark.parametrize(
    ("arch", "name"),
    [("sm_75", "t4"), ("sm_86", "default"), ("sm_90", "default"), ("sm_90", "large")],
)
def test_defaults_compile_without_spills(arch: str, name: str, tmp_path: Path) -> None:
    for sizes in (4096, 4092):
        taken = resources(CONFIGS[name], arch, tmp_path, sizes)
        assert (taken.spill_store_bytes, taken.spill_load_bytes, taken.stack_bytes) == (0, 0, 0)
        assert taken.static_smem_bytes == 0
        assert taken.registers <= 255


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_100", "sm_120"])
def test_the_default_compiles_without_spills_on_other_gpus(arch: str, tmp_path: Path) -> None:
    for sizes in (4096, 4092):
        assert resources(DEFAULT, arch, tmp_path, sizes).spill_store_bytes == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_random_legal_configurations_compile(seed: int, tmp_path: Path) -> None:
    space = search_space(SGEMM, H200, None)
    a_config = space.at(random.Random(seed).randrange(space.count))
    assert resources(a_config, "sm_90", tmp_path).registers > 0


def test_T29_refusals_state_rule_numbers_and_a_value_that_passes() -> None:
    space = search_space(SGEMM, H200, CUBE)
    chooser = random.Random(29)
    refused = 0
    for _ in range(100):
        raw = Config.of({one.name: chooser.choice(one.values) for one in SGEMM.parameters})
        broken = violations(SGEMM, H200, CUBE, raw)
        assert bool(broken) == (raw not in space)
        if not broken:
            continue
        refused += 1
        assert all(re.search(r"\d", str(violation)) and violation.rule for violation in broken)
        nearest = nearest_legal(space, raw)
        assert not violations(SGEMM, H200, CUBE, nearest)
    assert refused > 80


@pytest.mark.parametrize("seed", [92, 93])
def test_T29_what_is_called_legal_compiles_fits_and_is_right(seed: int, tmp_path: Path) -> None:
    """The whole recipe, with refused ones tried as well, runs on a GPU: tools/gpu/cases.py, T29."""
    space = search_space(SGEMM, H200, CUBE)
    legal = drawn(space, random.Random(seed))
    source = render(SGEMM, H200, CUBE, legal)
    kernel = compile_source(source, H200.arch, CompileOptions(cache=tmp_path))
    launch = plan_launch(SGEMM, CUBE, legal, H200)
    assert not resource_violations(H200, launch, with_occupancy(kernel.resources, launch, H200))
    accuracy = check_on_cpu(SGEMM, H200, problem((65, 33, 19), "mixed"), legal)
    assert accuracy.worst_error <= accuracy.tolerance


@pytest.mark.slow
def test_T29_what_is_refused_and_works_breaks_only_rules_that_are_too_strict(tmp_path: Path) -> None:
    """Of 500 draws, and that more than one in a hundred works, studies/legality/refused.json tells."""
    program = Path(__file__).parents[1] / "tools" / "refused.py"
    out = tmp_path / "refused.json"
    subprocess.run([sys.executable, program, "--count", "100", "--seed", "2", "--out", out], check=False)
    told = json.loads(out.read_text())
    assert told["drawn"] == 100
    assert 30 <= told["refused"] <= 90
    assert told["refused_that_work"] <= 0.1 * told["refused"], told["working"]
    for config in told["working"]:
        assert "accumulators" in config or "prefetch" in config, (
            "only of rules that are known to be too strict"
        )

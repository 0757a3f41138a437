"""The ladder's kernels: right on the CPU for any size, and compiled without spills."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from autotune.banks import access_costs
from autotune.compile.compiler import compile_source
from autotune.config import Config
from autotune.cpu import check_launch, check_on_cpu
from autotune.gpu_tables import find_gpu, list_gpus
from autotune.launch import config_names, plan_launch
from autotune.legality import nearest_legal, search_space, violations
from autotune.model import check_cost, rank
from autotune.problem import Problem
from autotune.problems import make_problem
from autotune.render import render, unused_parameters
from autotune.spec.kernel_spec import KernelSpec
from autotune.spec.load import list_kernels, load_spec

H200 = find_gpu("h200")
A6000 = find_gpu("a6000")
STEPS = tuple(name for name in list_kernels() if name.startswith("ladder/"))
SPECS = {name: load_spec(name) for name in (*STEPS, "peak/ffma")}

# Smaller tiles than the defaults, and what the defaults leave out.
OTHERS: dict[str, list[dict[str, object]]] = {
    "ladder/naive": [{"BLOCK": 8}],
    "ladder/coalesced": [{"BLOCK": 16}],
    "ladder/shared_tiles": [{"BLOCK": 8}],
    "ladder/block_tiles_1d": [{"BM": 32, "BN": 32, "BK": 16, "TM": 4}],
    "ladder/block_tiles_2d": [{"BM": 64, "BN": 64, "BK": 16, "TM": 4, "TN": 8}],
    "ladder/vectorised": [{"BM": 64, "BN": 64, "BK": 16, "TM": 4}],
    "ladder/banks": [{"BANKS": "pad", "BK": 16}, {"BANKS": "none", "TM": 4, "BM": 64, "BK": 16}],
    "ladder/autotuned_2d": [{"BM": 64, "BN": 128, "BK": 32, "TM": 4, "TN": 4, "BANKS": "pad"}],
    "ladder/warp_tiles": [
        {"BM": 64, "BN": 64, "BK": 8, "WM": 32, "WN": 32, "WNITER": 1, "TN": 4, "BANKS": "pad"}
    ],
    "ladder/double_registers": [
        {"BM": 64, "BN": 64, "BK": 8, "WM": 32, "WN": 32, "WNITER": 1, "BANKS": "none", "ORDER": "nested"}
    ],
    "ladder/double_cpasync": [{"BM": 64, "BN": 64, "WM": 32, "WN": 32, "WNITER": 2, "TM": 4, "STAGES": 2}],
    "ladder/split_k": [
        {"BM": 32, "BN": 32, "BK": 8, "WM": 16, "WNITER": 1, "TM": 4, "SPLIT": 1, "STAGES": 4}
    ],
    "ladder/tma": [{"BM": 64, "BN": 64, "WM": 32, "BK": 32, "WNITER": 1, "STAGES": 4}],
    "ladder/inner_product": [{"LANES": 32, "COLUMNS": 4, "THREADS": 64}, {"LANES": 1, "COLUMNS": 2}],
}
SIZES = ((1, 1, 1), (33, 65, 17), (130, 70, 67))


@pytest.fixture(autouse=True, scope="module")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOTUNE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def cpu_config(spec: KernelSpec, changes: dict[str, object] | None = None) -> Config:
    """One that the CPU can run: without a cluster."""
    base = spec.default_config("h200").replace(changes or {})  # type: ignore[arg-type]
    return base.replace({"REDUCE": "atomic"}) if "REDUCE" in base else base


def problem_of(spec: KernelSpec, sizes: tuple[int, ...], align: int, beta: str) -> Problem:
    """With arrays less aligned than packed ones would be."""
    classes = {kind.name: beta if kind.name == "beta" else align for kind in spec.problem.classes}
    return Problem(tuple(zip(spec.problem.sizes, sizes, strict=True)), "float32", tuple(classes.items()))


def check(
    spec: KernelSpec, config: Config, sizes: tuple[int, ...], align: int, beta_class: str, **scalars: float
) -> None:
    problem = problem_of(spec, sizes, align, beta_class)
    assert violations(spec, H200, problem, config) == ()
    source, launch = render(spec, H200, problem, config), plan_launch(spec, problem, config, H200)
    check_launch(source, launch, spec.reference, scalars)


QUICK = ("coalesced", "banks", "double_registers", "double_cpasync", "split_k", "inner_product")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name.split("/")[1] in QUICK else pytest.mark.slow) for name in STEPS],
)
def test_defaults_are_right_for_any_size(name: str) -> None:
    spec = SPECS[name]
    config = cpu_config(spec, {"SPLIT": 2} if name == "ladder/split_k" else None)
    for sizes in SIZES:
        check(spec, config, sizes, 1, "general")
    check(spec, config, (7, 5, 0), 1, "general", beta=0.5)
    check(spec, config, (33, 5, 9), 1, "general", alpha=0.0)  # with NaN in A and B
    check(spec, config, (33, 5, 9), 1, "general", beta=0.0)  # with NaN in C


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_other_configurations_are_right(name: str) -> None:
    spec = SPECS[name]
    for changes in OTHERS[name]:
        config = cpu_config(spec, changes)
        for sizes in (*SIZES, (64, 64, 64), (128, 256, 96)):
            align = 4 if all(size % 4 == 0 for size in sizes[1:]) else 1
            if name == "ladder/tma" and align == 4:
                align = 2  # bulk copies need the GPU
            check(spec, config, sizes, align, "zero")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in STEPS if name not in ("ladder/tma", "ladder/naive")])
def test_accesses_stay_inside(name: str) -> None:
    spec = SPECS[name]
    for sizes in ((33, 65, 17), (130, 72, 68)):
        check_on_cpu(spec, H200, make_problem(spec, sizes), cpu_config(spec), sanitize="address")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["shared_tiles", "warp_tiles", "double_registers", "double_cpasync", "split_k"]
)
def test_threads_do_not_race(name: str) -> None:
    spec = SPECS[f"ladder/{name}"]
    config = cpu_config(spec, OTHERS[f"ladder/{name}"][0])
    check_on_cpu(spec, H200, make_problem(spec, (33, 40, 67)), config, sanitize="thread")


def test_the_peak_is_measured_by_steps_that_are_all_taken() -> None:
    spec = SPECS["peak/ffma"]
    check_on_cpu(spec, H200, make_problem(spec, (300, 5)), spec.default_config("h200"))


def test_every_step_is_sound() -> None:
    for name, spec in SPECS.items():
        assert spec.name == name
        assert unused_parameters(spec) == []
        check_cost(spec)
        names = config_names(spec, H200, spec.default_config("h200"), make_problem(spec, 64))
        access_costs(spec, names)  # raises where an address is none


def test_the_model_ranks_the_ladder_as_the_seed_measured_it() -> None:
    order = ("naive", "coalesced", "shared_tiles", "block_tiles_1d", "block_tiles_2d", "warp_tiles")
    times = []
    for name in order:
        spec = SPECS[f"ladder/{name}"]
        problem = make_problem(spec, 4096)
        times += rank(spec, A6000, problem, [spec.default_config("a6000")])
    assert times == sorted(times, reverse=True)


def test_padding_and_permuting_free_the_banks() -> None:
    spec = SPECS["ladder/banks"]
    found = {}
    for banks in ("none", "pad", "xor"):
        names = config_names(spec, H200, spec.default_config("h200").replace({"BANKS": banks}))
        found[banks] = {cost.name: cost.wavefronts for cost in access_costs(spec, names)}
    for banks in ("pad", "xor"):
        for name, least in {"write_a": 1, "read_b": 4, "read_a": 2, "write_b": 4}.items():
            assert found[banks][name] == least, (banks, name)
    assert found["none"]["write_a"] == 2
    assert found["none"]["read_b"] == 8


@pytest.mark.parametrize("name", ["ladder/tma", "ladder/split_k"])
def test_kernels_of_hopper_compile(name: str) -> None:
    spec = SPECS[name]
    problem = make_problem(spec, 4096)
    source = render(spec, H200, problem, spec.default_config("h200"))
    assert ("cp.async.bulk" if name == "ladder/tma" else "__cluster_dims__(4, 1, 1)") in source.text
    assert compile_source(source, H200.arch).resources.spill_store_bytes == 0


ARCHITECTURES = {gpu.arch: gpu for gpu in list_gpus()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "arch",
    [
        arch if arch in ("sm_80", "sm_90", "sm_120") else pytest.param(arch, marks=pytest.mark.thorough)
        for arch in sorted(set(ARCHITECTURES) - {"sm_75"})
    ],
)
@pytest.mark.parametrize("name", STEPS)
def test_defaults_compile_without_spills(name: str, arch: str) -> None:
    spec, gpu = SPECS[name], ARCHITECTURES[arch]
    if name == "ladder/tma" and gpu.compute_capability < (9, 0):
        assert not search_space(spec, gpu, None)
        return
    config = spec.default_config(gpu.table)
    assert config == nearest_legal(search_space(spec, gpu, None), config)
    for size in (4096, 1009):
        source = render(spec, gpu, make_problem(spec, size), config)
        assert compile_source(source, gpu.arch).resources.spill_store_bytes == 0

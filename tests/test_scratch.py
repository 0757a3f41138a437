"""Scratch memory: planned from the configuration, zero before a launch, and held to be zero after it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fakes.gpu import FakeGpu, gemm_launch, right, runnable

from autotune.candidate import LaunchPlan, ScratchPlan
from autotune.cpu import check_on_cpu
from autotune.device.launcher import Packed
from autotune.device.messages import Workload
from autotune.device.scratch import GUARD_BYTES, Scratch
from autotune.device.verify import Trap, verify_run
from autotune.device.worker import _bind
from autotune.errors import InputError, StageFailure
from autotune.gpu_tables import find_gpu
from autotune.launch import check_call, plan_launch
from autotune.legality import search_space, violations
from autotune.problems import make_problem
from autotune.protocol import Protocol
from autotune.records import Status
from autotune.render import kernel_hash, unused_parameters
from autotune.spec.kernel_spec import ScratchArgument
from autotune.spec.load import load_spec, read_spec

FAMILY = Path(__file__).parent / "data" / "family"
MATVEC = load_spec("matvec", [FAMILY])
DIRTY = load_spec("matvec_dirty", [FAMILY])
H200 = find_gpu("h200")
DEFAULT = MATVEC.default_config("h200")


@pytest.fixture(autouse=True, scope="module")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOTUNE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def test_its_size_follows_from_config_and_problem() -> None:
    problem = make_problem(MATVEC, (100, 30))
    assert plan_launch(MATVEC, problem, DEFAULT, H200).scratch is None
    launch = plan_launch(MATVEC, problem, DEFAULT.replace({"SPLIT": 2}), H200)
    assert launch.scratch == ScratchPlan("workspace", 800)
    assert isinstance(MATVEC.scratch, ScratchArgument)
    assert unused_parameters(MATVEC) == []
    assert kernel_hash(MATVEC) != kernel_hash(DIRTY)


def test_a_kernel_has_one(tmp_path: Path) -> None:
    text = (FAMILY / "configs/kernels/matvec.yaml").read_text()
    path = tmp_path / "k.yaml"
    path.write_text(
        text.replace("\nreference:", "\n  - {scratch: more, bytes: 4}\n\nreference:").replace("matvec", "k")
    )
    with pytest.raises(InputError, match="at most one scratch argument, got several"):
        read_spec(path)
    path.write_text(text.replace("8 * M", "8 * L"))
    with pytest.raises(InputError, match=r"arguments.6.bytes: unknown name 'L'"):
        read_spec(path)


def test_more_than_the_gpu_has_is_refused(tmp_path: Path) -> None:
    problem = make_problem(MATVEC, (100, 30))
    text = (FAMILY / "configs/kernels/matvec.yaml").read_text()
    path = tmp_path / "matvec.yaml"
    line = next(number for number, each in enumerate(text.splitlines(), 1) if "scratch: workspace" in each)
    for size in ("1e30", "10 ** 30", f"{H200.memory_bytes} * M"):
        path.write_text(text.replace("0 if SPLIT == 1 else 8 * M", size))
        spec = read_spec(path)
        with pytest.raises(
            InputError, match=rf"matvec.yaml:{line}.*workspace.*exceeds the {H200.memory_bytes:,} of"
        ):
            check_call(spec, problem, H200)
        (broken,) = violations(spec, H200, problem, DEFAULT)
        assert broken.limit == "memory_bytes"
        assert f"arguments.workspace.bytes [{path}:{line}]" in str(broken)
    path.write_text(text.replace("8 * M", "1e30"))
    spec = read_spec(path)
    check_call(spec, problem, H200)
    split = DEFAULT.replace({"SPLIT": 2})
    whole = DEFAULT.replace({"SPLIT": 1})
    assert violations(spec, H200, problem, split)
    assert not violations(spec, H200, problem, whole)
    space = search_space(spec, H200, problem)
    assert whole in space
    assert split not in space


def test_a_launch_without_need_passes_a_null_pointer() -> None:
    launch = plan_launch(MATVEC, make_problem(MATVEC, 8), DEFAULT, H200)
    addresses = {"A": 512, "x": 1024, "y": 2048}
    assert int(Packed.of(launch, addresses).values[-1]) == 0
    split = plan_launch(MATVEC, make_problem(MATVEC, 8), DEFAULT.replace({"SPLIT": 2}), H200)
    assert int(Packed.of(split, {**addresses, "workspace": 4096}).values[-1]) == 4096
    with pytest.raises(KeyError):
        Packed.of(split, addresses)


@pytest.mark.parametrize("trans", ["n", "t"])
@pytest.mark.parametrize("split", [1, 4])
def test_the_kernel_runs_on_the_cpu(trans: str, split: int) -> None:
    problem = make_problem(MATVEC, (5, 70), classes={"trans_a": trans, "align_a": 1})
    config = DEFAULT.replace({"SPLIT": split})
    assert check_on_cpu(MATVEC, H200, problem, config, "address").worst_error < 4


def test_the_cpu_tells_of_memory_that_is_left_dirty() -> None:
    problem = make_problem(DIRTY, (5, 70))
    assert check_on_cpu(DIRTY, H200, problem, DEFAULT)
    with pytest.raises(StageFailure, match="left its scratch memory dirty at byte 20") as caught:
        check_on_cpu(DIRTY, H200, problem, DEFAULT.replace({"SPLIT": 2}))
    assert caught.value.status is Status.WRONG_RESULT


def with_scratch(nbytes: int) -> LaunchPlan:
    launch = gemm_launch(4, 4, 4)
    return replace(launch, arguments=(*launch.arguments, ScratchPlan("workspace", nbytes)))


def writing(at: int, value: int, nbytes: int = 100) -> object:
    """A right kernel that finds its scratch memory zero and puts one byte there."""

    def kernel(gpu: FakeGpu, launch: LaunchPlan, addresses: Mapping[str, int]) -> None:
        right(gpu, launch, addresses)
        assert not gpu.at(addresses["workspace"], nbytes).any()
        gpu.at(addresses["workspace"] + at, 1)[...] = value

    return kernel


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (0, 0, ""),
        (
            17,
            1,
            "scratch workspace has to be left zero, got 1 words that are not, the first at byte 16 of 100",
        ),
        (104, 1, "the first 4 bytes past its end of 100"),
    ],
)
def test_verifying_holds_a_kernel_to_its_promise(at: int, value: int, reason: str) -> None:
    gpu = FakeGpu({"right": writing(at, value)})  # type: ignore[dict-item]
    run = runnable(with_scratch(100))
    trap = Trap(gpu, Workload.of(run, Protocol()))
    for _ in range(2):  # what one run leaves does not reach the next
        if not reason:
            assert verify_run(gpu, run, trap).worst_error < 4
            continue
        with pytest.raises(StageFailure, match=reason) as caught:
            verify_run(gpu, run, trap)
        assert caught.value.status is Status.WRONG_RESULT
        assert caught.value.accuracy is not None


def test_launches_share_the_largest() -> None:
    gpu = FakeGpu()
    small, large = with_scratch(8), with_scratch(1000)
    scratch = Scratch(gpu, [small, gemm_launch(4, 4, 4), large])
    assert scratch.addresses(small) == scratch.addresses(large)
    assert scratch.addresses(gemm_launch(4, 4, 4)) == {}
    assert np.count_nonzero(gpu.blocks[-1]) == 0
    assert gpu.blocks[-1].size == 1000 + GUARD_BYTES
    assert Scratch(gpu, [gemm_launch(4, 4, 4)]).addresses(large) == {}


def test_scratch_memory_lives_as_long_as_the_call_that_uses_it() -> None:
    gpu, launch = FakeGpu(), with_scratch(100)
    scratch = Scratch(gpu, [launch])
    kept = weakref.ref(scratch)
    bind = _bind(gpu, None, launch, scratch)
    del scratch
    gc.collect()
    assert kept() is not None
    del bind
    gc.collect()
    assert kept() is None

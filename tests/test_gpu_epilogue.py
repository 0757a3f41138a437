"""The script that measures what a fused epilogue saves, on a GPU and libraries made of NumPy."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fakes.bench import Pool
from fakes.cublas import FakeCublasLibrary
from fakes.gpu import FakeGpu

sys.path.insert(0, str(Path(__file__).parents[1] / "tools" / "gpu"))

import epilogue
from epilogue import ACTIVATIONS, CupyAfter, Place, parse, record

from autotune.buffers import lay_out
from autotune.choice.answer import Match
from autotune.config import Value
from autotune.device.cublas import Cublas
from autotune.epilogue import expected_epilogue
from autotune.gpu_tables import find_gpu
from autotune.problems import make_problem, parse_size
from autotune.references import get_reference
from autotune.spec.load import load_spec
from autotune.starts import starting_point

H200 = find_gpu("h200")
TIMES = {"cublas": 1.0, "bias_relu": 0.25, "bias_gelu": 0.5, "kernel 0": 0.8, "kernel 1": 0.8}
TIMES |= {"kernel 2": 0.9, "kernel 3": 1.0}
"""By entry: kernel 0 is sgemm, then come the epilogues none, relu and gelu."""


def fake_cupy(gpu: FakeGpu) -> SimpleNamespace:
    """Arrays at addresses, and elementwise kernels that are read as the reference reads an expression."""

    def elementwise(inputs: str, outputs: str, operation: str, name: str) -> object:
        assert (inputs, outputs) == ("float32 c, float32 bias", "float32 out")
        before, text = operation.split("; out = ")
        assert before == "const float x = c + bias"

        def call(c: np.ndarray, bias: np.ndarray, out: np.ndarray) -> None:
            def run(*_: object) -> None:
                x = (c + bias).astype(float)
                out[...] = expected_epilogue(x, np.ones_like(x), None, {"EPILOGUE": text}, 1e-7, np)[0]

            gpu.kernels[name] = run
            gpu.bind(name, None, {})()  # type: ignore[arg-type]

        return call

    def array(
        shape: tuple[int, ...], dtype: type, memory: np.ndarray, strides: tuple[int, ...]
    ) -> np.ndarray:
        return np.ndarray(shape, dtype, memory, strides=strides)  # type: ignore[call-overload, no-any-return]

    cuda = SimpleNamespace(
        UnownedMemory=lambda address, nbytes, owner, device: gpu.at(address, nbytes),
        MemoryPointer=lambda memory, offset: memory[offset:],
    )
    return SimpleNamespace(ElementwiseKernel=elementwise, ndarray=array, float32=np.float32, cuda=cuda)


def right(gpu, launch, addresses):
    """What the reference expects, of whichever kernel it is."""
    views = {}
    for plan in launch.buffers:
        layout = lay_out([plan], guarded=False)
        memory = gpu.at(addresses[plan.name] - layout.places[0].start, layout.nbytes)
        views |= layout.views(memory)
    name = "matmul_epilogue" if "bias" in views else "matmul"
    expected = get_reference(name).expected(views, launch.known)
    views["C"][...] = expected.values["C"]


load_once = cache(load_spec)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    monkeypatch.setattr(epilogue, "load_spec", load_once)
    monkeypatch.setattr(epilogue, "WARM", replace(epilogue.WARM, sample_ms=2.0, min_samples=2, max_samples=3))
    kernels = {f"kernel {number}": right for number in range(12)}
    return FakeGpu(kernels, time_ms=lambda entry, _: TIMES.get(entry, 1.0))


def run(gpu: FakeGpu, tmp_path: Path, *arguments: str, pool: Pool | None = None) -> tuple[int, dict]:
    pool = pool or Pool(gpu)
    cublas = Cublas(7, gpu.allocate(64), gpu.address, FakeCublasLibrary(gpu))
    place = Place(gpu, H200, cublas, CupyAfter(fake_cupy(gpu)), lambda: None)
    spec = load_once("sgemm")

    def best(size: str, kernel: str, classes: Mapping[str, Value]) -> SimpleNamespace:
        point = starting_point(spec, H200, make_problem(spec, parse_size(size, spec)))
        if classes.get("activation") == "gelu":
            return SimpleNamespace(config=point.config.replace({"GROUP_M": 1}), match=Match.EXACT)
        return SimpleNamespace(config=point.config, match=Match.DEFAULT)

    options = parse(["--out", str(tmp_path), "--commit", "abc", *arguments])
    code = record(options, place, lambda source: pool.submit(source, "sm_90"), best, {"gpu": "Fake GPU"})
    return code, json.loads((tmp_path / "epilogue.json").read_text())


def test_fused_and_separate_are_checked_timed_and_compared(gpu, tmp_path, capsys):
    code, told = run(gpu, tmp_path, "--sizes", "20x16x8")
    assert code == 0
    assert (told["commit"], told["gpu"], told["left_out"]) == ("abc", "Fake GPU", [])
    assert told["protocol"] == "warm/normal-1/1"
    one = told["sizes"]["20x16x8"]
    assert one["failed"] == {}
    own = {name: "GROUP_M=1," in config for name, config in one["configs"].items()}
    assert own == {"sgemm": False, "sgemm again": False, "unused": False, "relu": False, "gelu": True}
    assert {name: round(each["time_ms"], 6) for name, each in one["times"].items()} == {
        "sgemm": 0.8,
        "sgemm again": 0.8,
        "unused": 0.8,
        "relu": 0.9,
        "gelu": 1.0,
        "cublas": 1.0,
        "cublas, then relu": 1.25,
        "cublas, then gelu": 1.5,
    }
    assert all(
        each["tolerance"] > 0 and each["worst_error"] <= each["tolerance"] for each in one["times"].values()
    )
    assert one["ratios"] == pytest.approx(
        {
            "A/A": 1.0,
            "cost of an unused epilogue": 1.0,
            "cuBLAS over sgemm": 1.25,
            "separate over fused, relu": 1.25 / 0.9,
            "separate over fused, gelu": 1.5,
            "fused over plain, relu": 0.9 / 0.8,
            "fused over plain, gelu": 1.25,
        }
    )
    assert "separate over fused, relu" in capsys.readouterr().out


def test_what_is_wrong_or_does_not_compile_gets_no_time(gpu, tmp_path):
    def forgets_the_bias(gpu, launch, addresses):
        right(gpu, launch, addresses)
        plan = next(plan for plan in launch.buffers if plan.name == "C")
        gpu.at(addresses["C"], 4 * plan.pitch * plan.shape[0]).view(np.float32)[5] += 1

    gpu.kernels["kernel 2"] = forgets_the_bias
    code, told = run(gpu, tmp_path, "--sizes", "20x16x8", pool=Pool(gpu, broken=("kernel 3",)))
    one = told["sizes"]["20x16x8"]
    assert code == 1
    assert set(one["failed"]) == {"relu", "gelu"}
    assert "wrong_result" in one["failed"]["relu"]
    assert "expected" in one["failed"]["relu"]
    assert "compile_error" in one["failed"]["gelu"]
    assert set(one["times"]) == {
        "sgemm", "sgemm again", "unused", "cublas", "cublas, then relu", "cublas, then gelu"
    }  # fmt: skip
    assert not any("relu" in name or "gelu" in name for name in one["ratios"])


def test_a_separate_kernel_that_is_wrong_is_told(gpu, tmp_path, monkeypatch):
    monkeypatch.setitem(ACTIVATIONS, "relu", "fmaxf(x, 0.1f)")
    code, told = run(gpu, tmp_path, "--sizes", "20x16x8")
    assert code == 1
    assert set(told["sizes"]["20x16x8"]["failed"]) == {"cublas, then relu"}


def test_sizes_that_the_time_does_not_reach_are_left_out(gpu, tmp_path, monkeypatch):
    ticks = iter([0.0])
    monkeypatch.setattr(epilogue, "time", SimpleNamespace(monotonic=lambda: next(ticks, 39.0)))
    assert run(gpu, tmp_path, "--sizes", "12,16", "--limit", "39")[1]["left_out"] == ["12", "16"]
    ticks = iter([0.0, 0.0, 0.0, 0.0])
    code, told = run(gpu, tmp_path, "--sizes", "12,16", "--limit", "39")
    assert (code, told["left_out"], list(told["sizes"])) == (1, ["16"], ["12"])


def test_cupy_takes_the_separate_kernels():
    cupy = pytest.importorskip("cupy")
    assert set(CupyAfter(cupy)._kernels) == {"relu", "gelu"}

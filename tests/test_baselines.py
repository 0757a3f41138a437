"""The script that calls the vendor's product in many ways, on a GPU and libraries made of NumPy."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fakes.cublas import FakeCublasLibrary, FakeCublasLtLibrary
from fakes.gpu import FakeGpu

sys.path.insert(0, str(Path(__file__).parents[1] / "tools" / "gpu"))

import baselines
from baselines import Plain, Ways, label, parse_sizes, show, start_part, time_ways

from autotune.device.cublaslt import CublasLt

SIZE = (16, 24, 8)


class Library(FakeCublasLibrary):
    """Remembers workspaces; slower with little of it, as a library without split-K would be."""

    def __init__(self, gpu):
        super().__init__(gpu)
        self.workspaces = []

    def cublasSetWorkspace_v2(self, handle, workspace, size):
        self.workspaces.append(size.value)
        return super().cublasSetWorkspace_v2(handle, workspace, size)


def fake_torch(gpu):
    def mm(a, b, out):
        def run(*_):
            out[...] = a @ b

        gpu.kernels["torch"] = run
        gpu.bind("torch", None, {})()

    class Own(np.ndarray):
        def normal_(self):
            self[...] = 1.0
            return self

    cuda = SimpleNamespace(ExternalStream=lambda handle: handle, stream=lambda _: contextlib.nullcontext())
    return SimpleNamespace(
        as_tensor=lambda array, device: array,
        empty_like=lambda array: np.empty(array.shape, np.float32).view(Own),
        mm=mm,
        cuda=cuda,
    )


@pytest.fixture
def gpu():
    gpu = FakeGpu(time_ms=lambda entry, number: {"torch": 0.5}.get(entry, 1.0))
    gpu.stream = 7
    return gpu


def test_every_way_computes_the_product_and_is_timed_in_turn(gpu):
    library = Library(gpu)
    lt = CublasLt(7, gpu.allocate(64), gpu.address, FakeCublasLtLibrary(gpu))
    ways = Ways(gpu, library, lt, fake_torch(gpu), 3).at(SIZE)
    names = [way.name for way in ways]
    assert len(names) == len(set(names)) == 8 + 7 + 3 + 3
    assert sorted(library.workspaces) == [mib * 2**20 for mib in (0, 1, 4, 8, 16, 32, 32, 64, 128)]
    assert ("math", 2) in library.calls
    samples = time_ways(gpu, ways, time.monotonic() + 60)
    # The library refuses its third algorithm: told, and left out.
    assert set(samples) == set(names) - {"cublasLt 2"}
    assert {len(taken) for taken in samples.values()} == {baselines.ROUNDS}
    assert np.median(samples["torch"]) == pytest.approx(0.5)
    assert np.median(samples["ctypes, graph of 20"]) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "name", ["ctypes, 32 MiB", "ctypes, off by 4 bytes", "ctypes, 2 MiB apart", "cublasLt 0", "torch"]
)
def test_ways_call_the_library_once(gpu, name):
    lt = CublasLt(7, gpu.allocate(64), gpu.address, FakeCublasLtLibrary(gpu))
    ways = Ways(gpu, Library(gpu), lt, fake_torch(gpu), 1)
    way = next(way for way in ways.at(SIZE) if way.name == name)
    entry = {"torch": "torch", "cublasLt 0": "cublaslt 0"}.get(name, "cublas")
    way.queue()
    assert gpu.counts == {entry: 1}


def test_time_ends_the_rounds_but_never_before_the_third(gpu):
    ways = Ways(gpu, Library(gpu), None, None, 4).at(SIZE)
    samples = time_ways(gpu, ways, time.monotonic() - 1)
    assert {len(taken) for taken in samples.values()} == {3}


def test_a_handle_without_a_workspace_sets_none(gpu):
    library = Library(gpu)
    Plain(gpu, library, None)
    assert library.workspaces == []
    assert "workspace" not in library.calls


def test_sizes_and_the_table():
    assert parse_sizes("256,3x4x5", "") == [(256, 256, 256), (3, 4, 5)]
    assert len(parse_sizes("", "sgemm")) == 48
    part = {
        "cublas": "13.0.2", "library": "libcublas.so.13", "torch": None, "emulation_variable": "0",
        "sizes": {label(SIZE): {"samples_ms": {"ctypes, 32 MiB": [0.001, 0.003, 0.002]}, "sm_clock_mhz": 1980}},
    }  # fmt: skip
    text = show({"plain": part, "torch": {"error": "exit 1: no torch"}})
    assert "ctypes, 32 MiB" in text
    assert "2.000" in text
    assert "torch: exit 1: no torch" in text


def test_parts_run_in_processes_of_their_own_and_failures_are_told(tmp_path, monkeypatch):
    script = tmp_path / "part.py"
    monkeypatch.setattr(baselines, "__file__", str(script))
    script.write_text(
        "import json, os; print('note'); "
        "print(json.dumps({'variable': str(os.environ.get('CUBLAS_EMULATE_SINGLE_PRECISION'))}))"
    )
    assert start_part("plain", [], 10, 10) == {"variable": "0"}
    assert start_part("environment", [], 10, 10) == {"variable": "None"}
    script.write_text("import sys; print('{'); sys.exit('broken')")
    assert "broken" in start_part("plain", [], 10, 10)["error"]
    script.write_text("import time; time.sleep(60)")
    assert "longer than" in start_part("plain", [], 1, 1)["error"]


def test_a_part_tells_what_it_ran_with(gpu, monkeypatch):
    gpu.facts = SimpleNamespace(pci_bus_id="0000:18:00")
    monkeypatch.setattr(baselines, "load_library", lambda: Library(gpu))
    monkeypatch.setattr(baselines, "load_lt_library", lambda: FakeCublasLtLibrary(gpu))
    monkeypatch.setattr("autotune.device.cuda_device.CudaDevice", lambda facts: gpu)
    monkeypatch.setattr("autotune.device.local.describe_device", lambda ordinal: gpu.facts)
    monkeypatch.setattr("autotune.device.nvml.clock_reader", lambda bus: lambda: None)
    told = baselines.run_part("plain", [SIZE, (8, 8, 8)], 2, 60.0)
    assert list(told["sizes"]) == ["16x24x8", "8x8x8"]
    assert told["cublas"] == "13.0.2"
    assert "ctypes, own workspace" in show({"plain": json.loads(json.dumps(told))})
    told = baselines.run_part("plain", [SIZE], 2, -1.0)
    assert told["left_out"] == ["16x24x8"]

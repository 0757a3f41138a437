"""The comparison with Kernel Tuner on a GPU, as far as it goes without one.

The second half needs Kernel Tuner (`pip install --group benchmark`); its backend is one that writes what is right.
"""

from __future__ import annotations

import pickle
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.gpu_tables import find_gpu
from autotune.problems import make_problem
from autotune.render import render
from autotune.spec.load import load_spec

sys.path.append(str(Path(__file__).parents[1] / "tools" / "gpu"))

import kernel_tuner_side as side
import versus_kernel_tuner as versus

SPEC, GPU = load_spec("sgemm"), find_gpu("h200")
PROBLEM = make_problem(SPEC, (64, 96, 32))


@pytest.fixture(scope="module")
def case() -> dict[str, Any]:
    configs = versus.choose_configs(SPEC, GPU, PROBLEM, 40, seed=3)
    assert len(set(configs)) == 40
    return versus.make_case(SPEC, GPU, PROBLEM, configs, "adaptive_tabu_greywolf", seconds=2.0)


def test_the_case_holds_what_we_ourselves_would_run(case: dict[str, Any]) -> None:
    configs = versus.choose_configs(SPEC, GPU, PROBLEM, 40, seed=3)
    assert case["sources"] == [render(SPEC, GPU, PROBLEM, config).text for config in configs]
    ((place, (values, _)),) = case["expected"].items()
    a, b = (
        argument.astype(np.float64)
        for argument in case["arguments"]
        if getattr(argument, "shape", ()) in [(64, 32), (32, 96)]
    )
    assert np.allclose(values, a @ b)
    assert case["answer"][place].dtype == np.float32
    assert np.isnan(case["arguments"][place]).all()
    pickle.dumps(case)
    verify = side.verifier(case["expected"], case["tolerance"])
    results = [None] * place + [values.astype(np.float32)]
    assert verify(None, results, 0.0)
    results[place] = results[place].copy()
    results[place][5, 7] += 0.01
    assert not verify(None, results, 0.0)
    results[place][5, 7] = np.nan
    assert not verify(None, results, 0.0)


def test_kernel_tuner_searches_exactly_our_list(case: dict[str, Any]) -> None:
    pytest.importorskip("kernel_tuner", reason="Kernel Tuner is not installed")
    from kernel_tuner.searchspace import Searchspace

    parameters = side.parameters_of(case["rows"])
    names = list(parameters)
    space = Searchspace(parameters, side.restrictions_of(case["rows"], names), 1024)
    assert set(space.list) == {tuple(row[name] for name in names) for row in case["rows"]}
    assert space.size == 40


class Backend:
    """What Kernel Tuner asks of CuPy; kernels write what is right, and each launch is remembered."""

    launches: list[tuple[str, Any, Any, int]] = []  # noqa: RUF012
    right: dict[int, np.ndarray] = {}  # noqa: RUF012

    def __init__(
        self, device: int = 0, iterations: int = 7, compiler_options: Any = None, observers: Any = None
    ) -> None:
        from kernel_tuner.observers.observer import BenchmarkObserver

        class Clock(BenchmarkObserver):  # type: ignore[misc]
            def get_results(self) -> dict[str, Any]:
                return {"time": 1.0, "times": [1.0] * iterations}

        self.max_threads = 1024
        self.iterations = iterations
        self.devprops = {"MaxSharedMemoryPerBlockOptin": 232448}
        self.env: dict[str, Any] = {}
        self.name = "fake"
        self.smem_size = 0
        self.observers = [*(observers or []), Clock()]
        for observer in self.observers:
            observer.register_device(self)

    def compile(self, instance: Any) -> Any:
        return types.SimpleNamespace(source=instance.kernel_string, shared_size_bytes=0)

    def ready_argument_list(self, arguments: list[Any]) -> list[Any]:
        return [argument.copy() if isinstance(argument, np.ndarray) else argument for argument in arguments]

    def copy_shared_memory_args(self, smem_args: dict[str, int]) -> None:
        self.smem_size = smem_args["size"]

    def run_kernel(self, func: Any, gpu_args: list[Any], threads: Any, grid: Any, stream: Any = None) -> None:
        assert func.max_dynamic_shared_size_bytes >= self.smem_size
        Backend.launches.append((func.source, grid, threads, self.smem_size))
        for place, values in Backend.right.items():
            gpu_args[place][...] = values

    def memcpy_dtoh(self, dest: np.ndarray, src: np.ndarray) -> None:
        dest[...] = src

    def memcpy_htod(self, dest: np.ndarray, src: np.ndarray) -> None:
        dest[...] = src

    def refresh_memory(self, device: list[Any], host: list[Any], should_sync: list[bool]) -> None:
        for there, here, wanted in zip(device, host, should_sync, strict=True):
            if wanted:
                there[...] = here

    def __getattr__(self, name: str) -> Any:
        return lambda *_: True


def test_kernel_tuner_launches_our_kernels_as_we_do(
    case: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("kernel_tuner", reason="Kernel Tuner is not installed")
    import kernel_tuner.backends.cupy

    monkeypatch.setattr(kernel_tuner.backends.cupy, "CupyFunctions", Backend)
    monkeypatch.setattr(Backend, "launches", [])
    monkeypatch.setattr(Backend, "right", {place: values for place, (values, _) in case["expected"].items()})
    found = side.tune(case)
    assert 10 <= found["verified"] <= 40
    wanted = set()
    for source, launch, row in zip(case["sources"], case["launches"], case["rows"], strict=True):
        wanted.add((source, launch["grid"], (row[side.THREADS], 1, 1), launch["smem"]))
    launched = {
        (source, tuple(grid), tuple(threads), smem) for source, grid, threads, smem in Backend.launches
    }
    assert launched <= wanted
    assert len(launched) == found["verified"]
    monkeypatch.chdir(tmp_path)  # It leaves the source of a wrong kernel where it is.
    monkeypatch.setattr(Backend, "right", {})
    with pytest.raises(RuntimeError, match="verification failed"):
        side.tune(case)

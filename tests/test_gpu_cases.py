"""The runner of the GPU cases, with cases that need no GPU: what was not checked has not passed."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

TOOLS = Path(__file__).parents[1] / "tools" / "gpu"


@pytest.mark.parametrize(("ids", "code"), [("good", 0), ("good,lacking", 1), ("good,bad", 1), ("slow", 1)])
def test_only_what_was_checked_and_found_right_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ids: str, code: int
) -> None:
    monkeypatch.syspath_prepend(str(TOOLS))
    import bench
    import case_list
    import cases

    def lacking(*_: object) -> None:
        raise case_list.NotChecked("nvcc is not here")

    def bad(*_: object) -> None:
        raise AssertionError("1 is not 2")

    def slow(*_: object) -> None:
        while True:
            pass

    acts = {"good": lambda *_: None, "lacking": lacking, "bad": bad, "slow": slow}
    gpu = SimpleNamespace(spec=SimpleNamespace(name="Fake GPU"), pci_bus_id="", environment="")
    opened = contextlib.nullcontext(SimpleNamespace(gpu=gpu))
    monkeypatch.setattr(bench.Bench, "open", lambda: opened)
    listed = tuple(case_list.Case(name, "", 1, act) for name, act in acts.items())
    monkeypatch.setattr(case_list, "CASES", listed)
    monkeypatch.setattr(sys, "argv", ["cases.py", "--only", ids, "--out", str(tmp_path)])
    assert cases.main() == code
    told = json.loads((tmp_path / "cases.json").read_text())
    states = {"good": True, "lacking": None, "bad": False, "slow": False}
    assert {name: one["passed"] for name, one in told.items()} == {
        name: states[name] for name in ids.split(",")
    }
    passed = [name for name in ids.split(",") if states[name]]
    assert f"{len(passed)} of {len(told)} passed" in capsys.readouterr().out


@pytest.mark.parametrize(("reads", "stays"), [(False, False), (True, False), (False, True)])
def test_T02_infinities_in_c_are_noticed_where_they_are_read_or_left(
    monkeypatch: pytest.MonkeyPatch, reads: bool, stays: bool
) -> None:
    monkeypatch.syspath_prepend(str(TOOLS))
    import case_correctness
    import numpy as np
    from fakes.gpu import gemm_launch, runnable

    launch = gemm_launch(5, 7, 3, pad=2)

    class Watch:
        cupy = np

        def function(self, kernel: object) -> object:
            def run(grid: object, block: object, arguments: tuple[object, ...], shared_mem: int) -> None:
                a, b, c = (
                    np.reshape(values, (plan.shape[0], plan.pitch))[:, : plan.shape[1]]
                    for plan, values in zip(launch.arguments, arguments, strict=True)
                    if plan in launch.buffers
                )
                rows = c[:-1] if stays else c
                with np.errstate(invalid="ignore"):
                    rows[...] = (a @ b)[: len(rows)] + (0.0 * rows if reads else 0.0)

            return run

        def arguments(self, _: object) -> tuple[object, ...]:
            rng = np.random.default_rng(1)
            return tuple(
                rng.standard_normal(plan.shape[0] * plan.pitch).astype(np.float32)
                if plan in launch.buffers
                else np.float32(0)
                for plan in launch.arguments
            )

        def close(self) -> None:
            pass

    monkeypatch.setattr(case_correctness, "Stopwatch", Watch)
    assert (case_correctness.over_infinities(runnable(launch)) < 1e-3) == (not reads and not stays)

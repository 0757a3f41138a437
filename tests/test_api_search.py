from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.toy import toy_request, toy_spec

from autotune import api, target
from autotune.compile.pool import CompilePool
from autotune.device import local as device
from autotune.errors import GpuUnavailable, InputError, NothingFound
from autotune.predicted_stages import PredictedStages
from autotune.records import Origin, Status
from autotune.spec.kernel_spec import KernelSpec
from autotune.store import RecordQuery, open_store
from autotune.study.study import run_study


@pytest.fixture(autouse=True)
def nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU in this machine, and a cache of its own."""
    monkeypatch.setattr(device, "local_gpus", lambda folders=(): [])
    monkeypatch.setenv("AUTOTUNE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def spec(tmp_path: Path) -> Iterator[KernelSpec]:
    return toy_spec(tmp_path, {"A": [1, 2], "B": [1, 2]}, template="{{ A }} {{ B }}")


def test_a_gpu_that_is_not_here_is_predicted(tmp_path: Path, spec: KernelSpec) -> None:
    events = []
    results = api.search("a6000", spec, [1024, "2048"], db=tmp_path / "records.db", on_event=events.append)
    assert [result.request.problem.label for result in results] == ["1024", "2048"]
    for result in results:
        assert result.measured == 4
        assert result.exhausted
        assert result.best is not None
        assert result.best.outcome.origin is Origin.PREDICTED
        assert result.best.outcome.resources is not None
        assert result.best.outcome.resources.blocks_per_sm
        assert result.best.environment.driver == ""
        assert result.best.environment.nvrtc
        assert result.best.device.key == "a6000/8.6/84sm"
    assert events[-1].origin is Origin.PREDICTED
    # The same call goes on where it stopped: there is nothing left to do.
    again = api.search("a6000", spec, 1024, db=tmp_path / "records.db")
    assert again[0].records == ()
    assert again[0].best == results[0].best


def test_compile_errors_become_records(tmp_path: Path) -> None:
    # Not C++ for A = 2.
    broken = "\n{% if A == 2 %}this is not C++{% endif %}"
    spec = toy_spec(tmp_path, {"A": [1, 2], "B": [1, 2]}, template=broken)
    with open_store(tmp_path / "records.db") as store, CompilePool(workers=1) as pool:
        result = run_study(toy_request(spec, strategy="exhaustive"), PredictedStages(pool), store)
        assert len(store.records(RecordQuery(status=Status.COMPILE_ERROR))) == 2
    assert result.counts == {Status.OK: 2, Status.COMPILE_ERROR: 2}
    assert result.exhausted


def test_measured_only_refuses_to_predict(spec: KernelSpec, tmp_path: Path) -> None:
    with pytest.raises(GpuUnavailable, match="not in this machine"):
        api.search("a6000", spec, 1024, db=tmp_path / "records.db", measured_only=True)


def test_one_size_that_fails_does_not_lose_the_others(tmp_path: Path) -> None:
    parameters = {"A": [1, 2], "B": [1, 2]}
    spec = toy_spec(tmp_path, parameters, ["N > 1000"], template="{{ A }} {{ B }}")
    results = api.search("a6000", spec, [512, 2048], trials=1, db=tmp_path / "records.db")
    assert results[0].best is None
    assert "legal" in results[0].notes[0]
    assert results[1].best is not None
    with pytest.raises(NothingFound, match="legal"):
        api.search("a6000", spec, 512, trials=1, db=tmp_path / "records.db")


@pytest.mark.parametrize("changes", [{"trials": 0}, {"time_s": -1.0}, {"strategy": "best"}, {"size": []}])
def test_bad_arguments_are_refused_at_once(
    spec: KernelSpec, tmp_path: Path, changes: dict[str, object]
) -> None:
    with pytest.raises(InputError):
        api.search("a6000", spec, **{"size": 1024, "db": tmp_path / "records.db", **changes})  # type: ignore[arg-type]
    assert not (tmp_path / "records.db").exists()
    assert target.find_target("a6000").local is None

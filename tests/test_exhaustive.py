"""The recorder of exhaustive tables, on planted times."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest
from fakes.stages import FakePipelineStages, FakeStages
from fakes.toy import toy_gpu, toy_problem, toy_request, toy_spec

from autotune.config import Config
from autotune.records import Status
from autotune.replay.read import read_tables
from autotune.store import open_store

TOOLS = Path(__file__).parents[1] / "tools" / "gpu"
PARAMETERS = {"A": range(12), "B": range(12), "C": range(6)}
RULES = ["(A + B) % 2 == 0"]


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(TOOLS))
    return importlib.import_module("exhaustive")


def time_of(config: Config) -> float:
    return 1.0 + int(config["A"]) + int(config["B"]) / 12  # type: ignore[call-overload]


def test_the_list_is_legal_distinct_and_the_same_for_a_seed(tmp_path: Path, tool: ModuleType) -> None:
    spec = toy_spec(tmp_path, PARAMETERS, RULES)
    problems = [toy_problem(spec, size) for size in (256, 512)]
    configs = tool.choose_configs(spec, toy_gpu(), problems, 100, 3)
    assert configs == tool.choose_configs(spec, toy_gpu(), problems, 100, 3)
    assert configs != tool.choose_configs(spec, toy_gpu(), problems, 100, 4)
    assert len(configs) == len(set(configs)) == 100
    assert all((config["A"] + config["B"]) % 2 == 0 for config in configs)
    assert configs[0] == spec.default_config(toy_gpu().table)
    assert len(tool.choose_configs(spec, toy_gpu(), problems, 10_000, 3)) == 432


def test_a_table_that_two_runs_fill_is_whole_and_can_be_replayed(tmp_path: Path, tool: ModuleType) -> None:
    spec = toy_spec(tmp_path, PARAMETERS, RULES)
    problems = [toy_problem(spec, size) for size in (256, 512, 1024)]
    configs = tool.choose_configs(spec, toy_gpu(), problems, 40, 1)
    table = tmp_path / "table.jsonl.gz"

    def run(time_s: float, stages: FakeStages, earlier: Path | None) -> dict[str, object]:
        requests = [
            toy_request(spec, None, problem=problem, study=tool.STUDY, time_s=time_s) for problem in problems
        ]
        with open_store(tmp_path / f"{time_s}.sqlite") as store:
            if earlier:
                store.import_jsonl(earlier)
            figures: dict[str, object] = tool.fill_table(requests, configs, stages, store)
            tool.Reporter(store, table, 60.0).write()
        return figures

    def fails(config: Config) -> Status | None:
        return Status.COMPILE_ERROR if config == configs[7] else None

    # Not all of the 120 trials fit into the first run.
    first = run(1.0, FakePipelineStages(time_of, fails, delay_s=0.015, compile_s=0.01), None)
    assert 0 < first["trials_now"] < 120  # type: ignore[operator]
    second = run(60.0, FakePipelineStages(time_of, fails, compile_s=0.001), table)
    assert first["trials_now"] + second["trials_now"] == second["legal"] == 120  # type: ignore[operator]
    assert set(second["measured"].values()) == {39}  # type: ignore[attr-defined]
    tables = read_tables(table)
    assert sorted(dict(one.problem.sizes)["N"] for one in tables) == [256, 512, 1024]

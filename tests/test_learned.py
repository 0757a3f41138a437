"""The model fitted to what is recorded, kept until that changes; `best` and `autotune model` make use of it."""

from __future__ import annotations

import gzip
import hashlib
import json
import pickle
from pathlib import Path

import pytest
from click.testing import CliRunner
from fakes.measured import made_up
from fakes.trials import trial

from autotune import paths
from autotune.choice import learned
from autotune.choice.best import Match, Question, best_from
from autotune.choice.learned import model_of, study_files
from autotune.cli import cli
from autotune.errors import InputError
from autotune.gpu_tables import find_gpu
from autotune.legality import violations
from autotune.problems import make_problem
from autotune.records import TrialRecord
from autotune.render import kernel_hash
from autotune.spec.load import load_spec
from autotune.store import open_store
from autotune.store.jsonl import write_records

A6000 = find_gpu("a6000")
SGEMM = load_spec("sgemm")
ASKED = make_problem(SGEMM, 1536)


@pytest.fixture
def records() -> list[TrialRecord]:
    return made_up(SGEMM, A6000, (1024, 2048), 40, kernel_hash=kernel_hash(SGEMM))


@pytest.fixture(autouse=True)
def own_places(user_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(learned, "_FITTED", {})


def test_a_model_is_fitted_once_until_something_is_added(
    records: list[TrialRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(None) as store:
        assert not model_of(store, SGEMM, A6000).learnt
        store.add_many(records)
        model = model_of(store, SGEMM, A6000)
        assert model.learnt
        assert model_of(store, SGEMM, A6000) is model
        configs = list(model.ground.measured.configs)
        # Another process reads what this one has kept.
        monkeypatch.setattr(learned, "_FITTED", {})
        fit = learned.FittedModel.fit
        monkeypatch.setattr(learned.FittedModel, "fit", None)
        again = model_of(store, SGEMM, A6000)
        assert again.predict(ASKED, configs) == model.predict(ASKED, configs)
        # A damaged file is as good as none, and so is another program's.
        monkeypatch.setattr(learned.FittedModel, "fit", fit)
        (kept,) = (tmp_path / "cache" / "models").iterdir()
        foreign = pickle.dumps([1])
        for content in (kept.read_bytes()[:-10], b"", hashlib.sha256(foreign).digest() + foreign):
            kept.write_bytes(content)
            monkeypatch.setattr(learned, "_FITTED", {})
            assert model_of(store, SGEMM, A6000).predict(ASKED, configs) == model.predict(ASKED, configs)
            assert list(kept.parent.iterdir()) == [kept]
        store.add(trial(1.0, configs[0], ASKED, kernel_hash=kernel_hash(SGEMM)))
        assert model_of(store, SGEMM, A6000).ground.measured.count == model.ground.measured.count + 1


def test_tables_of_a_project_teach_the_model_and_nothing_else(
    records: list[TrialRecord], tmp_path: Path
) -> None:
    folder = tmp_path / "studies" / "a6000" / "sgemm" / "tables"
    folder.mkdir(parents=True)
    write_records(folder / "all.jsonl.gz", records)
    assert study_files(SGEMM, A6000, (tmp_path,)) == [folder / "all.jsonl.gz"]
    model = model_of(None, SGEMM, A6000, (tmp_path,))
    assert model.ground.measured.count == sum(record.outcome.status.timed for record in records)
    measured = make_problem(SGEMM, 1024)
    answer = best_from(None, Question.of(SGEMM, A6000, measured), (tmp_path,))
    assert answer.match is Match.SELECTED


def test_a_file_of_two_folders_that_are_one_is_read_once() -> None:
    checkout = paths.shipped("studies").parent
    files = study_files(SGEMM, find_gpu("h200"), (checkout,))
    assert files == study_files(SGEMM, find_gpu("h200"))
    assert files


def test_best_selects_for_a_size_that_nobody_tuned(records: list[TrialRecord]) -> None:
    with open_store(None) as store:
        store.add_many(records)
        exact = best_from(store, Question.of(SGEMM, A6000, make_problem(SGEMM, 1024)))
        assert exact.match is Match.EXACT
        answer = best_from(store, Question.of(SGEMM, A6000, ASKED))
        far = best_from(store, Question.of(SGEMM, A6000, make_problem(SGEMM, (1, 8192, 8192))))
    assert answer.match is Match.SELECTED
    assert not violations(SGEMM, A6000, ASKED, answer.config)
    assert answer.record is None
    assert answer.origin == "predicted"
    assert answer.predicted_ms is not None
    assert answer.distance == pytest.approx(0.72, abs=0.01)
    assert "2 measured sizes" in answer.why
    assert far.match is Match.DEFAULT


def test_a_problem_that_no_gpu_could_hold_is_told_as_such() -> None:
    with pytest.raises(InputError, match="arrays of 99999999x99999999x99999999 take"):
        Question.of(SGEMM, A6000, make_problem(SGEMM, 99999999))


def test_the_command_reports_on_a_file(records: list[TrialRecord], tmp_path: Path) -> None:
    path = tmp_path / "table.jsonl.gz"
    write_records(path, records)
    done = CliRunner().invoke(cli, ["model", "--study", str(path), "--json"], catch_exceptions=False)
    document = json.loads(done.stdout)
    assert document["gpu"] == "a6000"
    assert [held["size"] for held in document["held_out_sizes"]] == ["1024x1024x1024", "2048x2048x2048"]
    assert all(held["loss"]["20"] <= held["loss"]["1"] for held in document["held_out_sizes"])
    text = CliRunner().invoke(cli, ["model", "--study", str(path)], catch_exceptions=False).stdout
    assert "Spearman" in text
    assert "latency_ns" in text


def test_the_command_says_where_nothing_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "table.jsonl.gz"
    write_records(path, [])
    with pytest.raises(Exception, match="nothing is recorded of sgemm"):
        CliRunner().invoke(
            cli, ["model", "--study", str(path)], catch_exceptions=False, standalone_mode=False
        )
    path.write_bytes(gzip.compress(b"no records"))
    with pytest.raises(Exception, match="first line must be the header"):
        CliRunner().invoke(
            cli, ["model", "--study", str(path)], catch_exceptions=False, standalone_mode=False
        )

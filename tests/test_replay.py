"""Recorded tables in place of a GPU."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from fakes.tables import cache_text, made_up_table, write_cache
from fakes.trials import START, failed, measured, predicted, trial

from autotune import api
from autotune.choice.best import Match, Question, best_from, find_best
from autotune.cli import cli
from autotune.errors import InputError
from autotune.gpu_tables import find_gpu
from autotune.problems import make_problem
from autotune.records import Origin, Round, Status, TrialRecord
from autotune.replay.kernel_tuner import table_of_cache
from autotune.replay.loop import replay
from autotune.replay.read import read_tables
from autotune.replay.stages import Recorded
from autotune.replay.table import tables_of_records
from autotune.spec.load import load_spec
from autotune.store import open_store
from autotune.store.jsonl import write_records

BEST = "bx=64,by=4,tile=2,pad=1"


def test_a_cache_is_a_table_with_its_failures() -> None:
    table = made_up_table()
    assert (table.kernel, table.device.table, table.problem.label) == ("made_up", "a6000", "64x64")
    assert len(table) == table.space.count == 75
    counts = dict.fromkeys(Status, 0)
    for entry in table.entries:
        counts[entry.outcome.status] += 1
    assert (counts[Status.COMPILE_ERROR], counts[Status.LAUNCH_ERROR], counts[Status.OK]) == (5, 5, 65)
    assert table.entries[int(np.nanargmin(table.times_ms))].config.key == BEST
    assert table.sorted_ms[0] == 1.0
    assert all(entry.outcome.origin is Origin.REPLAYED for entry in table.entries)


def test_plain_gzipped_and_cut_short_files_hold_the_same(tmp_path: Path) -> None:
    text = cache_text()
    plain = write_cache(tmp_path)
    zipped, cut = tmp_path / "zipped.json.gz", tmp_path / "cut.json"
    zipped.write_bytes(gzip.compress(text.encode()))
    cut.write_text(text.removesuffix("}\n}") + ",\n")
    entries = [read_tables(path)[0].entries for path in (plain, zipped, cut)]
    assert entries[0] == entries[1] == entries[2]


@pytest.mark.parametrize(
    "text", ["", "{}", '{"tune_params_keys": ["a"], "cache": {"1": {"b": 1}}}', "[1, 2]"]
)
def test_what_is_no_table_is_refused_with_its_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "wrong.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_tables(path)
    assert str(path) in str(caught.value)


def test_a_table_has_no_model_to_search_by(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no model to rank its configurations by"):
        api.replay(write_cache(tmp_path), strategy="model", db=tmp_path / "x.sqlite")


def test_an_unknown_device_keeps_its_name_and_limits_nothing() -> None:
    table = table_of_cache(cache_text(device="Some GPU"), "x")
    assert (table.device.table, table.device.name) == ("some gpu", "Some GPU")
    assert len(replay(table, "random", 0, 1000).rows) == len(table)


def test_exported_records_are_tables_by_problem(tmp_path: Path) -> None:
    small = replace(trial().problem, sizes=(("M", 512), ("N", 512), ("K", 512)))
    records = [
        trial(2.0, 64),
        trial(1.0, 128),
        trial(failed(), 256),
        trial(measured(3.0), 64, small),
        trial(predicted(0.5), 32),
        trial(0.1, 128, round=Round.FINAL),
        trial(1.5, 256, minute=5),
    ]
    path = tmp_path / "study.jsonl.gz"
    write_records(path, records)
    large, other = read_tables(path)
    assert large.name == "study 4096x4096x4096"
    assert [entry.config["BM"] for entry in large.entries] == [64, 128, 256]
    assert large.times_ms.tolist() == [2.0, 1.0, 1.5]
    assert large.entries[0].created == START
    assert large.entries[2].created == START + timedelta(minutes=5)
    assert len(other) == 1


def test_predictions_alone_are_no_table() -> None:
    assert tables_of_records([trial(predicted(0.5), 32)], "x") == []


def test_records_are_replayed_and_the_same_each_time() -> None:
    table = made_up_table()
    records = table.records("study")
    assert records == made_up_table().records("study")
    assert len({record.uid for record in records}) == len(table)
    assert {record.outcome.origin for record in records} == {Origin.REPLAYED}
    again = tables_of_records(records, "made_up")[0]
    assert again.space.count == table.space.count


@pytest.mark.parametrize("strategy", ["random", "tpe", "exhaustive", "auto", "model"])
def test_every_strategy_searches_a_table_without_repeats(strategy: str) -> None:
    table = made_up_table()
    trace = replay(table, strategy, 1, 40)
    assert len(set(trace.rows)) == len(trace.rows) == len(trace.best_ms) == 40
    assert (np.diff(trace.best_ms[np.isfinite(trace.best_ms)]) <= 0).all()
    assert trace.best_ms[-1] == np.nanmin(table.times_ms[list(trace.rows)])


def test_a_search_ends_with_the_table_and_finds_its_best() -> None:
    trace = replay(made_up_table(), "random", 3, 1000)
    assert len(trace.rows) == 75
    assert trace.best_ms[-1] == 1.0
    first = trace.evaluations_to(1.0)
    assert first is not None
    assert trace.best_ms[first - 1] == 1.0
    assert trace.evaluations_to(0.5) is None


def test_the_same_seed_gives_the_same_search() -> None:
    table = made_up_table()
    assert replay(table, "tpe", 5, 30).rows == replay(table, "tpe", 5, 30).rows
    assert replay(table, "random", 5, 30).rows != replay(table, "random", 6, 30).rows


def test_samples_are_drawn_by_seed_and_noise_is_put_on() -> None:
    table = made_up_table()
    config = table.entries[0].config
    recorded = table.entries[0].outcome.measurement
    assert recorded is not None

    def samples(**settings: float | int) -> tuple[float, ...]:
        outcome = Recorded(table, **settings).outcome(config)  # type: ignore[arg-type]
        assert outcome.measurement is not None
        return outcome.measurement.samples_ms

    assert samples() == (table.times_ms[0],)
    assert sorted(samples(samples=5)) == sorted(recorded.samples_ms)
    assert set(samples(samples=3)) <= set(recorded.samples_ms)
    assert len({samples(samples=1, seed=seed) for seed in range(20)}) > 1
    assert samples(samples=3, seed=1) == samples(samples=3, seed=1)
    assert len(samples(samples=9)) == 9
    noisy = np.array([samples(noise=0.05, seed=seed) for seed in range(200)]) / table.times_ms[0]
    assert 0.03 < noisy.std() < 0.07


def records_in(db: Path) -> list[TrialRecord]:
    with open_store(db) as store:
        return store.records()


def test_a_search_on_a_file_goes_through_the_study_loop(tmp_path: Path) -> None:
    path, db = write_cache(tmp_path), tmp_path / "records.db"
    (result,) = api.replay(path, strategy="random", trials=30, seed=2, db=db)
    assert result.measured == 30
    assert result.legal == 75
    assert result.best is not None
    stored = records_in(db)
    assert {record.outcome.origin for record in stored} == {Origin.REPLAYED}
    times = {entry.config: entry for entry in made_up_table().entries}
    for record in stored:
        entry = times[record.config]
        assert record.outcome.status is entry.outcome.status
        assert record.outcome.time_ms == entry.outcome.time_ms or record.outcome.time_ms == entry.time_ms
    # The same command goes on where it stopped; another seed or strategy is a study of its own.
    (again,) = api.replay(path, strategy="random", trials=31, seed=2, db=db)
    assert again.counts[Status.OK] == 1
    (other,) = api.replay(path, strategy="random", trials=5, seed=3, db=db)
    assert other.measured == 5
    (whole,) = api.replay(path, strategy="exhaustive", db=db)
    assert whole.exhausted
    assert whole.counts == {Status.OK: 65, Status.COMPILE_ERROR: 5, Status.LAUNCH_ERROR: 5}
    assert whole.best is not None
    assert whole.best.config.key == BEST


def test_records_of_our_own_are_searched_by_size(tmp_path: Path) -> None:
    small = replace(trial().problem, sizes=(("M", 512), ("N", 512), ("K", 512)))
    write_records(tmp_path / "own.jsonl", [trial(2.0, 64), trial(1.0, 128), trial(3.0, 64, small)])
    both = api.replay(tmp_path / "own.jsonl", strategy="random", db=tmp_path / "records.db")
    assert [result.request.problem.label for result in both] == ["4096x4096x4096", "512x512x512"]
    assert [result.legal for result in both] == [2, 1]
    (one,) = api.replay(tmp_path / "own.jsonl", size="512", strategy="random", db=tmp_path / "records.db")
    assert one.request.problem == small
    assert one.records == ()
    with pytest.raises(InputError, match="512x512x512"):
        api.replay(tmp_path / "own.jsonl", size="7", db=tmp_path / "records.db")


def test_replayed_records_never_answer_best(tmp_path: Path) -> None:
    """Not even those of the very kernel, device and problem that is asked about."""
    spec = load_spec("sgemm")
    gpu = find_gpu("a6000")
    problem = make_problem(spec, 4096)
    question = Question.of(spec, gpu, problem)
    assert question.default is not None
    own = trial(
        0.001,
        question.default,
        problem,
        kernel_hash=question.kernel_hash,
        space_hash=question.space_hash,
        device=gpu.identity,
    )
    replayed = replace(own, uid="r", outcome=replace(own.outcome, origin=Origin.REPLAYED))
    assert find_best([own], question).match is Match.EXACT
    assert find_best([replayed], question).match is Match.DEFAULT
    with open_store(tmp_path / "records.db") as store:
        store.add_new([replayed, *tables_of_records([own], "own")[0].records()])
        assert best_from(store, question).match is not Match.EXACT


def test_a_cache_is_imported_once(tmp_path: Path) -> None:
    zipped = tmp_path / "same.json.gz"
    zipped.write_bytes(gzip.compress(cache_text().encode()))
    db = tmp_path / "records.db"
    for path, added in ((write_cache(tmp_path), 75), (zipped, 0), (write_cache(tmp_path), 0)):
        done = CliRunner().invoke(cli, ["db", "import", str(path), "--db", str(db), "--json"])
        assert done.exit_code == 0, done.output
        assert json.loads(done.output) == {"added": added, "already_there": 75 - added}
    stored = records_in(db)
    assert {record.outcome.origin for record in stored} == {Origin.REPLAYED}
    assert sum(record.outcome.status is Status.LAUNCH_ERROR for record in stored) == 5
    assert (
        max(len(record.outcome.measurement.samples_ms) for record in stored if record.outcome.measurement)
        == 5
    )
    # What is in the database can be searched again.
    with open_store(db) as store:
        store.export_jsonl(tmp_path / "exported.jsonl")
    (table,) = read_tables(tmp_path / "exported.jsonl")
    assert table.space.count == 75


def test_the_command_says_that_results_are_replayed(tmp_path: Path) -> None:
    path, db = write_cache(tmp_path), tmp_path / "records.db"
    command = ["search", "--replay", str(path), "--strategy", "random", "--trials", "20", "--db", str(db)]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 0, done.output
    assert "replayed" in done.stdout
    assert "REPLAYED" in done.stderr
    (summary,) = json.loads(CliRunner().invoke(cli, [*command, "--json"]).stdout)
    assert summary["origin"] == "replayed"
    assert summary["kernel"] == "made_up"
    assert summary["measured"] == 20


@pytest.mark.parametrize(
    "extra", [["--gpu", "a6000"], ["--kernel", "sgemm"], ["--warm"], ["--suite", "sgemm"]]
)
def test_what_the_file_says_is_not_said_again(tmp_path: Path, extra: list[str]) -> None:
    done = CliRunner().invoke(cli, ["search", "--replay", str(write_cache(tmp_path)), *extra])
    assert isinstance(done.exception, InputError)
    assert done.exception.key == extra[0]


def test_times_of_another_file_of_the_same_name_are_not_gone_on_from(tmp_path: Path) -> None:
    """A file may grow or be measured again: what a search of the old one stored is not what the new one says."""
    body = json.loads(cache_text())
    path, db = tmp_path / "same.json", tmp_path / "db.sqlite"
    path.write_text(json.dumps(body))
    api.replay(path, strategy="random", trials=100, db=db)
    for entry in body["cache"].values():
        if not isinstance(entry["time"], str):
            entry.update(time=10 * entry["time"], times=None)
    path.write_text(json.dumps(body))
    (result,) = api.replay(path, strategy="random", trials=100, db=db)
    assert result.best is not None
    assert result.best.outcome.time_ms == 10.0
    (again,) = api.replay(path, strategy="tpe", study=result.request.study, trials=100, db=db)
    assert again.counts == {}, "the same file is gone on from"


def test_cold_and_warm_times_are_tables_apart() -> None:
    warm = "warm/normal-1/1"
    records = [trial(2.0, 64), replace(trial(1.0, 64, minute=1), protocol=warm), trial(3.0, 128, minute=2)]
    tables = tables_of_records(records, "x")
    assert [table.times_ms.tolist() for table in tables] == [[2.0, 3.0], [1.0]]
    assert len({table.name for table in tables}) == 2


@pytest.mark.parametrize(
    "changes", [{"problem_size": [float("inf")]}, {"device_name": "\ud800"}, {"kernel_name": "k\udfff"}]
)
def test_odd_values_in_a_cache_are_no_traceback(tmp_path: Path, changes: dict[str, object]) -> None:
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(json.loads(cache_text()) | changes))
    with pytest.raises(InputError, match=r"odd\.json"):
        read_tables(path)


def test_a_time_of_zero_is_no_time() -> None:
    body = json.loads(cache_text())
    worked = next(entry for entry in body["cache"].values() if not isinstance(entry["time"], str))
    worked["time"] = 0.0
    table = table_of_cache(json.dumps(body), "x")
    assert table.sorted_ms[0] > 0
    assert len(table.sorted_ms) == len(made_up_table().sorted_ms) - 1


@pytest.mark.parametrize("size", ["64", "64x64", 64, (64, 64)])
def test_a_size_is_text_a_number_or_a_tuple(tmp_path: Path, size: int | str | tuple[int, ...]) -> None:
    file = write_cache(tmp_path)
    (result,) = api.replay(file, size=size, strategy="random", trials=2, db=tmp_path / "db.sqlite")
    assert result.request.problem.label == "64x64"

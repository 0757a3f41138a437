"""One contract for both backends."""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from itertools import product
from pathlib import Path

import pytest
from fakes.trials import DEVICE, START, failed, measured, predicted, problem, trial
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotune.config import Config
from autotune.errors import InputError, StoreError
from autotune.problem import Problem
from autotune.records import (
    Accuracy,
    ClockReading,
    DeviceIdentity,
    Environment,
    Measurement,
    Origin,
    Outcome,
    Resources,
    Round,
    Status,
    TrialRecord,
)
from autotune.store import MergeReport, RecordQuery, Store, open_store
from autotune.store.jsonl import record_line
from autotune.store.record_json import config_from_json, problem_from_json, record_from_json

# What identifies things never holds NUL or lone surrogates; free text may, and is cleaned.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
names = st.text("ABMNKxyz_", min_size=1, max_size=6)
scalars = st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=4)
mappings = st.dictionaries(names, values, max_size=4)
counts = st.integers(0, 2**40)
times = st.floats(1e-6, 1e6)
moments = st.datetimes(
    datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC) | st.just(timezone(timedelta(hours=5)))
)
resources = st.builds(Resources, *[counts] * 6, st.none() | counts)
accuracies = st.builds(Accuracy, st.floats(0, allow_nan=False), times, counts)
clocks = st.builds(ClockReading, counts, counts, st.integers(-50, 200), texts)
measurements = st.builds(
    Measurement, st.lists(times, min_size=1, max_size=6).map(tuple), counts, st.none() | clocks
)
notes = st.lists(texts, max_size=2).map(tuple)
untimed = st.sampled_from([status for status in Status if not status.timed])
outcomes = (
    st.builds(
        Outcome,
        st.sampled_from([Status.OK, Status.DROPPED]),
        st.sampled_from([Origin.MEASURED, Origin.REPLAYED]),
        texts,
        st.none() | resources,
        st.none() | accuracies,
        measurements,
        st.none(),
        notes,
    )
    | st.builds(
        Outcome,
        st.just(Status.OK),
        st.just(Origin.PREDICTED),
        resources=resources,
        predicted_ms=times,
        notes=notes,
    )
    | st.builds(
        Outcome, untimed, st.sampled_from(Origin), texts.filter(bool), accuracy=st.none() | accuracies
    )
)
records = st.builds(
    TrialRecord,
    uid=st.uuids().map(lambda uid: uid.hex),
    study=texts,
    session=texts,
    round=st.sampled_from(Round),
    kernel=texts,
    kernel_hash=texts,
    space_hash=texts,
    config=mappings.map(Config.of),
    problem=st.builds(
        Problem,
        st.dictionaries(names, counts, max_size=3).map(lambda sizes: tuple(sizes.items())),
        texts,
        mappings.map(lambda classes: tuple(classes.items())),
    ),
    device=st.builds(DeviceIdentity, texts, texts, texts, counts, counts, texts),
    environment=st.builds(Environment, texts, texts, texts, texts),
    protocol=texts,
    outcome=outcomes,
    board=texts,
    created=moments,
)


def typed(record: TrialRecord) -> str:
    """Text that differs wherever a value or its type differs."""
    parts = replace(record, created=record.created.astimezone(UTC).replace(fold=0))
    return repr(parts)


@settings(deadline=None)
@given(records)
def test_json_keeps_values_and_types(record: TrialRecord) -> None:
    assert typed(record_from_json(json.loads(record_line(record)))) == typed(record)


def test_values_that_only_their_type_tells_apart_are_read_apart() -> None:
    for _ in range(2):
        for values in product((1, 1.0, True, "1", [1], [True]), repeat=2):
            body = dict(zip("AB", values, strict=True))
            expected = repr(
                tuple(
                    (name, tuple(value) if isinstance(value, list) else value) for name, value in body.items()
                )
            )
            assert repr(config_from_json(body).values_by_name) == expected
            read = problem_from_json({"sizes": {"M": 1}, "dtype": "float32", "classes": body})
            assert repr(read.classes) == expected


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path, user_data: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "trials.sqlite")
    make: Callable[[], str] = request.getfixturevalue("postgresql")
    return make()


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url) as opened:
        yield opened


class TestStore:
    @settings(
        max_examples=25,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    @given(made=st.lists(records, max_size=4))
    def test_what_is_added_comes_back(self, store: Store, made: list[TrialRecord]) -> None:
        made = [replace(record, uid=uuid.uuid4().hex) for record in made]
        store.add_many(made)
        got = {record.uid: record for record in store.records()}
        assert [typed(got[record.uid]) for record in made] == [typed(record) for record in made]

    def test_reopened_database_holds_the_same(self, url: str, store: Store) -> None:
        one = trial(
            measured(2.5, notes=("spills 8 bytes",)), {"BM": 1, "F": 1.0, "B": True, "T": (1, (2.0, "x"))}
        )
        store.add(one)
        with open_store(url) as again:
            assert [typed(record) for record in again.records()] == [typed(one)]

    def test_records_come_oldest_first(self, store: Store) -> None:
        late, early = trial(minute=5), trial(minute=1)
        store.add_many([late, early])
        assert store.records() == [early, late]

    def test_adding_twice_keeps_the_first(self, store: Store) -> None:
        one = trial(1.0, uid="u")
        store.add(one)
        store.add_many([trial(2.0, uid="u"), one])
        assert store.records() == [one]

    def test_non_finite_errors_and_broken_text_are_kept(self, store: Store) -> None:
        nan = Outcome(Status.WRONG_RESULT, Origin.MEASURED, "bad", accuracy=Accuracy(math.nan, math.inf))
        store.add(trial(nan, uid="nan"))
        store.add(trial(failed(Status.COMPILE_ERROR, "log ends\0 \udcff"), uid="text"))
        got = {record.uid: record.outcome for record in store.records()}
        assert got["nan"].accuracy is not None
        assert math.isnan(got["nan"].accuracy.worst_error)
        assert math.isinf(got["nan"].accuracy.tolerance)
        assert got["text"].reason == "log ends\N{REPLACEMENT CHARACTER} ?"

    def test_time_without_zone_is_refused(self, store: Store) -> None:
        with pytest.raises(StoreError, match="time zone"):
            store.add(replace(trial(), created=datetime(2026, 1, 1)))

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            (RecordQuery(), "abcdefgh"),
            (RecordQuery(study="other"), "b"),
            (RecordQuery(session="s2"), "c"),
            (RecordQuery(kernel="softmax"), "d"),
            (RecordQuery(kernel_hash="k2"), "e"),
            (RecordQuery(problem=problem(1, 2, 3).key), "f"),
            (RecordQuery(protocol="warm/normal-1/1"), "g"),
            (RecordQuery(device="t4/7.5/40sm"), "h"),
            (RecordQuery(status=Status.ILLEGAL), "a"),
            (RecordQuery(origin=Origin.PREDICTED), "b"),
            (RecordQuery(round=Round.FINAL), "c"),
            (RecordQuery(before=START + timedelta(minutes=3)), "abc"),
            (RecordQuery(kernel="sgemm", session="s2", kernel_hash="k1"), "c"),
            (RecordQuery(kernel="softmax", session="s2"), ""),
        ],
    )
    def test_query_selects(self, store: Store, query: RecordQuery, expected: str) -> None:
        t4 = DeviceIdentity("t4", "Tesla T4", "7.5", 40, 1)
        store.add_many(
            [
                trial(failed(), uid="a", minute=0),
                trial(predicted(2.0), uid="b", study="other", minute=1),
                trial(uid="c", session="s2", round=Round.FINAL, minute=2),
                trial(uid="d", kernel="softmax", minute=3),
                trial(uid="e", kernel_hash="k2", minute=4),
                trial(uid="f", prob=problem(1, 2, 3), minute=5),
                trial(uid="g", protocol="warm/normal-1/1", minute=6),
                trial(uid="h", device=t4, minute=7),
            ]
        )
        assert "".join(record.uid for record in store.records(query)) == expected

    def test_records_after_a_mark_are_the_new_ones(self, url: str, store: Store) -> None:
        store.add_many([trial(uid="a"), trial(uid="b", study="other"), trial(uid="c")])
        study = RecordQuery(study="sgemm on a6000")
        first, mark = store.records_after(0, study)
        assert [record.uid for record in first] == ["a", "c"]
        with open_store(url) as other:
            other.add_many([trial(uid="d"), trial(uid="e", study="other")])
        second, mark = store.records_after(mark, study)
        assert "d" in [record.uid for record in second]
        assert "e" not in [record.uid for record in second]
        if store.database.path is not None:
            assert [record.uid for record in second] == ["d"]
            assert store.records_after(mark, study) == ([], mark)

    def test_problems_are_distinct(self, store: Store) -> None:
        store.add_many([trial(prob=problem(1)), trial(prob=problem(2)), trial(prob=problem(2))])
        store.add(trial(failed(), prob=problem(3)))
        assert set(store.problems(RecordQuery(status=Status.OK))) == {problem(1), problem(2)}

    def test_export_and_import(self, store: Store, tmp_path: Path) -> None:
        made = [trial(minute=minute, cfg=minute) for minute in range(5)]
        store.add_many(made)
        for name in ("all.jsonl", "all.jsonl.gz"):
            assert store.export_jsonl(tmp_path / name) == 5
            with open_store(tmp_path / f"{name}.sqlite") as other:
                assert other.import_jsonl(tmp_path / name) == MergeReport(5, 0)
                assert other.import_jsonl(tmp_path / name) == MergeReport(0, 5)
                assert other.records() == made

    def test_merge_adds_what_is_new(self, url: str, store: Store, tmp_path: Path) -> None:
        shared, own, theirs = trial(minute=0), trial(minute=1), trial(minute=2)
        store.add_many([shared, own])
        with open_store(tmp_path / "other.sqlite") as other:
            other.add_many([shared, theirs])
            assert store.merge(tmp_path / "other.sqlite") == MergeReport(1, 1)
            assert store.merge(tmp_path / "other.sqlite") == MergeReport(0, 2)
            assert other.merge(url) == MergeReport(1, 2)
            assert store.records() == other.records() == [shared, own, theirs]

    def test_prune_deletes_what_matches_and_nothing_else(self, store: Store) -> None:
        keep = trial(prob=problem(1))
        store.add_many([keep, trial(prob=problem(2), kernel_hash="old"), trial(failed(), kernel_hash="old")])
        assert store.prune(RecordQuery(kernel_hash="old"), dry_run=True) == 2
        assert store.info().trials == 3
        assert store.prune(RecordQuery(kernel_hash="old")) == 2
        assert store.records() == [keep]
        assert store.problems() == [problem(1)]
        store.add(trial(prob=problem(2)))
        assert store.check() == []
        with pytest.raises(InputError, match="condition"):
            store.prune(RecordQuery())

    def test_info_counts(self, store: Store) -> None:
        store.add_many([trial(), trial(), trial(failed(), study="other")])
        info = store.info()
        assert (info.trials, info.schema) == (3, "0002")
        assert info.by_status == {"illegal": 1, "ok": 2}
        assert info.by_study == {"other": 1, "sgemm on a6000": 2}
        assert info.by_device == {DEVICE.key: 3}
        assert info.size_bytes > 0

    @pytest.mark.slow
    def test_a_study_of_20000_trials_is_read_quickly(self, store: Store) -> None:
        made = [trial(1.0 + index, {"BM": index, "BN": 8, "LOAD": "cpasync"}) for index in range(20_000)]
        store.add_many(made)
        start = time.monotonic()
        assert len(store.records(RecordQuery(study="sgemm on a6000"))) == 20_000
        assert time.monotonic() - start < 10


@pytest.mark.parametrize("name", ["mysql://host/db", "sqlite://", "://nothing"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InputError):
        open_store(name)


def test_default_is_the_users_own_file(user_data: Path) -> None:
    with open_store() as store:
        store.add(trial())
    assert (user_data / "autotune.sqlite").is_file()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", ":1: the first line must be the header"),
        ('{"format": "autotune-records", "version": 9}\n', "format version 9; .*reads up to 1"),
        ('{"format": "autotune-records", "version": 1}\n{"uid": ', ":2: not a line of JSON"),
        ('{"format": "autotune-records", "version": 1}\n{"uid": "x"}\n', ":2: .*'outcome'"),
        ('{"format": "autotune-records", "version": 1}\n[]\n', ":2: not a trial record"),
    ],
)
def test_bad_files_of_records_are_refused(
    tmp_path: Path, user_data: Path, content: str, message: str
) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(content)
    with open_store(tmp_path / "db.sqlite") as store:
        with pytest.raises(StoreError, match=message):
            store.import_jsonl(path)
        assert store.info().trials == 0


def test_merging_from_nothing_is_refused(tmp_path: Path, user_data: Path) -> None:
    with open_store(tmp_path / "db.sqlite") as store:
        with pytest.raises(InputError, match="no such database"):
            store.merge(tmp_path / "absent.sqlite")
        assert not (tmp_path / "absent.sqlite").exists()


@pytest.mark.parametrize("name", ["gemm.json", "gemm.json.gz"])
def test_merging_a_cache_file_of_kernel_tuner_names_the_command_that_takes_it(
    tmp_path: Path, user_data: Path, name: str
) -> None:
    path = tmp_path / name
    path.write_text('{"device_name": "A"}')
    with open_store(None) as store, pytest.raises(InputError, match=rf"autotune db import {path}"):
        store.merge(str(path))

"""Exported files that are broken, and records that are none."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from fakes.trials import trial

from autotune.errors import StoreError
from autotune.records import Measurement
from autotune.store import open_store
from autotune.store.jsonl import header_line
from autotune.store.record_json import record_to_json

pytestmark = pytest.mark.usefixtures("user_data")


def test_a_broken_export_is_told_wherever_it_broke(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl.gz"
    with open_store(tmp_path / "records.db") as store:
        store.add_many([trial(minute=minute) for minute in range(5)])
        store.export_jsonl(path)
    whole = path.read_bytes()
    with open_store(tmp_path / "other.db") as store:
        for cut in range(0, len(whole), 7):
            path.write_bytes(whole[:cut])
            with pytest.raises(StoreError, match=r"records\.jsonl\.gz"):
                store.import_jsonl(path)
        for place in range(10, len(whole), 7):  # behind the head, whose time and name nobody checks
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
            with pytest.raises(StoreError, match=r"records\.jsonl\.gz"):
                store.import_jsonl(path)
        assert store.records() == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"uid": 5}, "uid is text, got 5"),
        ({"study": None}, "study is text"),
        ({"board": []}, "board is text"),
        ({"problem": {"sizes": {"M": "x"}, "dtype": "f", "classes": {}}}, "M is a whole number"),
        ({"problem": {"sizes": {"M": True}, "dtype": "f", "classes": {}}}, "M is a whole number"),
        ({"created": "yesterday"}, "isoformat"),
        ({"config": {"A": None}}, "a value is"),
    ],
)
def test_lines_with_a_wrong_type_are_refused(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(header_line() + json.dumps({**record_to_json(trial()), **changes}) + "\n")
    with open_store(tmp_path / "records.db") as store, pytest.raises(StoreError, match=f":2: .*{message}"):
        store.import_jsonl(path)


@pytest.mark.parametrize("line", ["[" * 100_000, '{"uid": ' + "9" * 5000 + "}", "{", "\udcff"])
def test_lines_that_no_reader_takes_are_told(tmp_path: Path, line: str) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes((header_line() + line + "\n").encode("utf-8", "surrogateescape"))
    with open_store(tmp_path / "records.db") as store, pytest.raises(StoreError, match=r"records\.jsonl"):
        store.import_jsonl(path)


@pytest.mark.parametrize("samples", [(math.nan,), (-1.0,), (1.0, math.inf)])
def test_times_that_are_none_are_no_measurement(samples: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="samples are times"):
        Measurement(samples, 1)


def test_times_of_zero_have_no_spread() -> None:
    assert Measurement((0.0,) * 5, 1).spread == 0.0

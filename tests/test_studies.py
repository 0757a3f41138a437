"""The recorded studies: readable, of the present kernel, and the source of every figure in the README."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from autotune.answers import best
from autotune.bench.result import (
    BenchResult,
    Entry,
    Failed,
    ModeResult,
    Provenance,
    ShapeResult,
    write_result,
)
from autotune.choice.shipped import shipped_records
from autotune.records import Origin, Round, Status
from autotune.render import kernel_hash
from autotune.spec.load import load_spec

ROOT = Path(__file__).parents[1]
STUDIES = ROOT / "studies"
H200 = "h200/9.0/132sm"


def test_figures_in_the_readme_are_those_recorded() -> None:
    done = subprocess.run([sys.executable, ROOT / "tools" / "figures.py", "--check"], check=False)
    assert done.returncode == 0, "run tools/figures.py"


def test_every_study_file_has_its_provenance() -> None:
    files = list(STUDIES.rglob("*.jsonl.gz"))
    assert files
    for path in files:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            header = json.loads(lines.readline())
        assert header
    for path in STUDIES.rglob("summary.json"):
        summary = json.loads(path.read_text(encoding="utf-8"))
        assert summary["commit"]
        assert summary["failed"] == []
        assert {"gpu", "driver", "cuda", "nvrtc", "protocol"} <= set(summary["provenance"])


def test_the_h200_study_is_whole_and_verified() -> None:
    records = [record for record in shipped_records("sgemm", H200) if record.round is Round.SEARCH]
    sizes = {record.problem.label for record in records}
    assert sizes == {"4096x4096x4096", "1024x1024x1024", "256x256x256", "1000x999x37"}
    for record in records:
        assert record.outcome.origin is Origin.MEASURED
        assert record.board
        if record.outcome.status.timed:
            assert record.outcome.accuracy is not None
            assert record.outcome.accuracy.worst_error <= record.outcome.accuracy.tolerance
    for size in sizes:
        timed = [one for one in records if one.problem.label == size and one.outcome.status.timed]
        assert len({one.config for one in timed}) == 200
    assert len({record.kernel_hash for record in records}) == 1
    assert all(record.outcome.status is not Status.WRONG_RESULT for record in records)


@pytest.mark.usefixtures("user_data")
def test_shipped_results_answer_for_the_kernel_they_were_recorded_with_and_for_no_later_one(
    tmp_path: Path,
) -> None:
    recorded = {record.kernel_hash for record in shipped_records("sgemm", H200)}
    answer = best("h200", 4096, db=tmp_path / "empty.sqlite")
    if kernel_hash(load_spec("sgemm")) in recorded:
        assert (answer.match, answer.layer) == ("exact", "shipped")
        assert answer.record is not None
        assert answer.record.round is Round.FINAL
    else:
        assert (answer.match, answer.record) == ("default", None)


@pytest.fixture
def suite(tmp_path: Path) -> dict[str, Any]:
    """What a bench of three shapes writes; the last has lost a contestant."""
    shapes = []
    for name, group, tuned, cublas, lt in (
        ("a", "cube", 1.0, 2.0, 1.5),
        ("b", "cube", 1.0, 0.5, 0.9),
        ("c", "thin", 1.0, 4.0, None),
    ):
        times = {"tuned": tuned, "tuned again": 1.01 * tuned, "cublas": cublas, "cublaslt": lt}
        entries = tuple(
            Entry(one, (time,), 1, 0.5, 4.0, bytes=8.0) for one, time in times.items() if time is not None
        )
        failed = () if lt else (Failed("cublaslt", "refused"),)
        modes = tuple(ModeResult(mode, mode, entries, failed) for mode in ("warm", "cold"))
        shapes.append(
            ShapeResult(name, group, (1, 1, 1), 2.0, 8.0, modes, "s", "b", "2026-01-02T00:00:00+00:00")
        )
    where = Provenance("sgemm", "sgemm", "hash", "", "NVIDIA H200", "h200", "580", "13.0", "13.5", "0.1.0")
    path = tmp_path / "suite.json"
    write_result(BenchResult(where, 4000.0, tuple(shapes), ("d",)), path)
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def test_a_recorded_suite_becomes_table_and_picture(
    suite: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import figures

    text = figures.suite_table(suite)
    lines = text.splitlines()
    assert lines[2].startswith("| all | 3 | 1.59 x | 1.16 x |")  # (2 * 0.5 * 4)^(1/3), (1.5 * 0.9)^(1/2)
    assert lines[2].endswith("| b 0.50 x (warm, over cublasSgemm) |")
    assert [line.split(" | ")[0] for line in lines[2:5]] == ["| all", "| cube", "| thin"]
    for part in ("Not measured: d", "cublaslt at c (warm)", "4,000 GB/s", "warm 1.010 to 1.010"):
        assert part in text
    drawn = ElementTree.fromstring(figures.suite_picture(suite))
    texts = [element.text or "" for element in drawn.iter() if element.tag.endswith("text")]
    assert {"a", "b", "c", "2.00x", "0.90x"} <= set(texts)

    before = figures.wanted_files()
    path = tmp_path / "recorded.json"
    path.write_text(json.dumps(suite))
    monkeypatch.setattr(figures, "SUITE", path)
    after = figures.wanted_files()
    assert set(after) - set(before) <= {figures.SUITE_PICTURE}
    assert text in after[figures.README]
    monkeypatch.setattr(figures, "SUITE", tmp_path / "missing.json")
    assert figures.SUITE_PICTURE not in figures.wanted_files()

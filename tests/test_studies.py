"""The recorded studies: readable, of the present kernel, and the source of every figure in the README."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.answers import best
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

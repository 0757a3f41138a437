"""The recorded studies: readable, of the present kernel, and the source of every figure in the README."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
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
    read_result,
    write_result,
)
from autotune.choice.shipped import shipped_records
from autotune.protocol import Protocol
from autotune.records import Origin, Round, Status
from autotune.render import kernel_hash
from autotune.spec.load import load_spec
from autotune.store.jsonl import read_records
from autotune.suites import load_suite

ROOT = Path(__file__).parents[1]
STUDIES = ROOT / "studies"
H200 = "h200/9.0/132sm"


def test_figures_in_the_readme_are_those_recorded() -> None:
    done = subprocess.run([sys.executable, ROOT / "tools" / "figures.py", "--check"], check=False)
    assert done.returncode == 0, "run tools/figures.py"


def test_every_study_file_has_its_provenance() -> None:
    files = list(STUDIES.rglob("*.jsonl.gz"))
    assert files
    page = (STUDIES / "README.md").read_text(encoding="utf-8")
    for path in STUDIES.rglob("*.*"):
        if path.name != "README.md":
            assert f"`{path.relative_to(STUDIES).as_posix()}`" in page or path.parent.name == "search", path
    for path in files:
        for record in read_records(path):
            assert record.environment.driver
            assert record.environment.nvrtc
            assert record.board
    for path in (STUDIES / "h200").glob("*.json"):
        document = json.loads(path.read_text(encoding="utf-8"))
        for part in document if isinstance(document, list) else [document]:
            where = part.get("provenance", part)
            assert where.get("commit") or path.name == "cases.json", path
            assert where["gpu"] in ("NVIDIA H200", ["NVIDIA H200"]), path


def test_the_h200_study_is_of_the_present_kernel_whole_and_verified() -> None:
    current = kernel_hash(load_spec("sgemm"))
    recorded = read_result(STUDIES / "h200" / "suite.json")
    assert recorded.provenance.kernel_hash == current
    assert recorded.provenance.device == H200
    assert all(shape.complete for shape in recorded.shapes)
    assert {shape.name for shape in recorded.shapes} == {
        one.name for one in load_suite("sgemm", load_spec("sgemm")).shapes
    }
    records = shipped_records("sgemm", H200)
    assert len({record.problem for record in records}) == len(recorded.shapes) == 48
    for record in records:
        assert record.outcome.origin is Origin.MEASURED
        assert record.kernel_hash == ("" if record.round is Round.BASELINE else current)
        if record.outcome.status.timed:
            assert record.outcome.accuracy is not None
            assert record.outcome.accuracy.worst_error <= record.outcome.accuracy.tolerance
    assert all(record.outcome.status is not Status.WRONG_RESULT for record in records)


def test_no_answer_is_looked_for_in_tables_and_earlier_studies() -> None:
    shipped = {record.uid for record in shipped_records("sgemm", H200)}
    for path in ("tables/exhaustive.jsonl.gz", "earlier/2026-12-01-cold.jsonl.gz"):
        others = read_records(STUDIES / "h200" / "sgemm" / path)
        assert others
        assert not shipped & {record.uid for record in others}


@pytest.mark.usefixtures("user_data")
@pytest.mark.parametrize("protocol", [Protocol(), Protocol().warm()], ids=["cold", "warm"])
def test_shipped_results_answer_exactly(tmp_path: Path, protocol: Protocol) -> None:
    recorded = read_result(STUDIES / "h200" / "suite.json")
    tuned = {
        shape.sizes: mode.entry("tuned") for shape in recorded.shapes if (mode := shape.mode(protocol.mode))
    }
    for sizes in ((4096, 4096, 4096), (16, 4096, 4096), (1025, 1025, 1025)):
        answer = best("h200", "x".join(map(str, sizes)), db=tmp_path / "empty.sqlite", protocol=protocol)
        assert (answer.match, answer.layer, answer.staleness) == ("exact", "shipped", ())
        assert answer.record is not None
        assert answer.record.round is Round.FINAL
        entry = tuned[sizes]
        assert entry is not None
        assert (answer.config.key, answer.record.outcome.time_ms) == (entry.config, entry.time_ms)


def test_study_is_made_from_suite_and_trials_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import suite_records

    result = read_result(STUDIES / "h200" / "suite.json")
    records = read_records(STUDIES / "h200" / "sgemm" / "2026-12-01-suite.jsonl.gz")
    trials = [record for record in records if record.round is Round.SEARCH]
    made = suite_records.bench_records(result, trials)
    assert made == records[len(trials) :]
    assert len({record.uid for record in records}) == len(records)
    rounds = Counter(record.round for record in made)
    assert rounds == {Round.FINAL: 2 * 48, Round.BASELINE: 4 * 48}
    with pytest.raises(ValueError, match="no trial tells of"):
        suite_records.bench_records(result, trials[:1])
    foreign = replace(trials[0], kernel_hash="other")
    with pytest.raises(ValueError, match="not what the bench measured"):
        suite_records.bench_records(result, [foreign])


def test_targets_are_those_of_the_suite_and_missed_ones_have_a_limiter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import limits

    recorded = json.loads((STUDIES / "h200" / "limiter.json").read_text(encoding="utf-8"))
    suite = json.loads((STUDIES / "h200" / "suite.json").read_text(encoding="utf-8"))
    assert recorded["targets"] == limits.check_targets(suite, limits.search_trials()), "run tools/limits.py"
    for target in recorded["targets"]:
        assert target["met"] == ("missed" not in target)
        for missed in target.get("missed", ()):
            assert missed["measured"] < target["least"]
            assert missed["limiter"]
            assert missed["tried"]["trials"] > 0


def test_main_loop_is_read_from_a_source_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import limits

    head = [
        "Source",
        "# Samples",
        "Instructions Executed",
        "stall_dispatch",
        "stall_not_selected",
        "stall_wait",
    ]
    rows = [
        ["Kernel Name", "sgemm"],
        head,
        ["MOV R1, R2", "50", "10", "0", "0", "50"],
        ["FFMA R1, R2, R3, R1", "300", "1,000", "30", "200", "70"],
        ["@P0 FFMA.X R1, R2, R3, R1", "100", "1000", "10", "0", "90"],
        ["LDS R1, [R2]", "100", "950", "40", "0", "60"],
    ]
    loop = limits.main_loop(rows)
    assert (loop["instructions"], loop["samples"], loop["share_of_all_samples"]) == (3, 500, 0.9091)
    assert loop["by_opcode"]["FFMA"] == {"instructions": 2, "samples_pct": 80.0}
    assert loop["stall_pct"] == {"wait": 44.0, "not_selected": 40.0, "dispatch": 16.0}
    assert loop["dispatch_near_switch_pct"] == 50.0
    with pytest.raises(ValueError, match="no instructions"):
        limits.main_loop(rows[:1])
    with pytest.raises(ValueError, match="no kernel"):
        limits.profile("nothing", "")


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
    few = ElementTree.fromstring(figures.suite_picture(suite, "thin"))
    assert {"c", "4.00x"} <= {element.text for element in few.iter()}
    assert "a" not in {element.text for element in few.iter()}
    said = figures.headline(suite)
    for part in (
        "3 shapes",
        "**1.59 times** as fast as cublasSgemm",
        "b, at 0.50 of cublasSgemm",
        "b, at 0.90",
    ):
        assert part in said
    assert "| 1x1x1 | 1 ms | 2 ms | 1.5 ms | 2.00 x |" in figures.cube_table(suite)

    path = tmp_path / "recorded.json"
    path.write_text(json.dumps(suite))
    monkeypatch.setattr(figures, "SUITE", path)
    wanted = figures.wanted_files()
    assert text in wanted[figures.README]
    assert wanted[figures.README] != figures.README.read_text(encoding="utf-8")


def test_a_recorded_ladder_becomes_table_and_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import figures

    def entry(name: str, gflops: float) -> dict[str, Any]:
        return {"name": name, "gflops": gflops, "time_ms": 1.0, "limiter": "", "trials": [1, 2]}

    where = {
        "gpu": "G",
        "driver": "1",
        "nvrtc": "2",
        "date": "2026-01-02T",
        "commit": "c",
        "protocol": "warm",
    }
    ladder = {
        **{"provenance": where, "size": "8x8x8", "peak_gflops": 400.0, "notes": ["so it is"]},
        **{"steps": [entry("one", 50), entry("two", 100), entry("three", 80)]},
        **{"vendor": entry("cuBLAS", 200), "production": entry("production", 210)},
    }
    text = figures.ladder_table(ladder)
    assert "| two | 1 | 100 | 50.0% | 25.0% | - |" in text
    assert "Slower than the step before: three (0.80 x). So it is. " in text
    assert "6 configurations" in text
    drawn = ElementTree.fromstring(figures.ladder_picture(ladder))
    assert {"one", "production", "cuBLAS", "210"} <= {element.text for element in drawn.iter()}

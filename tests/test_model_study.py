"""What is claimed of the performance model on the H200: of the shipped table, above the targets, and still so."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.gpu_tables import find_gpu
from autotune.model.fitted import FittedModel
from autotune.model.ground import Ground
from autotune.model.report import losses, spearman
from autotune.spec.load import load_spec
from autotune.store.jsonl import read_records

STUDY = Path(__file__).parents[1] / "studies" / "h200"
TABLE = STUDY / "sgemm" / "tables" / "exhaustive.jsonl.gz"
LEAST_SPEARMAN, MOST_LOSS = 0.9, 0.05
"""Targets without the size: rank correlation, and what the best of the first 20 loses."""
MISSED = {"768x768x768", "256x256x2048"}
"""Where the second target is missed, as docs/model.md says."""


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    read: dict[str, Any] = json.loads((STUDY / "model.json").read_text(encoding="utf-8"))
    return read


def test_the_report_is_of_the_shipped_table(report: dict[str, Any]) -> None:
    provenance = report["provenance"]
    digest = hashlib.sha256(TABLE.read_bytes()).hexdigest()
    assert provenance["files"] == [{"name": TABLE.name, "sha256": digest}]
    assert provenance["kernel_hash"] == [provenance["kernel_hash_now"]]
    assert provenance["commit"]


def test_every_size_held_out_is_ranked_as_well_as_was_asked_for(report: dict[str, Any]) -> None:
    held_out = report["held_out_sizes"]
    assert len(held_out) == report["places"] == 12
    assert min(held["spearman"] for held in held_out) >= LEAST_SPEARMAN
    assert {held["size"] for held in held_out if held["loss"]["20"] > MOST_LOSS} == MISSED
    assert report["choice"]["picked"]["worst"] < report["choice"]["nearest"]["worst"]


@pytest.mark.slow
def test_two_sizes_held_out_again_come_out_as_reported(report: dict[str, Any]) -> None:
    spec, gpu = load_spec("sgemm"), find_gpu("h200")
    ground = Ground.of(read_records(TABLE), spec, gpu)
    reported = {held["size"]: held for held in report["held_out_sizes"]}
    worst = min(reported.values(), key=lambda held: float(held["spearman"]))["size"]
    for number, place in enumerate(ground.measured.places):
        if place.problem.label not in (worst, "1024x1024x1024"):
            continue
        others = [at for at in range(len(ground.measured.places)) if at != number]
        model = FittedModel.on(ground.keeping(others))
        configs = [ground.measured.configs[row] for row in ground.measured.rows(number)]
        resources = ground.measured.resources_of(configs, gpu)
        predicted = np.array(model.predict(place.problem, configs, resources))
        measured = np.exp(ground.log_ms(number))
        held = reported[place.problem.label]
        assert spearman(predicted, measured) == pytest.approx(held["spearman"], abs=0.01)
        assert losses(predicted, measured)[20] == pytest.approx(held["loss"]["20"], abs=0.02)

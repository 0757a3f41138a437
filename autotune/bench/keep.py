"""The libraries' times of a bench in the database: baselines under their own names, beside those of searches."""

from __future__ import annotations

import uuid
from datetime import datetime

from autotune.bench.request import BenchRequest
from autotune.bench.result import ModeResult, ShapeResult
from autotune.config import Config
from autotune.device.messages import CUBLAS, CUBLASLT
from autotune.problems import make_problem
from autotune.records import Accuracy, Measurement, Origin, Outcome, Round, Status, TrialRecord
from autotune.spec.load import space_hash


def baseline_records(request: BenchRequest, shape: ShapeResult) -> list[TrialRecord]:
    """One record for each library and mode of a shape."""
    return [
        record
        for mode in shape.modes
        for name in (CUBLAS.name, CUBLASLT)
        if (record := _record(request, shape, mode, name))
    ]


def _record(request: BenchRequest, shape: ShapeResult, mode: ModeResult, name: str) -> TrialRecord | None:
    entry = mode.entry(name)
    if entry is None:
        return None
    accuracy = None
    if entry.error is not None and entry.tolerance is not None:
        accuracy = Accuracy(entry.error, entry.tolerance)
    measurement = Measurement(entry.samples_ms, entry.calls_per_sample, mode.clocks)
    return TrialRecord(
        uid=uuid.uuid4().hex,
        study=f"bench {request.suite.name} on {request.gpu.table}",
        session=request.session,
        round=Round.BASELINE,
        kernel=name,
        kernel_hash="",
        space_hash=space_hash(request.spec),
        config=Config(()),
        problem=make_problem(request.spec, shape.sizes),
        device=request.device,
        environment=request.environment,
        protocol=mode.protocol,
        outcome=Outcome(
            Status.OK, Origin.MEASURED, accuracy=accuracy, measurement=measurement, notes=entry.notes
        ),
        board=request.board,
        created=datetime.fromisoformat(shape.created),
    )

"""Trial records made up for tests of the store and of choosing the best."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from autotune.config import Config, Value
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

DEVICE = DeviceIdentity("a6000", "NVIDIA RTX A6000", "8.6", 84, 50925535232)
ENVIRONMENT = Environment("580.1", "13.0", "13.5", "0.1.0")
START = datetime(2026, 1, 1, tzinfo=UTC)


def problem(m: int = 4096, n: int = 4096, k: int = 4096, dtype: str = "float32", **classes: Value) -> Problem:
    return Problem((("M", m), ("N", n), ("K", k)), dtype, tuple(({"beta": "zero"} | classes).items()))


def config(bm: int, **more: Value) -> Config:
    return Config.of({"BM": bm, **more})


def measured(time_ms: float, *, samples: int = 5, notes: tuple[str, ...] = ()) -> Outcome:
    return Outcome(
        Status.OK,
        Origin.MEASURED,
        resources=Resources(128, 32768, 0, 0, 0, 0, 2),
        accuracy=Accuracy(0.25, 1.0, 16),
        measurement=Measurement((time_ms,) * samples, 1, ClockReading(1800, 1860, 61)),
        notes=notes,
    )


def predicted(time_ms: float) -> Outcome:
    return Outcome(Status.OK, Origin.PREDICTED, predicted_ms=time_ms)


def failed(status: Status = Status.ILLEGAL, reason: str = "threads: needs 2048, allowed 1024") -> Outcome:
    return Outcome(status, Origin.MEASURED, reason)


def trial(
    outcome: Outcome | float = 1.0,
    cfg: Config | Mapping[str, Value] | int = 128,
    prob: Problem | None = None,
    *,
    session: str = "s1",
    board: str = "GPU-A",
    round: Round = Round.SEARCH,
    study: str = "sgemm on a6000",
    kernel: str = "sgemm",
    kernel_hash: str = "k1",
    space_hash: str = "p1",
    device: DeviceIdentity = DEVICE,
    environment: Environment = ENVIRONMENT,
    protocol: str = "cold/normal-1/1",
    minute: float = 0,
    uid: str | None = None,
) -> TrialRecord:
    if isinstance(cfg, int):
        cfg = config(cfg)
    return TrialRecord(
        uid=uid or uuid.uuid4().hex,
        study=study,
        session=session,
        round=round,
        kernel=kernel,
        kernel_hash=kernel_hash,
        space_hash=space_hash,
        config=cfg if isinstance(cfg, Config) else Config.of(cfg),
        problem=prob or problem(),
        device=device,
        environment=environment,
        protocol=protocol,
        outcome=measured(outcome) if isinstance(outcome, float | int) else outcome,
        board=board,
        created=START + timedelta(minutes=minute),
    )


def baseline(
    time_ms: float, prob: Problem | None = None, *, session: str = "s1", board: str = "GPU-A"
) -> TrialRecord:
    """As the search stores it: under the routine's own name, without a kernel hash."""
    return trial(
        time_ms,
        Config(()),
        prob,
        session=session,
        board=board,
        kernel="cublas",
        kernel_hash="",
        round=Round.BASELINE,
    )

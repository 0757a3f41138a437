from __future__ import annotations

import os
import signal
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from fakes.toy import toy_request, toy_spec

from autotune.config import Config
from autotune.records import Measurement, Origin, Outcome, Round, Status, TrialRecord
from autotune.study.budget import Budget
from autotune.study.final import choose_leaders, find_ties
from autotune.study.interrupt import Interrupt
from autotune.study.progress import FailureGroup, group_failures


class Clock:
    """Time that passes only when told."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_budget_ends_by_trials_time_or_patience() -> None:
    clock = Clock()
    budget = Budget(trials=10, time_s=60.0, patience=3, clock=clock)
    assert budget.allows(9)
    assert not budget.allows(9, in_flight=1)
    assert "10 trials" in budget.verdict(10)
    clock.now += 60.0
    assert "60 s" in budget.verdict(0)
    budget = Budget(trials=None, time_s=None, patience=3, clock=clock)
    for timed in (False, False, True, False, False):
        budget.note(timed)
        assert not budget.verdict(1000)
    budget.note(False)
    assert "3 failures in a row" in budget.verdict(1000)


def test_time_left_follows_the_pace_of_this_run() -> None:
    clock = Clock()
    budget = Budget(trials=100, time_s=None, clock=clock)
    assert budget.time_left_s(40, measured_now=0) is None
    clock.now += 20.0
    # 10 in 20 s, 50 to go; those of earlier runs say nothing about the pace.
    assert budget.time_left_s(50, measured_now=10) == pytest.approx(100.0)
    limited = Budget(trials=100, time_s=30.0, clock=clock)
    clock.now += 10.0
    assert limited.time_left_s(1, measured_now=1) == pytest.approx(20.0)


def test_an_interrupt_ends_work_but_not_what_must_be_finished() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupt() as interrupt:
        assert interrupt.attempt(lambda: 1) == 1
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupt.requested
        # What may be abandoned is not begun any more, and a second Ctrl-C ends everything.
        assert interrupt.attempt(lambda: 2) is None
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    with Interrupt() as interrupt:
        assert interrupt.attempt(lambda: os.kill(os.getpid(), signal.SIGINT)) is None
        assert interrupt.requested
    assert signal.getsignal(signal.SIGINT) is before


@pytest.fixture
def record(tmp_path: Path) -> TrialRecord:
    request = toy_request(toy_spec(tmp_path, {"A": range(10), "B": [1]}))
    return TrialRecord(
        uid="0",
        study="toy",
        session="s",
        round=Round.SEARCH,
        kernel="toy",
        kernel_hash="h",
        space_hash="h",
        config=Config.of({"A": 0, "B": 1}),
        problem=request.problem,
        device=request.device,
        environment=request.environment,
        protocol="cold",
        outcome=Outcome(Status.OK, Origin.MEASURED, measurement=Measurement((1.0,), 1)),
        board="",
        created=datetime.now(UTC),
    )


def timed(record: TrialRecord, number: int, *samples: float, status: Status = Status.OK) -> TrialRecord:
    outcome = Outcome(status, Origin.MEASURED, measurement=Measurement(samples, 1))
    return replace(record, config=record.config.replace({"A": number}), outcome=outcome)


def test_leaders_are_whole_measurements_within_the_margin(record: TrialRecord) -> None:
    ranked = [
        timed(record, 0, 0.9, status=Status.DROPPED),
        *(timed(record, n, 1 + n / 100) for n in range(1, 10)),
    ]
    assert [leader.config["A"] for leader in choose_leaders(ranked)] == [1, 2, 3, 4, 5]
    assert choose_leaders([]) == []
    assert len(choose_leaders([timed(record, 1, 1.0), timed(record, 2, 1.2)])) == 1


def test_ties_are_within_one_percent_or_the_spread(record: TrialRecord) -> None:
    best = timed(record, 0, 1.0, 1.0, 1.0, 1.0)
    near, far = timed(record, 1, *[1.009] * 4), timed(record, 2, *[1.03] * 4)
    noisy = timed(record, 3, 0.96, 1.0, 1.06, 1.1)
    assert find_ties(best, [near, far, noisy]) == (near, noisy)


def test_failures_that_differ_in_numbers_are_one_kind(record: TrialRecord) -> None:
    def failed(reason: str, status: Status) -> TrialRecord:
        return replace(record, outcome=Outcome(status, Origin.MEASURED, reason))

    records = [
        failed("ptxas: line 12", Status.COMPILE_ERROR),
        failed("took 3 s", Status.TIMEOUT),
        failed("took 4 s", Status.TIMEOUT),
        record,
    ]
    assert group_failures(records) == [
        FailureGroup(Status.TIMEOUT, "took 3 s", 2),
        FailureGroup(Status.COMPILE_ERROR, "ptxas: line 12", 1),
    ]

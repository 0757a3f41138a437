"""One trial: each stage's failure ends it, and nothing goes on to a stage that it must not reach."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from fakes.stages import FakeStages
from fakes.toy import toy_gpu, toy_problem, toy_spec

from autotune.candidate import Candidate, CompiledKernel, Runnable, Source
from autotune.config import Config
from autotune.errors import StageFailure
from autotune.records import Accuracy, Origin, Outcome, Status
from autotune.trial import Timed, run_trial


@dataclass
class Watched(FakeStages):
    """Remembers the stages that a trial reached; one of them may be made to fail."""

    reached: list[str] = field(default_factory=list)
    failing: str = ""
    status: Status = Status.CRASHED
    registers: int = 32

    def _enter(self, stage: str) -> None:
        self.reached.append(stage)
        if stage == self.failing:
            accuracy = Accuracy(9.0, 4.0, 1) if stage == "verify" else None
            raise StageFailure(self.status, f"{stage} fails", accuracy)

    def compile(self, candidate: Candidate, source: Source) -> CompiledKernel:
        self._enter("compile")
        kernel = super().compile(candidate, source)
        return replace(kernel, resources=replace(kernel.resources, registers=self.registers))

    def verify(self, candidate: Candidate, run: Runnable) -> Accuracy | None:
        self._enter("verify")
        return super().verify(candidate, run)

    def measure(self, candidate: Candidate, run: Runnable, best_ms: float | None) -> Timed | float:
        self._enter("measure")
        return super().measure(candidate, run, best_ms)


@pytest.fixture
def trial(tmp_path: Path) -> Callable[..., tuple[Outcome, list[str]]]:
    def run(a: int = 1, **changes: object) -> tuple[Outcome, list[str]]:
        stages = Watched(lambda config: 2.0, **changes)  # type: ignore[arg-type]
        spec = toy_spec(tmp_path, {"A": [1, 2]}, ["A < 2"])
        candidate = Candidate(spec, toy_gpu(), toy_problem(spec), Config.of({"A": a}))
        return run_trial(candidate, stages), stages.reached

    return run


def test_a_right_kernel_is_verified_and_then_measured(trial) -> None:
    outcome, reached = trial()
    assert reached == ["compile", "verify", "measure"]
    assert (outcome.status, outcome.time_ms) == (Status.OK, 2.0)
    assert outcome.accuracy is not None
    assert outcome.resources is not None


def test_T24_what_arithmetic_refuses_is_never_compiled(trial) -> None:
    outcome, reached = trial(a=2)
    assert reached == []
    assert outcome.status is Status.ILLEGAL
    assert "A < 2" in outcome.reason


def test_T20_what_the_compiled_code_cannot_launch_with_is_never_run(trial) -> None:
    outcome, reached = trial(registers=256)
    assert reached == ["compile"]
    assert outcome.status is Status.ILLEGAL
    assert "256" in outcome.reason
    assert outcome.resources is not None
    assert outcome.resources.registers == 256


@pytest.mark.parametrize(
    ("failing", "status", "reached"),
    [
        ("compile", Status.COMPILE_TIMEOUT, ["compile"]),
        ("verify", Status.WRONG_RESULT, ["compile", "verify"]),
        ("verify", Status.CRASHED, ["compile", "verify"]),
        ("measure", Status.IMPLAUSIBLE, ["compile", "verify", "measure"]),
    ],
)
def test_a_failure_ends_the_trial_with_its_reason_and_no_time(
    trial, failing: str, status: Status, reached: list[str]
) -> None:
    outcome, stages = trial(failing=failing, status=status)
    assert stages == reached
    assert (outcome.status, outcome.reason) == (status, f"{failing} fails")
    assert outcome.time_ms is None
    # How far off a wrong result is, and what the code took, are kept.
    assert (outcome.accuracy is not None) == (
        failing == "measure" or status in (Status.WRONG_RESULT, Status.CRASHED)
    )
    assert (outcome.resources is not None) == (failing != "compile")


def test_a_prediction_has_no_samples(trial) -> None:
    outcome, _ = trial(origin=Origin.PREDICTED)
    assert (outcome.status, outcome.predicted_ms, outcome.measurement) == (Status.OK, 2.0, None)

"""The pipeline: compiling, asking and storing happen while a trial runs, and nothing of it is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes.stages import FakeAheadStages, FakePipelineStages, FakeStages, measurement
from fakes.toy import toy_request, toy_spec

from autotune.candidate import Candidate, Runnable, Source
from autotune.config import Config
from autotune.errors import GpuUnavailable
from autotune.legality import search_space
from autotune.records import Accuracy, Outcome, Status
from autotune.store import Store, open_store
from autotune.study.progress import Progress
from autotune.study.strategies import Subject, make_sampler
from autotune.study.study import run_study
from autotune.study.window import Window
from autotune.trial import Timed

SPACE = {"A": range(40), "B": range(40)}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "records.db") as opened:
        yield opened


def slope(config: Config) -> float:
    """The larger A and B, the faster."""
    return 100.0 - float(config["A"]) - float(config["B"])  # type: ignore[arg-type]


def test_the_gpu_is_kept_busy_while_kernels_are_compiled_and_results_stored(
    tmp_path: Path, store: Store
) -> None:
    # One after the other, a trial would take 330 ms; 16 compilers make 53 kernels/s, the GPU measures 33/s.
    stages = FakePipelineStages(slope, delay_s=0.03, compile_s=0.3, compilers=16, ahead=24)
    events: list[Progress] = []
    result = run_study(
        toy_request(toy_spec(tmp_path, SPACE), 120, strategy="random"), stages, store, on_event=events.append
    )
    assert result.measured == len(set(stages.measured)) == 120
    assert stages.waiting == []  # no trial began before its kernel was there
    assert result.occupation.gpu >= 0.8
    assert result.occupation.idle <= 0.2
    assert result.occupation.compilers is not None
    assert 0.4 < result.occupation.compilers <= 1.0
    assert result.occupation.per_minute > 5 * 60 / 0.33
    assert events[-1].occupation == result.occupation


def test_with_slow_compilers_all_of_them_are_kept_busy(tmp_path: Path, store: Store) -> None:
    stages = FakePipelineStages(slope, delay_s=0.005, compile_s=0.1, compilers=4, ahead=8)
    result = run_study(toy_request(toy_spec(tmp_path, SPACE), 60, strategy="random"), stages, store)
    assert result.occupation.compilers is not None
    assert result.occupation.compilers >= 0.8
    assert result.occupation.gpu < 0.5 < result.occupation.idle


def test_what_is_ready_goes_first_in_the_order_asked(tmp_path: Path) -> None:
    spec = toy_spec(tmp_path, SPACE)
    stages = FakeAheadStages(slope, ahead=4, lag={0: 3, 2: 9})
    gate = threading.Event()
    tried: list[int] = []

    def try_one(candidate: Candidate, begun: Source | Outcome) -> Outcome | None:
        gate.wait(5)
        tried.append(int(candidate.config["A"]))  # type: ignore[arg-type]
        return None

    window = Window(stages, try_one)
    request = toy_request(spec)
    for number in range(4):
        config = Config.of({"A": number, "B": 0})
        window.add([Candidate(spec, request.gpu, request.problem, config)])
        if number == 1:  # the only one that is ready is begun, and waits at the gate
            time.sleep(0.05)
    gate.set()
    taken = 0
    while taken < 3:
        window.wait()
        taken += len(window.take_finished())
    assert tried == [1, 0, 3]
    assert len(window) == 1
    window.close(wait=True)
    assert window.take_finished() == []
    assert stages.futures[2].cancelled()


def test_a_trial_that_runs_is_finished_and_stored_when_time_is_up(tmp_path: Path, store: Store) -> None:
    stages = FakePipelineStages(slope, delay_s=0.1, compile_s=0.01)
    result = run_study(toy_request(toy_spec(tmp_path, SPACE), None, time_s=0.35), stages, store)
    assert len(result.records) == len(stages.measured) >= 2
    assert len(stages.measured) < len(stages.compiled_ahead)


@pytest.mark.parametrize("error", [GpuUnavailable("gone"), ZeroDivisionError("a mistake")])
def test_what_ends_the_thread_ends_the_run_with_everything_stored(
    tmp_path: Path, store: Store, error: Exception
) -> None:
    class Failing(FakePipelineStages):
        def verify(self, candidate: Candidate, run: Runnable) -> Accuracy | None:
            if len(self.measured) == 5:
                raise error
            return super().verify(candidate, run)

    with pytest.raises(type(error), match=str(error)):
        run_study(toy_request(toy_spec(tmp_path, SPACE), 20, strategy="random"), Failing(slope), store)
    assert len(store.records()) == 5


def test_a_pipelined_search_counts_failures_and_ends_exactly(tmp_path: Path, store: Store) -> None:
    stages = FakePipelineStages(
        slope, lambda config: Status.COMPILE_ERROR if int(config["B"]) % 3 == 0 else None, compile_s=0.002
    )
    result = run_study(toy_request(toy_spec(tmp_path, SPACE), 50, strategy="tpe"), stages, store)
    assert result.measured == len(set(stages.measured)) == 50
    assert result.counts[Status.COMPILE_ERROR] > 0
    assert len(stages.compiled) == len(set(stages.compiled)) == 50 + result.counts[Status.COMPILE_ERROR]


def test_noise_of_five_percent_leaves_a_winner_near_the_best(tmp_path: Path, store: Store) -> None:
    rng = np.random.default_rng(4)

    class Noisy(FakeStages):
        def measure(self, candidate: Candidate, run: Runnable, best_ms: float | None) -> Timed | float:
            timed = super().measure(candidate, run, best_ms)
            assert isinstance(timed, Timed)
            true = timed.measurement.time_ms
            return replace(
                timed,
                measurement=replace(
                    measurement(true),
                    samples_ms=tuple(true * (1 + 0.05 * abs(rng.standard_normal(7)))),
                ),
            )

    def bowl(config: Config) -> float:
        return 10.0 + (int(config["A"]) - 20) ** 2 / 20 + (int(config["B"]) - 11) ** 2 / 20  # type: ignore[call-overload]

    request = toy_request(toy_spec(tmp_path, SPACE), 150, strategy="tpe")
    result = run_study(request, Noisy(bowl), store)
    assert result.best is not None
    assert bowl(result.best.config) < 1.1 * 10.0
    assert result.measured == 150


@pytest.mark.parametrize("strategy", ["tpe", "exhaustive"])
def test_T30_eight_workers_that_compile_ahead_share_one_study(tmp_path: Path, strategy: str) -> None:
    spec = toy_spec(tmp_path, {"A": range(20), "B": range(10)})
    workers = [FakePipelineStages(slope, delay_s=0.05, compile_s=0.01, ahead=4) for _ in range(8)]

    def work(stages: FakeStages) -> None:
        with open_store(tmp_path / "records.db") as store:
            run_study(toy_request(spec, 150, strategy=strategy), stages, store)

    threads = [threading.Thread(target=work, args=(stages,)) for stages in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    measured = [config for stages in workers for config in stages.measured]
    assert len(set(measured)) >= 145
    # All begin alike, with as many as each has in flight; afterwards few meet.
    assert len(measured) - len(set(measured)) <= 7 * 4 + 25


def test_proposals_go_on_while_a_trial_runs(tmp_path: Path, store: Store) -> None:
    """A strategy that thinks for as long as a trial takes costs no time of the GPU."""
    stages = FakePipelineStages(slope, delay_s=0.03, ahead=4)
    request = toy_request(toy_spec(tmp_path, SPACE), 30, strategy="random")
    space = search_space(request.spec, request.gpu, request.problem)
    sampler = make_sampler("random", Subject(request.spec, request.gpu, request.problem, space), 0)
    propose = sampler.propose

    def slowly(*arguments: Any) -> Config | None:
        time.sleep(0.02)
        return propose(*arguments)

    sampler.propose = slowly  # type: ignore[method-assign]
    result = run_study(request, stages, store, sampler)
    assert result.measured == 30
    assert result.occupation.gpu >= 0.7

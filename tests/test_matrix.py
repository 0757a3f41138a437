"""Several problems in one search: what one strategy asks for is compiled once and tried on all of them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import cast

import pytest
from fakes.stages import FakePipelineStages, FakeStages
from fakes.toy import toy_problem, toy_request, toy_spec

from autotune.candidate import Candidate, CompiledKernel, Runnable, Source
from autotune.compile.ahead import CompileAhead
from autotune.compile.pool import CompilePool
from autotune.config import Config
from autotune.errors import NothingFound, StageFailure
from autotune.problem import Problem
from autotune.records import Accuracy, Origin, Round, Status
from autotune.spec.kernel_spec import KernelSpec
from autotune.store import RecordQuery, Store, open_store
from autotune.study.progress import Progress
from autotune.study.request import StudyRequest
from autotune.study.study import run_matrix
from autotune.trial import Timed

SIZES = (256, 512, 1024)
Trial = tuple[Config, Problem]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "records.db") as opened:
        yield opened


def requests(spec: KernelSpec, trials: int | None, **changes: object) -> list[StudyRequest]:
    return [toy_request(spec, trials, problem=toy_problem(spec, size), **changes) for size in SIZES]


def slope(config: Config) -> float:
    return 100.0 - float(config["A"]) - float(config["B"])  # type: ignore[arg-type]


class Remembering(FakeStages):
    """Also remembers on which problem each configuration was tried."""

    def __init__(self, time_of: Callable[[Config], float]) -> None:
        super().__init__(time_of)
        self.trials: list[Trial] = []

    def measure(self, candidate: Candidate, run: Runnable, best_ms: float | None) -> Timed | float:
        self.trials.append((candidate.config, candidate.problem))
        return super().measure(candidate, run, best_ms)


def test_every_configuration_is_tried_on_all_sizes_one_right_after_the_other(
    tmp_path: Path, store: Store
) -> None:
    spec = toy_spec(tmp_path, {"A": range(8), "B": range(10)})
    stages = Remembering(slope)
    events: list[Progress] = []
    results = run_matrix(requests(spec, 20, strategy="tpe"), stages, store, on_event=events.append)
    assert [result.measured for result in results] == [20, 20, 20]
    assert len(set(stages.trials)) == len(stages.trials) == 60
    for place in range(0, 60, 3):
        batch = stages.trials[place : place + 3]
        assert len({config for config, _ in batch}) == 1
        assert len({problem for _, problem in batch}) == 3
    # The strategies take turns: each size is the first of some.
    assert len({problem for _, problem in stages.trials[::3]}) == 3
    assert {event.problem for event in events if event.last} == {result.request.problem for result in results}
    assert all(result.best and result.best.problem == result.request.problem for result in results)


def test_one_compile_serves_all_sizes_that_render_alike(tmp_path: Path, store: Store) -> None:
    submitted: list[str] = []

    class Pool:
        workers = 2
        worked_s = 0.0

        def submit(self, source: Source, arch: str) -> Future[CompiledKernel]:
            submitted.append(source.text)
            future: Future[CompiledKernel] = Future()
            candidate = Candidate(spec, toy_request(spec).gpu, toy_problem(spec), Config.of({"A": 1}))
            future.set_result(FakeStages(slope).compile(candidate, source))
            return future

    class Stages(CompileAhead):
        origin = Origin.MEASURED

        def verify(self, candidate: Candidate, run: Runnable) -> Accuracy | None:
            return Accuracy(0.1, 1.0, 1)

        def measure(self, candidate: Candidate, run: Runnable, best_ms: float | None) -> Timed | float:
            return FakeStages(lambda config: 1.0 + int(config["A"])).measure(candidate, run, best_ms)

    spec = toy_spec(tmp_path, {"A": range(30)})
    run_matrix(requests(spec, 30, strategy="exhaustive"), Stages(cast(CompilePool, Pool()), 4), store)
    assert len(submitted) == len(set(submitted)) == 30
    assert len(store.records(RecordQuery(round=Round.SEARCH))) == 90


def test_a_list_of_configurations_is_measured_in_its_order_and_goes_on_where_it_stopped(
    tmp_path: Path, store: Store
) -> None:
    spec = toy_spec(tmp_path, {"A": range(8), "B": range(10)}, ["A > 0"])
    listed = [Config.of({"A": a, "B": b}) for a, b in itertools.product((3, 0, 1), (5, 2))]
    legal = [config for config in listed if config["A"]]
    first = Remembering(slope)
    run_matrix(requests(spec, 3), first, store, listed)
    assert [config for config, _ in first.trials[::3]] == legal[:3]
    # Killed within the batch of the fourth: its first size is stored, the others are not.
    one = requests(spec, None)[0]
    run_matrix([one], Remembering(slope), store, legal[3:])
    second = Remembering(slope)
    results = run_matrix(requests(spec, None), second, store, listed)
    assert [config for config, _ in second.trials] == [legal[3]] * 2
    assert all(result.exhausted and result.measured == 4 for result in results)
    again = Remembering(slope)
    assert [one.measured for one in run_matrix(requests(spec, None), again, store, listed)] == [4, 4, 4]
    assert again.trials == []


def test_a_size_for_which_nothing_works_does_not_stop_the_others(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.study.study.PATIENCE", 10)

    class Picky(Remembering):
        def verify(self, candidate: Candidate, run: Runnable) -> Accuracy | None:
            if dict(candidate.problem.sizes)["N"] == 512:
                raise StageFailure(Status.WRONG_RESULT, "y[0] is nan")
            return super().verify(candidate, run)

    spec = toy_spec(tmp_path, {"A": range(20), "B": range(20)})
    stages = Picky(slope)
    one, none, other = run_matrix(requests(spec, 15), stages, store)
    assert one.measured == other.measured == 15
    assert none.best is None
    assert "wrong_result" in none.notes[0]
    counts = Counter(record.problem for record in store.records(RecordQuery(round=Round.SEARCH)))
    assert counts[toy_problem(spec, 512)] == 10  # it was given up after so many failures in a row
    with pytest.raises(NothingFound, match="nan"):
        run_matrix(requests(spec, 5)[1:2], Picky(slope), store)


def test_a_matrix_keeps_the_gpu_busy_though_each_kernel_takes_long_to_compile(
    tmp_path: Path, store: Store
) -> None:
    spec = toy_spec(tmp_path, {"A": range(40), "B": range(40)})
    stages = FakePipelineStages(slope, delay_s=0.03, compile_s=0.2, compilers=12, ahead=16)
    results = run_matrix(requests(spec, 25, strategy="random"), stages, store)
    assert all(result.measured == 25 for result in results)
    assert results[0].occupation.gpu >= 0.75


def test_time_ends_a_matrix_for_all_sizes(tmp_path: Path, store: Store) -> None:
    spec = toy_spec(tmp_path, {"A": range(40), "B": range(40)})
    stages = FakePipelineStages(slope, delay_s=0.02, compile_s=0.01)
    results = run_matrix(requests(spec, None, time_s=0.5), stages, store)
    assert all("0.5 s" in result.notes[0] for result in results)
    assert sum(result.measured for result in results) == len(stages.measured) <= 30

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.slow_study import TROUBLE
from fakes.stages import FakeAheadStages, FakeFinalStages, FakeStages
from fakes.toy import ENVIRONMENT, toy_gpu, toy_problem, toy_request, toy_spec

import autotune
from autotune.candidate import Candidate, Runnable
from autotune.config import Config
from autotune.errors import GpuUnavailable, InputError, NothingFound, StageFailure
from autotune.records import Accuracy, Origin, Round, Status
from autotune.render import render
from autotune.spec.kernel_spec import KernelSpec
from autotune.store import RecordQuery, Store, open_store
from autotune.study.progress import Progress
from autotune.study.study import run_study

FORTY = {"A": range(8), "B": range(10)}
EVEN = ["(A + B) % 2 == 0"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "records.db") as opened:
        yield opened


def slope(config: Config) -> float:
    """The larger A and B, the faster."""
    return 60.0 - float(config["A"]) - float(config["B"])  # type: ignore[arg-type]


def some_fail(config: Config) -> Status | None:
    """About 30%, always the same ones."""
    return Status.COMPILE_ERROR if zlib.crc32(config.key.encode()) % 10 < 3 else None


@pytest.mark.parametrize("strategy", ["random", "tpe", "model", "auto"])
@pytest.mark.parametrize(("trials", "expected"), [(10, 10), (40, 40), (500, 40)])
def test_T25_distinct_trials_and_exhaustion(
    tmp_path: Path, store: Store, strategy: str, trials: int, expected: int
) -> None:
    spec = toy_spec(tmp_path, FORTY, EVEN)
    stages = FakeStages(slope)
    result = run_study(toy_request(spec, trials, strategy=strategy), stages, store)
    assert len(stages.measured) == len(set(stages.measured)) == result.measured == expected
    assert all((config["A"] + config["B"]) % 2 == 0 for config in stages.measured)  # type: ignore[operator]
    assert not result.interrupted
    if trials > 40:
        assert result.exhausted
        assert "exhausted" in result.notes[0]


def test_T25_exhaustive_finds_the_planted_optimum(tmp_path: Path, store: Store) -> None:
    spec = toy_spec(tmp_path, FORTY, EVEN)
    stages = FakeStages(slope)
    result = run_study(toy_request(spec, None, strategy="exhaustive"), stages, store)
    assert len(stages.measured) == len(set(stages.measured)) == 40
    assert result.exhausted
    assert result.best is not None
    assert result.best.config == Config.of({"A": 7, "B": 9})


def test_T27_failures_use_no_budget_and_are_not_retried(tmp_path: Path, store: Store) -> None:
    # 40,000 points of which 400 (1%) are legal; 30% of those fail to compile.
    spec = toy_spec(
        tmp_path,
        {"A": range(20), "B": range(20), "C": range(10), "D": range(10)},
        ["C == A % 10", "D == B % 10"],
    )
    stages = FakeStages(slope, some_fail)
    result = run_study(toy_request(spec, 300, strategy="tpe"), stages, store)
    assert result.legal == 400
    assert max(Counter(stages.compiled).values()) == 1
    assert result.counts[Status.ILLEGAL] == 0
    assert len(set(stages.measured)) == min(300, 400 - sum(some_fail(c) is not None for c in stages.compiled))
    assert len(set(stages.measured)) >= 200


def test_T30_one_worker_measures_distinct_configurations(tmp_path: Path, store: Store) -> None:
    spec = toy_spec(tmp_path, {"A": range(20), "B": range(10)})
    stages = FakeStages(slope)
    run_study(toy_request(spec, 150, strategy="tpe"), stages, store)
    assert len(stages.measured) == len(set(stages.measured)) == 150


@pytest.mark.parametrize("strategy", ["tpe", "exhaustive"])
def test_T30_eight_workers_share_one_study(tmp_path: Path, strategy: str) -> None:
    spec = toy_spec(tmp_path, {"A": range(20), "B": range(10)})
    workers = [FakeStages(slope, delay_s=0.05) for _ in range(8)]

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
    # Seven may repeat the first configuration, before anybody knows of the others; few meet by chance later.
    assert len(measured) - len(set(measured)) <= 25
    with open_store(tmp_path / "records.db") as store:
        assert len(store.records(RecordQuery(study="toy"))) == len(measured)


def test_T30_all_suggestions_known_ends_at_once(tmp_path: Path, store: Store) -> None:
    spec = toy_spec(tmp_path, FORTY, EVEN)
    run_study(toy_request(spec, None, strategy="exhaustive"), FakeStages(slope), store)
    again = FakeStages(slope)
    result = run_study(toy_request(spec, 500, strategy="tpe"), again, store)
    assert again.compiled == []
    assert result.exhausted
    assert result.best is not None
    assert result.best.outcome.time_ms == 44.0


def test_T48_values_keep_their_types_through_storage(tmp_path: Path) -> None:
    parameters = {
        "A": [0.8, 0.9, 1.0],
        "B": [8, 16, 32, 64, 128, 256],
        "C": [False, True],
        "D": ["fast", "slow"],
        "E": [(1, 2), (2, 1)],
    }
    spec = toy_spec(tmp_path, parameters, template="{{ A }} {{ B }} {{ C }} {{ D }} {{ E }}")
    stages = FakeStages(lambda config: float(config["A"]))  # type: ignore[arg-type]
    with open_store(tmp_path / "records.db") as store:
        run_study(toy_request(spec, 100, strategy="tpe"), stages, store)
    with open_store(tmp_path / "records.db") as store:
        reloaded = [record.config for record in store.records(RecordQuery(study="toy", round=Round.SEARCH))]
        run_study(toy_request(spec, None, strategy="exhaustive"), stages, store)
    assert reloaded == stages.measured[:100]
    assert len(set(stages.measured)) == len(stages.measured) == 3 * 6 * 2 * 2 * 2
    for name, values in parameters.items():
        got = {(type(config[name]), config[name]) for config in stages.measured}
        assert got == {(type(value), value) for value in values}
    for before, after in zip(stages.measured, reloaded, strict=False):
        texts = [render(spec, toy_gpu(), toy_problem(spec), config).text for config in (before, after)]
        assert texts[0] == texts[1]
        assert "True" not in texts[0]
        assert ".0 " not in texts[0].replace("1.0 ", "")


def _start(tmp_path: Path, trials: int, *options: str) -> subprocess.Popen[str]:
    script = Path(__file__).parent / "fakes" / "slow_study.py"
    command = [
        sys.executable,
        str(script),
        str(tmp_path),
        str(tmp_path / "records.db"),
        str(trials),
        *options,
    ]
    path = [str(Path(autotune.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def _read_until(process: subprocess.Popen[str], done: int) -> None:
    assert process.stdout
    for line in process.stdout:
        words = line.split()
        if words[0] == "trial" and int(words[1]) >= done:
            assert words[2] == "50"
            return
    raise AssertionError("the study ended early")


def _stored(tmp_path: Path) -> int:
    with open_store(tmp_path / "records.db") as store:
        return len(store.records(RecordQuery(study="toy", round=Round.SEARCH)))


@pytest.mark.parametrize("options", [(), ("ahead",)], ids=["one at a time", "compiled ahead"])
def test_T59_interrupted_killed_and_continued(tmp_path: Path, options: tuple[str, ...]) -> None:
    first = _start(tmp_path, 50, *options)
    _read_until(first, 7)
    first.send_signal(signal.SIGINT)
    sent = time.monotonic()
    said, _ = first.communicate(timeout=5)
    assert time.monotonic() - sent < 5
    assert first.returncode == 130
    assert "best" in said
    assert "None" not in said
    assert 7 <= _stored(tmp_path) <= (8 if options else 7)

    second = _start(tmp_path, 50, *options)
    _read_until(second, 20)
    second.kill()
    second.wait()
    assert second.stdout
    second.stdout.close()
    stored = _stored(tmp_path)
    assert 20 <= stored < 50

    third = _start(tmp_path, 50, *options)
    said, _ = third.communicate(timeout=60)
    assert third.returncode == 0
    assert f"ran {50 - stored} best" in said
    assert _stored(tmp_path) == 50


def test_twenty_trials_with_four_troubles_killed_in_the_middle(tmp_path: Path) -> None:
    first = _start(tmp_path, 20, "trouble")
    assert first.stdout
    for _ in range(10):
        assert first.stdout.readline().startswith("trial")
    first.kill()
    first.wait()
    first.stdout.close()
    kept = _stored(tmp_path)
    assert 10 <= kept < 20

    second = _start(tmp_path, 20, "trouble")
    said, _ = second.communicate(timeout=60)
    assert second.returncode == 0
    assert said.count("trial ") == 20 - kept
    with open_store(tmp_path / "records.db") as store:
        records = store.records(RecordQuery(study="toy", round=Round.SEARCH))
    assert Counter(record.config["A"] for record in records) == Counter(range(20))
    timed = [record.outcome for record in records if record.outcome.status.timed]
    assert len(timed) == 16
    assert all(outcome.accuracy is not None for outcome in timed)
    failed = {record.config["A"]: record.outcome for record in records if not record.outcome.status.timed}
    assert {number: outcome.status for number, outcome in failed.items()} == TROUBLE
    assert all(outcome.reason and outcome.time_ms is None for outcome in failed.values())


def test_T59_progress_counts_done_best_and_failures(tmp_path: Path, store: Store) -> None:
    spec = toy_spec(tmp_path, FORTY)
    events: list[Progress] = []
    result = run_study(toy_request(spec, 30), FakeStages(slope, some_fail), store, on_event=events.append)
    last = events[-1]
    assert (last.done, last.total) == (30, 30)
    assert last.failures[Status.COMPILE_ERROR] == result.counts[Status.COMPILE_ERROR] > 0
    assert last.best_ms == min(record.outcome.time_ms or 99 for record in result.records)
    assert last.best_metrics["gflops"] == pytest.approx(1024 / (last.best_ms * 1e6))
    assert last.time_left_s == 0
    assert [event.done for event in events] == sorted(event.done for event in events)


def test_a_study_goes_on_with_another_strategy(tmp_path: Path, store: Store) -> None:
    spec = toy_spec(tmp_path, FORTY)
    stages = FakeStages(slope, some_fail)
    for trials, strategy in ((10, "random"), (20, "tpe"), (30, "exhaustive"), (40, "auto")):
        run_study(toy_request(spec, trials, strategy=strategy), stages, store)
        assert len(stages.measured) == len(set(stages.measured)) == trials
    assert len(stages.compiled) == len(set(stages.compiled)) > 40


def run_twice(
    store: Store, first: KernelSpec, second: KernelSpec
) -> tuple[FakeStages, FakeStages, list[str]]:
    """All of the first spec's space, then of the second's, under one name."""
    one, two = FakeStages(slope), FakeStages(slope)
    run_study(toy_request(first, None, strategy="exhaustive"), one, store)
    result = run_study(toy_request(second, None, strategy="exhaustive"), two, store)
    return one, two, list(result.notes)


def test_a_parameter_list_that_grew_keeps_what_is_known(tmp_path: Path, store: Store) -> None:
    before = toy_spec(tmp_path, {"A": [1, 2, 3], "B": [1, 2]})
    after = toy_spec(tmp_path, {"A": [0, 1, 2, 3, 4], "B": [1, 2]})
    _, again, _ = run_twice(store, before, after)
    assert {config["A"] for config in again.measured} == {0, 4}
    assert len(again.measured) == 4


def test_a_parameter_list_that_shrank_leaves_out_what_is_gone(tmp_path: Path, store: Store) -> None:
    before = toy_spec(tmp_path, {"A": [1, 2, 3], "B": [1, 2]})
    after = toy_spec(tmp_path, {"A": [1, 2], "B": [2]})
    _, again, notes = run_twice(store, before, after)
    assert again.measured == []
    assert any("4 earlier trials" in note for note in notes)


def test_a_new_parameter_makes_old_configurations_inapplicable(tmp_path: Path, store: Store) -> None:
    before = toy_spec(tmp_path, {"A": [1, 2, 3], "B": [1, 2]})
    after = toy_spec(tmp_path, {"A": [1, 2, 3], "B": [1, 2], "C": [1, 2]})
    _, again, notes = run_twice(store, before, after)
    assert len(again.measured) == 12
    assert any("6 earlier trials" in note for note in notes)


@pytest.mark.parametrize("changed", [{"driver": "2.0"}, {"cuda": "13.1"}, {"nvrtc": "13.1"}])
def test_T33_a_new_driver_or_compiler_is_tuned_for_anew(
    tmp_path: Path, store: Store, changed: dict[str, str]
) -> None:
    spec = toy_spec(tmp_path, {"A": [1, 2, 3], "B": [1, 2]})
    before, after = FakeStages(slope), FakeStages(slope)
    run_study(toy_request(spec, 6), before, store)
    now = toy_request(spec, 6, environment=replace(ENVIRONMENT, **changed))
    result = run_study(now, after, store)
    assert len(after.measured) == len(before.measured) == result.measured == 6
    assert any("6 earlier trials" in note for note in result.notes)
    # Its own results, and those of the old driver where it is back, are not measured again.
    for request in (now, toy_request(spec, 6)):
        again = FakeStages(slope)
        assert run_study(request, again, store).measured == 6
        assert again.measured == []


def test_a_changed_kernel_starts_fresh(tmp_path: Path, store: Store) -> None:
    before = toy_spec(tmp_path, {"A": [1, 2, 3], "B": [1, 2]})
    stages = FakeStages(slope)
    run_study(toy_request(before, None, strategy="exhaustive"), stages, store)
    after = toy_spec(tmp_path, {"A": [1, 2, 3], "B": [1, 2]}, template="{{ A }} {{ B }}")
    run_study(toy_request(after, None, strategy="exhaustive"), stages, store)
    assert len(stages.measured) == 12


def test_other_problems_origins_and_protocols_do_not_answer(tmp_path: Path, store: Store) -> None:
    spec = toy_spec(tmp_path, {"A": [1, 2], "B": [1, 2]})
    request = toy_request(spec, None, strategy="exhaustive")
    for changed in (
        request,
        toy_request(spec, None, strategy="exhaustive", problem=toy_problem(spec, 2048)),
        toy_request(spec, None, strategy="exhaustive", protocol=request.protocol.warm()),
    ):
        stages = FakeStages(slope)
        run_study(changed, stages, store)
        assert len(stages.measured) == 4
    predicted = FakeStages(slope, origin=Origin.PREDICTED)
    result = run_study(request, predicted, store)
    assert len(predicted.measured) == 4
    assert result.best is not None
    assert result.best.outcome.predicted_ms == result.best.outcome.time_ms


def test_everything_failing_says_why_and_stops(tmp_path: Path, store: Store) -> None:
    spec = toy_spec(tmp_path, {"A": range(30), "B": range(30)})
    stages = FakeStages(slope, lambda config: Status.WRONG_RESULT if config["A"] == 0 else Status.CRASHED)
    with pytest.raises(NothingFound) as caught:
        run_study(toy_request(spec, 50), stages, store)
    assert len(stages.compiled) == 100
    assert "crashed" in str(caught.value)
    assert "100 configurations" in str(caught.value)


def test_T23_a_gpu_that_cannot_run_what_is_compiled_stops_the_run_at_its_first_trial(
    tmp_path: Path, store: Store
) -> None:
    class Refusing(FakeStages):
        def verify(self, candidate: Candidate, run: Runnable) -> Accuracy | None:
            raise GpuUnavailable("made by NVRTC 13.5, and the driver supports CUDA 13.4")

    stages = Refusing(slope)
    with pytest.raises(GpuUnavailable, match=r"13\.5.*13\.4"):
        run_study(toy_request(toy_spec(tmp_path, FORTY), 20), stages, store)
    assert len(stages.compiled) == 1
    assert store.records() == []


def test_nothing_legal_names_the_rules(tmp_path: Path, store: Store) -> None:
    spec = toy_spec(tmp_path, {"A": [1, 2], "B": [1, 2]}, ["A + B > 10"])
    with pytest.raises(NothingFound, match="it says"):
        run_study(toy_request(spec, 5), FakeStages(slope), store)


def test_an_unknown_strategy_names_the_nearest(tmp_path: Path, store: Store) -> None:
    spec = toy_spec(tmp_path, {"A": [1, 2], "B": [1, 2]})
    with pytest.raises(InputError, match="exhaustive"):
        run_study(toy_request(spec, 5, strategy="exhaustiv"), FakeStages(slope), store)


def test_time_ends_a_run(tmp_path: Path, store: Store) -> None:
    spec = toy_spec(tmp_path, {"A": range(30), "B": range(30)})
    stages = FakeStages(slope, delay_s=0.02)
    result = run_study(toy_request(spec, None, time_s=0.3), stages, store)
    assert 1 <= len(stages.measured) <= 15
    assert "0.3 s" in result.notes[0]


def test_each_trial_is_held_against_the_best_so_far(tmp_path: Path, store: Store) -> None:
    spec = toy_spec(tmp_path, {"A": range(6), "B": range(6)})
    stages = FakeStages(slope)
    run_study(toy_request(spec, 20), stages, store)
    times = [slope(config) for config in stages.measured]
    assert stages.limits == [None, *(min(times[:count]) for count in range(1, 20))]


def test_leaders_are_measured_again_and_ties_are_named(tmp_path: Path, store: Store) -> None:
    spec = toy_spec(tmp_path, {"A": range(10), "B": range(10)})

    def searched(config: Config) -> float:
        return 100.0 + 2 * int(config["A"]) + int(config["B"])  # type: ignore[call-overload]

    stages = FakeFinalStages(searched, final_time_of=lambda config: 99.0 if config["A"] == 1 else 99.5)
    request = toy_request(spec, None, strategy="exhaustive")
    result = run_study(request, stages, store)
    leaders = ["A=0,B=0", "A=0,B=1", "A=0,B=2", "A=1,B=0", "A=0,B=3"]
    assert [sorted(compared) for compared in stages.compared] == [sorted(leaders)]
    assert result.best is not None
    assert result.best.round is Round.FINAL
    assert result.best.config.key == "A=1,B=0"
    assert len(result.ties) == 4
    assert [record.kernel for record in result.baseline] == ["vendor"]
    # A second run measures nothing new: it answers from the final round of the first.
    again = run_study(request, stages, store)
    assert len(stages.compared) == 1
    assert again.best == result.best


def test_a_winner_that_is_wrong_at_other_sizes_is_out(tmp_path: Path, store: Store) -> None:
    class Thorough(FakeFinalStages):
        def verify_run(self, run: Runnable, data: str = "", values: object = None) -> Accuracy:
            if run.kernel.key == "A=0":
                raise StageFailure(Status.WRONG_RESULT, "y[0] is nan")
            return Accuracy(0.1, 4.0, 10)

    spec = toy_spec(tmp_path, {"A": range(4)})
    stages = Thorough(lambda config: 1 + 0.001 * int(config["A"]), final_time_of=lambda c: 1 + int(c["A"]))  # type: ignore[call-overload]
    request = toy_request(spec, None, strategy="exhaustive")
    result = run_study(request, stages, store)
    assert result.best is not None
    assert result.best.config.key == "A=1"
    assert "right off the tile" in result.best.outcome.notes[0]
    assert any("A=0 is out" in note and "nan" in note for note in result.notes)
    final = [record for record in result.records if record.round is Round.FINAL]
    assert {record.config.key: record.outcome.status for record in final}["A=0"] is Status.WRONG_RESULT
    again = run_study(request, stages, store)
    assert again.best == result.best


def test_ready_candidates_are_tried_first_and_nothing_is_lost(tmp_path: Path, store: Store) -> None:
    spec = toy_spec(tmp_path, {"A": range(10), "B": range(1)})
    stages = FakeAheadStages(slope, ahead=3, lag={0: 2})
    run_study(toy_request(spec, 10, strategy="exhaustive"), stages, store)
    assert [config["A"] for config in stages.began] == list(range(10))
    assert sorted(config["A"] for config in stages.measured) == list(range(10))
    late = FakeAheadStages(slope, ahead=3, lag={0: 3})
    run_study(toy_request(spec, 10, strategy="exhaustive", study="late"), late, store)
    assert late.measured[0]["A"] == 1
    assert sorted(config["A"] for config in late.measured) == list(range(10))


def test_one_seed_gives_one_order(tmp_path: Path) -> None:
    spec = toy_spec(tmp_path, {"A": range(12), "B": range(12)})
    for strategy in ("random", "auto"):
        orders = []
        for _ in range(2):
            stages = FakeStages(slope)
            with open_store(tmp_path / f"{strategy}{len(orders)}.db") as store:
                run_study(toy_request(spec, 40, strategy=strategy, seed=3), stages, store)
            orders.append(stages.measured)
        assert orders[0] == orders[1]

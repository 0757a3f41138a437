"""What a run knows of its study, kept up to date record by record."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.stages import FakeStages, measurement
from fakes.toy import toy_gpu, toy_problem, toy_request, toy_spec

import autotune
from autotune.config import Config
from autotune.legality import search_space
from autotune.records import Origin, Outcome, Round, Status
from autotune.store import RecordQuery, Store, open_store
from autotune.study import ledger as room
from autotune.study.ledger import Ledger, time_ms
from autotune.study.request import StudyRequest
from autotune.study.study import run_study

pytestmark = pytest.mark.usefixtures("user_data")


def ledger_of(request: StudyRequest, store: Store) -> Ledger:
    space = search_space(request.spec, toy_gpu(), toy_problem(request.spec))
    return Ledger(request, Origin.MEASURED, store, space)


def ok(time: float) -> Outcome:
    return Outcome(Status.OK, Origin.MEASURED, measurement=measurement(time))


FAILED = Outcome(Status.CRASHED, Origin.MEASURED, "it crashed")
WRONG = Outcome(Status.WRONG_RESULT, Origin.MEASURED, "wrong elsewhere")


@pytest.mark.parametrize("seed", range(5))
def test_running_figures_are_those_of_all_records(tmp_path: Path, seed: int) -> None:
    spec = toy_spec(tmp_path, {"A": range(10), "B": range(4)})
    rng = random.Random(seed)
    with open_store(tmp_path / "records.db") as store:
        here = ledger_of(toy_request(spec, board="GPU-0"), store)
        there = ledger_of(toy_request(spec, board="GPU-1"), store)
        for ledger in (here, there):
            ledger.refresh()
        for _ in range(60):
            ledger = rng.choice((here, there))
            config = Config.of({"A": rng.randrange(10), "B": rng.randrange(4)})
            if rng.random() < 0.1:
                ledger.add(config, WRONG, Round.FINAL)
            elif ledger.get(config) is None:
                ledger.add(config, FAILED if rng.random() < 0.3 else ok(rng.uniform(1, 9)))
            if rng.random() < 0.5:
                ledger.refresh()
            timed = ledger.timed
            assert ledger.measured == sum(record.outcome.status.timed for record in ledger.tried)
            assert (ledger.best and time_ms(ledger.best)) == (time_ms(timed[0]) if timed else None)
            board = "GPU-0" if ledger is here else "GPU-1"
            assert ledger.best_ms == min(
                (time_ms(record) for record in timed if record.board == board), default=None
            )


def test_a_wrong_kernel_is_nothing_to_be_slower_than(tmp_path: Path) -> None:
    spec = toy_spec(tmp_path, {"A": range(3)})
    with open_store(tmp_path / "records.db") as store:
        ledger = ledger_of(toy_request(spec), store)
        ledger.add(Config.of({"A": 0}), ok(1.0))
        ledger.add(Config.of({"A": 1}), ok(5.0))
        ledger.add(Config.of({"A": 0}), WRONG, Round.FINAL)
        assert ledger.best_ms == 5.0
        later = ledger_of(toy_request(spec), store)
        later.refresh()
        assert later.best_ms == 5.0


def test_a_trial_costs_the_same_late_in_a_long_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    def counted(record: object) -> float:
        nonlocal asked
        asked += 1
        return time_ms(record)  # type: ignore[arg-type]

    monkeypatch.setattr(room, "time_ms", counted)
    spec = toy_spec(tmp_path, {"A": range(20), "B": range(15)})
    with open_store(tmp_path / "records.db") as store:
        run_study(
            toy_request(spec, strategy="exhaustive"),
            FakeStages(lambda _: 1.0),
            store,
            on_event=lambda _: None,
        )
    assert asked < 10 * 300


def test_T59_killed_at_any_moment_nothing_is_lost_or_repeated(tmp_path: Path) -> None:
    script = Path(__file__).parent / "fakes" / "slow_study.py"
    command = [sys.executable, str(script), str(tmp_path), str(tmp_path / "records.db"), "60"]
    path = os.pathsep.join([str(Path(autotune.__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    rng = random.Random(0)
    stored = 0
    for _ in range(4):
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
        ) as process:
            assert process.stdout
            said = 0
            for line, _number in zip(process.stdout, range(rng.randint(1, 8)), strict=False):
                said = int(line.split()[1])
            process.kill()
        with open_store(tmp_path / "records.db") as store:
            configs = [
                record.config for record in store.records(RecordQuery(study="toy", round=Round.SEARCH))
            ]
        assert len(configs) == len(set(configs)) >= max(said, stored)
        stored = len(configs)
    assert 4 <= stored < 60
    assert sorted(path.name for path in tmp_path.iterdir() if "records" not in path.name) == ["templates"]


def test_T30_sessions_in_step_part_after_the_first_trial(tmp_path: Path) -> None:
    # The other always stores the very configuration that is being measured here, and stores it first.
    spec = toy_spec(tmp_path, {"A": range(30), "B": range(10)})
    request = toy_request(spec, 12, strategy="exhaustive")
    with open_store(tmp_path / "records.db") as store, open_store(tmp_path / "records.db") as theirs:
        other = ledger_of(toy_request(spec, session="other"), theirs)
        order = [
            request.spec.default_config("a6000").replace({"A": n // 10, "B": n % 10}) for n in range(300)
        ]
        stages = FakeStages(lambda config: stored_by_the_other(config))

        def stored_by_the_other(config: Config) -> float:
            if len(stages.measured) < 13:
                other.add(config if config == order[len(stages.measured) - 1] else order[-1], ok(1.0))
            return 1.0

        run_study(request, stages, store)
    in_step = [config for config, place in zip(stages.measured, order, strict=False) if config == place]
    assert len(in_step) <= 2

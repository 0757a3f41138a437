from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fakes.trials import DEVICE, ENVIRONMENT, baseline, config, measured, predicted, problem, trial

from autotune import paths
from autotune.choice.best import Answer, Layer, Match, Question, best_from, find_best, staleness
from autotune.choice.shipped import shipped_records
from autotune.config import Config
from autotune.errors import NothingFound, StoreError
from autotune.problem import Problem
from autotune.records import DeviceIdentity, Origin, Outcome, Round, Status, TrialRecord
from autotune.store import MergeReport, RecordQuery, open_store
from autotune.store.jsonl import write_records

pytestmark = pytest.mark.usefixtures("user_data")

DEFAULT = config(8)


def question(prob: Problem | None = None, **changes: object) -> Question:
    asked = Question(
        kernel="sgemm",
        kernel_hash="k1",
        space_hash="p1",
        device=DEVICE.key,
        problem=prob or problem(),
        protocol="cold/normal-1/1",
        environment=ENVIRONMENT,
        default=DEFAULT,
    )
    return replace(asked, **changes)  # type: ignore[arg-type]


def answer_of(answer: Answer) -> tuple[object, str]:
    return answer.config["BM"], str(answer.match)


def test_exact_answer_says_what_it_rests_on() -> None:
    best = trial(1.0, 128)
    answer = find_best([best, trial(1.005, 64), trial(2.0, 32), baseline(0.9)], question())
    assert (answer.config, answer.match, answer.record) == (config(128), Match.EXACT, best)
    assert (answer.origin, answer.layer, answer.staleness) == (Origin.MEASURED, Layer.OWN, ())
    assert answer.ties == (config(64),)
    assert "4096x4096x4096" in answer.why


def test_a_kernel_that_failed_the_winners_check_never_answers() -> None:
    failed = Outcome(Status.WRONG_RESULT, Origin.MEASURED, "wrong elsewhere: C[0, 0] is nan")
    records = [trial(1.0, 128), trial(2.0, 64), trial(failed, 128, round=Round.FINAL)]
    assert find_best(records, question()).config == config(64)
    elsewhere = trial(failed, 128, problem(64), round=Round.FINAL)
    with open_store(None) as store:
        store.add_many([*records[:2], elsewhere])
        assert best_from(store, question()).config == config(64)


def test_T33_a_changed_kernel_never_answers_and_other_changes_are_told() -> None:
    records = [trial(1.0, 128)]
    assert find_best(records, question(kernel_hash="k2")).match is Match.DEFAULT
    with pytest.raises(NothingFound):
        find_best(records, question(kernel_hash="k2", default=None))
    changes = {
        "driver was 580.1, is 590.2": {"environment": replace(ENVIRONMENT, driver="590.2")},
        "CUDA was 13.0, is 13.1": {"environment": replace(ENVIRONMENT, cuda="13.1")},
        "compiler was 13.5, is 13.6": {"environment": replace(ENVIRONMENT, nvrtc="13.6")},
        "autotune was 0.1.0, is 0.2.0": {"environment": replace(ENVIRONMENT, autotune="0.2.0")},
        "the parameter space has changed": {"space_hash": "p2"},
        "measured under protocol cold/normal-1/1, not cold/normal-1/2": {"protocol": "cold/normal-1/2"},
    }
    for expected, change in changes.items():
        answer = find_best(records, question(**change))
        assert (answer.match, answer.staleness) == (Match.EXACT, (expected,))


def test_T33_a_new_tuning_is_not_skipped_and_answers(tmp_path: Path) -> None:
    old = [trial(1.0, 128, session="old"), trial(1.2, 64, session="old")]
    now = replace(ENVIRONMENT, driver="590.2")
    asked = question(environment=now)
    with open_store(tmp_path / "db.sqlite") as store:
        store.add_many(old)
        # What a search resumes from: nothing of another kernel; old results are known to be stale.
        assert store.records(RecordQuery(kernel="sgemm", kernel_hash="k2")) == []
        assert all(staleness(record, asked) for record in store.records(RecordQuery(kernel_hash="k1")))
        # Measured again under the new driver, 64 is the faster one.
        store.add(trial(1.5, 128, session="new", environment=now, minute=60))
        store.add(trial(1.2, 64, session="new", environment=now, minute=61))
        answer = best_from(store, asked)
    assert answer_of(answer) == (64, "exact")
    assert answer.staleness == ()


def test_without_a_gpu_there_is_no_driver_to_compare() -> None:
    blank = replace(ENVIRONMENT, driver="", cuda="")
    answer = find_best([trial(predicted(1.0), environment=blank)], question())
    assert (answer.match, answer.staleness) == (Match.PREDICTED, ())
    assert find_best([trial(1.0)], question(environment=None)).staleness == ()


VARIANTS = {
    "M": {"prob": problem(8192, 512, 64)},
    "N": {"prob": problem(4096, 1024, 64)},
    "K": {"prob": problem(4096, 512, 128)},
    "permuted": {"prob": problem(512, 4096, 64)},
    "permuted again": {"prob": problem(64, 512, 4096)},
    "transposed A": {"prob": problem(4096, 512, 64, trans_a=True, trans_b=False)},
    "transposed B": {"prob": problem(4096, 512, 64, trans_a=False, trans_b=True)},
    "dtype": {"prob": problem(4096, 512, 64, dtype="float16")},
    "beta": {"prob": problem(4096, 512, 64, beta="general")},
    "alignment 1": {"prob": problem(4096, 512, 64, align_a=1)},
    "alignment 4": {"prob": problem(4096, 512, 64, align_a=4)},
    "kernel": {"kernel": "hgemm"},
    "template": {"kernel_hash": "other template"},
    "device": {"device": replace(DEVICE, mig_profile="1g.5gb")},
}


def test_T34_every_part_of_the_key_separates(tmp_path: Path) -> None:
    base = problem(4096, 512, 64)
    with open_store(tmp_path / "db.sqlite") as store:
        store.add(trial(1.0, 1, base))
        for number, parts in enumerate(VARIANTS.values(), 2):
            store.add(trial(0.5, number, **{"prob": base, **parts}))  # type: ignore[arg-type]
        assert answer_of(best_from(store, question(base))) == (1, "exact")
        for number, (name, parts) in enumerate(VARIANTS.items(), 2):
            device = parts.get("device", DEVICE)
            asked = question(
                parts.get("prob", base),  # type: ignore[arg-type]
                kernel=parts.get("kernel", "sgemm"),
                kernel_hash=parts.get("kernel_hash", "k1"),
                device=device.key if isinstance(device, DeviceIdentity) else "",
            )
            assert answer_of(best_from(store, asked)) == (number, "exact"), name
        unknown = [
            question(problem(4096, 512, 64, beta="one")),
            question(problem(4096, 512, 64, align_a=2)),
            question(problem(4096, 512, 64, dtype="float64")),
            question(base, kernel_hash="never seen"),
            question(base, kernel="cgemm"),
            question(base, device="h200/9.0/132sm"),
        ]
        for asked in unknown:
            assert best_from(store, asked).match is Match.DEFAULT
            with pytest.raises(NothingFound):
                best_from(store, replace(asked, default=None))


def test_T36_merging_boards_of_different_speed(tmp_path: Path) -> None:
    """Board B is 3% faster throughout; board A alone met the best config at each size."""
    sizes = [problem(1024), problem(2048), problem(4096)]
    times = {64: 1.0, 128: 1.02, 256: 1.3}
    board_a = [
        trial(
            time_ms * size.sizes[0][1],
            bm,
            size,
            session="a",
            board="GPU-A",
            minute=bm,
            uid=f"a{bm}{size.label}",
        )
        for size in sizes
        for bm, time_ms in times.items()
    ]
    newer = replace(ENVIRONMENT, driver="581.0")
    board_b = [
        trial(
            0.97 * times[bm] * size.sizes[0][1],
            bm,
            size,
            session="b",
            board="GPU-B",
            minute=1000 + bm,
            environment=newer,
        )
        for size in sizes
        for bm in (128, 256)
    ]
    with open_store(tmp_path / "a.sqlite") as store, open_store(tmp_path / "b.sqlite") as other:
        store.add_many(board_a)
        other.add_many([*board_b, board_a[0]])
        assert store.merge(tmp_path / "b.sqlite") == MergeReport(6, 1)
        once = store.records()
        assert store.merge(tmp_path / "b.sqlite") == MergeReport(0, 7)
        assert store.records() == once
        merged = {(record.board, record.created, record.environment) for record in once}
        assert merged == {(one.board, one.created, one.environment) for one in board_a + board_b}
        for size in sizes:
            answer = best_from(store, question(size, environment=None))
            assert answer_of(answer) == (64, "exact")
            raw = min((one for one in once if one.problem == size), key=lambda one: one.outcome.time_ms or 0)
            assert raw.config == config(128)  # what a raw minimum would have chosen


def test_T39_sizes_nobody_tuned() -> None:
    records = [trial(0.01 * m, m, problem(m, 4096, 4096)) for m in (1, 2, 4, 8)]
    exact = find_best(records, question(problem(4, 4096, 4096)))
    assert answer_of(exact) == (4, "exact")
    near = find_best(records, question(problem(6, 4096, 4096)))
    assert answer_of(near) == (8, "nearest")
    assert near.distance == pytest.approx(0.415, abs=0.001)
    assert "measured for 8x4096x4096, 0.42 octaves from 6x4096x4096" in near.why
    assert answer_of(find_best(records, question(problem(8, 6000, 4096)))) == (8, "nearest")
    for far in (
        problem(4096, 4096, 4096),
        problem(8, 16384, 4096),
        problem(8, 4096, 0),
        problem(12, 2048, 8192),
    ):
        answer = find_best(records, question(far))
        assert (answer.config, answer.match, answer.record) == (DEFAULT, Match.DEFAULT, None)
        assert "default" in answer.why
        with pytest.raises(NothingFound, match="nothing is known of sgemm"):
            find_best(records, question(far, default=None))


def test_T39_the_same_from_a_store(tmp_path: Path) -> None:
    with open_store(tmp_path / "db.sqlite") as store:
        store.add_many([trial(0.01 * m, m, problem(m, 4096, 4096)) for m in (1, 2, 4, 8)])
        found = [answer_of(best_from(store, question(problem(m, 4096, 4096)))) for m in (4, 6, 4096)]
    assert found == [(4, "exact"), (8, "nearest"), (8, "default")]


def test_measured_outranks_predicted_and_replayed_never_answers() -> None:
    replayed = Outcome(**{**vars(measured(0.1)), "origin": Origin.REPLAYED})
    model = trial(predicted(0.5), 64)
    assert answer_of(find_best([model, trial(1.0, 128)], question())) == (128, "exact")
    assert answer_of(find_best([model, trial(1.0, 128, problem(5000))], question())) == (128, "nearest")
    assert answer_of(find_best([model, trial(replayed, 32)], question())) == (64, "predicted")
    assert answer_of(find_best([trial(replayed, 32)], question())) == (8, "default")


def test_a_prediction_answers_only_for_its_own_sizes() -> None:
    assert find_best([trial(predicted(0.5), 64, problem(5000))], question()).match is Match.DEFAULT


def test_the_asked_protocol_comes_first_and_another_is_flagged() -> None:
    warm = trial(0.5, 64, protocol="warm/normal-1/1")
    assert answer_of(find_best([warm, trial(1.0, 128)], question())) == (128, "exact")
    answer = find_best([warm], question())
    assert answer_of(answer) == (64, "exact")
    assert answer.staleness == ("measured under protocol warm/normal-1/1, not cold/normal-1/1",)


def test_configs_the_kernel_cannot_run_do_not_answer() -> None:
    records = [trial(1.0, 128), trial(2.0, 64), trial(3.0, 32)]
    answer = find_best(records, question(usable=lambda one: one["BM"] != 128))
    assert answer_of(answer) == (64, "exact")
    assert find_best(records, question(usable=lambda one: False)).match is Match.DEFAULT


def ship(folder: Path, records: list[TrialRecord], name: str = "study.jsonl.gz") -> None:
    place = folder / "studies" / "a6000" / "sgemm"
    place.mkdir(parents=True, exist_ok=True)
    write_records(place / name, records)


def test_own_results_come_before_shipped_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "shipped", lambda kind: tmp_path / "package" / kind)
    ship(
        tmp_path / "package",
        [trial(0.5, 64), trial(0.5, 64, problem(1024)), trial(0.1, 64, kernel_hash="old")],
    )
    with open_store(tmp_path / "db.sqlite") as store:
        assert best_from(None, question()).layer is Layer.SHIPPED
        assert best_from(store, question()).layer is Layer.SHIPPED
        store.add_many([trial(1.0, 128), trial(predicted(0.1), 16, problem(1024))])
        own = best_from(store, question())
        assert (answer_of(own), own.layer) == ((128, "exact"), Layer.OWN)
        # A shipped measurement outranks an own prediction, and an exact one an own neighbour.
        assert best_from(store, question(problem(1024))).layer is Layer.SHIPPED
        store.add(trial(1.0, 128, problem(1100)))
        assert answer_of(best_from(store, question(problem(1024)))) == (64, "exact")


def test_shipped_records_are_found_once_and_by_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "shipped", lambda kind: tmp_path / "package" / kind)
    one, slice_ = trial(uid="one"), trial(uid="slice", device=replace(DEVICE, mig_profile="1g.5gb"))
    ship(tmp_path / "package", [one, slice_])
    ship(tmp_path / "mine", [one, trial(uid="mine"), baseline(1.0)], "mine.jsonl")
    found = shipped_records("sgemm", DEVICE.key, [tmp_path / "mine"])
    assert [record.uid for record in found[:2]] == ["one", "mine"]
    assert found[2].round is Round.BASELINE
    assert len(found) == 3
    assert shipped_records("sgemm", "t4/7.5/40sm", [tmp_path / "mine"]) == []
    (tmp_path / "mine/studies/a6000/sgemm/bad.jsonl").write_text("{}\n")
    with pytest.raises(StoreError, match=r"bad\.jsonl:1"):
        shipped_records("sgemm", DEVICE.key, [tmp_path / "mine"])


def test_a_question_about_a_real_kernel() -> None:
    from autotune.gpu_tables import find_gpu
    from autotune.problems import make_problem
    from autotune.spec.load import load_spec

    spec, gpu = load_spec("sgemm"), find_gpu("a6000")
    asked = Question.of(spec, gpu, make_problem(spec, 4096))
    assert (asked.device, asked.protocol) == (DEVICE.key, "cold/normal-1/1")
    assert asked.default is not None
    assert asked.usable(asked.default)
    assert not asked.usable(Config.of({"BM": 128}))
    record = trial(
        1.0, asked.default, asked.problem, kernel_hash=asked.kernel_hash, space_hash=asked.space_hash
    )
    assert find_best([record], asked).match is Match.EXACT

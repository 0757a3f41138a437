from __future__ import annotations

import random

import pytest
from fakes.trials import baseline, config, failed, measured, predicted, trial

from autotune.choice.rank import rank
from autotune.config import Config
from autotune.records import Measurement, Origin, Outcome, Round, Status, TrialRecord


def order(records: list[TrialRecord]) -> list[object]:
    return [standing.config["BM"] for standing in rank(records)]


def test_one_session_is_compared_directly() -> None:
    records = [trial(3.0, 64), trial(1.0, 128), trial(2.0, 256), trial(failed(), 16)]
    assert order(records) == [128, 256, 64]
    assert [round(standing.relative, 6) for standing in rank(records)] == [1, 2, 3]


def test_nothing_timed_ranks_nothing() -> None:
    dropped = Outcome(Status.DROPPED, Origin.MEASURED, measurement=Measurement((1.0,), 1))
    assert rank([]) == ()
    assert rank([trial(failed()), trial(dropped), baseline(1.0)]) == ()


def test_the_final_round_outranks_the_search_round() -> None:
    records = [
        trial(1.0, 64),
        trial(1.1, 128),
        trial(1.3, 64, round=Round.FINAL),
        trial(1.2, 128, round=Round.FINAL),
    ]
    assert order(records) == [128, 64]
    assert rank(records)[0].record.round is Round.FINAL


def test_who_was_not_measured_again_does_not_win_on_a_cooler_board() -> None:
    # All is 5% slower in the final round; 256 was slower than both finalists in the search.
    finals = [trial(1.05, 64, round=Round.FINAL), trial(1.06, 128, round=Round.FINAL)]
    records = [trial(1.0, 64), trial(1.01, 128), trial(1.03, 256), *finals]
    assert order(records) == [64, 128, 256]


def test_repeated_measurements_count_by_their_median() -> None:
    lucky = [trial(time_ms, 64) for time_ms in (0.5, 2.0, 2.0)]
    assert order([*lucky, trial(1.0, 128)]) == [128, 64]


def test_boards_of_different_speed_are_taken_out() -> None:
    # Board B is 20% faster throughout; its best is 128, and 64, met on board A only, is better still.
    slow = [trial(1.0, 64, session="a"), trial(1.1, 128, session="a"), trial(1.5, 256, session="a")]
    fast = [trial(0.88, 128, session="b", board="GPU-B"), trial(1.2, 256, session="b", board="GPU-B")]
    assert order(slow + fast) == [64, 128, 256]
    assert rank(slow + fast)[0].record.board == "GPU-A"


def test_one_session_on_two_boards_is_two_blocks() -> None:
    one = [trial(1.0, 64, board="A"), trial(1.1, 128, board="A")]
    two = [trial(0.7, 128, board="B"), trial(0.68, 256, board="B")]
    # 256 is 3% faster than 128, which is 10% slower than 64.
    assert order(one + two) == [64, 256, 128]


def test_an_outlier_among_the_shared_ones_does_not_move_a_block() -> None:
    one = [trial(time_ms, bm, session="a") for bm, time_ms in ((1, 1.0), (2, 2.0), (3, 3.0), (4, 0.95))]
    two = [trial(time_ms, bm, session="b") for bm, time_ms in ((1, 1.0), (2, 2.0), (3, 2.0), (5, 0.97))]
    assert order(one + two)[:2] == [4, 5]


def test_a_chain_of_sessions_is_laid_together_exactly() -> None:
    speed = {"a": 1.0, "b": 0.9, "c": 1.2, "d": 0.7}
    met = {"a": [1, 2, 3], "b": [3, 4], "c": [4, 5], "d": [5, 6, 7]}
    true = {bm: 1.0 + 0.1 * bm for bm in range(1, 8)}
    records = [
        trial(true[bm] * speed[name], bm, session=name) for name, configs in met.items() for bm in configs
    ]
    random.Random(0).shuffle(records)
    standings = rank(records)
    assert [standing.config["BM"] for standing in standings] == [1, 2, 3, 4, 5, 6, 7]
    assert [standing.relative for standing in standings] == pytest.approx([true[bm] / true[1] for bm in true])


def test_sessions_that_share_only_the_baseline_compare_by_it() -> None:
    old = [trial(0.8, 64, session="a", minute=0), baseline(1.0, session="a")]
    new = [trial(0.7, 128, session="b", minute=9), baseline(0.75, session="b")]
    assert order(old + new) == [64, 128]


def test_of_sessions_that_share_nothing_the_latest_counts() -> None:
    old = [trial(0.5, 64, session="a", minute=0), trial(0.6, 32, session="a", minute=0)]
    new = [trial(0.7, 128, session="b", minute=9)]
    assert order(old + new) == [128]
    # A baseline on one side only helps nothing.
    assert order([*old, baseline(1.0, session="a"), *new]) == [128]
    # A later session that holds nothing but a baseline is none to choose from.
    late = trial(
        1.0, Config(()), session="c", minute=99, kernel="cublas", kernel_hash="", round=Round.BASELINE
    )
    assert order([*old, *new, late]) == [128]


def test_current_measurements_outrank_stale_ones_of_the_same_config() -> None:
    stale = [trial(1.0, 64, session="a"), trial(1.1, 128, session="a"), trial(2.0, 256, session="a")]
    current = [trial(1.4, 64, session="b"), trial(1.1, 128, session="b"), trial(2.0, 256, session="b")]
    standings = rank(stale + current, lambda record: record.session == "b")
    assert [standing.config["BM"] for standing in standings] == [128, 64, 256]
    assert {standing.record.session for standing in standings} == {"b"}


def test_ties_are_within_one_percent_or_the_spread() -> None:
    noisy = Outcome(Status.OK, Origin.MEASURED, measurement=Measurement((0.9, 1.0, 1.05, 1.1, 1.2), 1))
    quiet = rank([trial(1.0, 1), trial(1.009, 2), trial(1.02, 3)])
    assert [quiet[0].tied(standing) for standing in quiet] == [True, True, False]
    loud = rank([trial(1.0, 1), trial(noisy, 2)])
    assert loud[0].tied(loud[1])


def test_equal_times_rank_in_a_fixed_order() -> None:
    records = [trial(measured(1.0), config(bm)) for bm in (3, 1, 2)]
    assert order(records) == order(records[::-1])


def test_predictions_of_several_runs_are_compared_directly() -> None:
    # The second run predicted only slower ones: it shares nothing with the first and is no other board.
    first = [
        trial(predicted(1.0), 64, session="a", board=""),
        trial(predicted(2.0), 128, session="a", board=""),
    ]
    second = [trial(predicted(1.5), 256, session="b", board="", minute=9)]
    assert order(first + second) == [64, 256, 128]


def test_equals_stand_in_the_order_tried() -> None:
    records = [trial(predicted(1.0), bm, board="", minute=bm) for bm in (64, 16, 128, 32)]
    assert order(records) == [16, 32, 64, 128]

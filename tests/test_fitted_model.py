"""The fitted model: what it learns, what it keeps from learning, and what it falls back on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fakes.measured import made_up
from fakes.trials import failed, predicted, trial

from autotune.config import Config
from autotune.expressions import Expression
from autotune.gpu_tables import find_gpu
from autotune.legality import search_space
from autotune.model import rank, report
from autotune.model.calibrate import calibrated
from autotune.model.closed_form import prepare
from autotune.model.constants import CONSTANT_NAMES, Constants
from autotune.model.fitted import FittedModel
from autotune.model.ground import Ground
from autotune.model.measurements import Place, measurements
from autotune.model.pick import FARTHEST, good_at, pick
from autotune.model.report import evaluate, losses, spearman, spread
from autotune.model.residuals import Shares, expected
from autotune.model.subset import chosen, held_out_regret
from autotune.problem import Problem
from autotune.problems import flops, make_problem
from autotune.records import Origin
from autotune.spec.load import load_spec

H200, A100 = find_gpu("h200"), find_gpu("a100_sxm4_80gb")
SGEMM = load_spec("sgemm")
SIZES = (512, 1024, 2048, (512, 2048, 512), (2048, 256, 1024))
CUBE = make_problem(SGEMM, 1024)
RECORDS = made_up(SGEMM, H200, SIZES, 150)
GROUND = Ground.of(RECORDS, SGEMM, H200)
MODEL = FittedModel.on(GROUND)
SPACE = search_space(SGEMM, H200, CUBE)
UNSEEN = SPACE.sample(np.random.default_rng(9), 40)


def place_of(size: int | tuple[int, ...], kernel_hash: str = "k1") -> Place:
    return Place(H200, make_problem(SGEMM, size), kernel_hash, "cold/normal-1/1")


# --- how good


def test_sizes_it_was_not_shown_are_ranked_as_they_were_measured() -> None:
    found = evaluate(GROUND)
    assert [held.size for held in found.by_size] == [place.problem.label for place in GROUND.measured.places]
    for held, closed in zip(found.by_size, found.closed_form, strict=True):
        assert held.spearman >= 0.9
        assert held.spearman > closed.spearman
        assert held.loss[20] <= 0.05
        assert held.picked is not None
        assert held.picked <= 0.15
        assert held.unseen is not None
        # Of these it knows nothing but what others like them took.
        assert held.unseen.configs == held.configs // 2
        assert held.unseen.spearman < held.spearman
    assert found.by_gpu == ()


def test_another_gpu_is_ranked_from_this_one() -> None:
    configs = [
        one
        for one in SPACE.sample(np.random.default_rng(3), 60)
        if one["LOAD"] != "tma" and one["CLUSTER"] == 1
    ]
    both = [
        *made_up(SGEMM, H200, (1024, 2048), 0, configs=configs),
        *made_up(SGEMM, A100, (1024, 2048), 0, configs=configs),
    ]
    found = evaluate(Ground.of(both, SGEMM, H200))
    assert {held.gpu for held in found.by_gpu} == {"h200", "a100_sxm4_80gb"}
    assert all(held.spearman >= 0.9 for held in found.by_gpu)


def test_of_many_sizes_several_are_held_out_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "MOST_FITS", 2)
    heard: list[tuple[int, int]] = []
    found = evaluate(GROUND, lambda done, total: heard.append((done, total)))
    places = GROUND.measured.places
    assert [held.size for held in found.by_size] == [place.problem.label for place in places]
    assert len(places) > 2
    assert heard == [(0, 2), (1, 2), (2, 2)]


def test_configurations_it_was_not_shown_are_foretold_better_than_by_the_closed_form() -> None:
    half = {config for row, config in enumerate(GROUND.measured.configs) if row % 2}
    model = FittedModel.fit([one for one in RECORDS if one.config in half], SGEMM, H200)
    rest = [config for config in GROUND.measured.configs if config not in half]
    column = [place.problem for place in GROUND.measured.places].index(CUBE)
    rows = [row for row, config in enumerate(GROUND.measured.configs) if config not in half]
    measured = GROUND.measured.log_ms[rows, column]
    resources = GROUND.measured.resources_of(rest, H200)
    closed = np.log(rank(SGEMM, H200, CUBE, rest, resources))
    fitted = np.log(model.predict(CUBE, rest, resources))
    assert np.abs(fitted - measured).mean() < np.abs(closed - measured).mean()
    assert spearman(fitted, measured) > spearman(closed, measured)


# --- its parts


def test_constants_are_found_again() -> None:
    true = Constants.scaled(np.linspace(-0.3, 0.3, len(CONSTANT_NAMES)))
    parts = [prepare(SGEMM, H200, make_problem(SGEMM, size), UNSEEN).terms for size in (256, 1024, 4096)]
    for terms in parts:
        measured = np.log(terms.time_ms(true))
        fitted = np.log(terms.time_ms(calibrated(terms, measured)))
        before = np.log(terms.time_ms(Constants()))
        assert np.abs(fitted - measured).mean() < np.abs(before - measured).mean() / 4


def test_a_wild_time_hardly_moves_the_constants() -> None:
    terms = prepare(SGEMM, H200, CUBE, UNSEEN).terms
    measured = np.log(terms.time_ms(Constants()))
    measured[0] += 5
    ratios = [
        getattr(calibrated(terms, measured), name) / getattr(Constants(), name) for name in CONSTANT_NAMES
    ]
    assert ratios == pytest.approx([1] * len(ratios), rel=0.15)


def test_a_configurations_own_part_grows_with_evidence_and_nearness() -> None:
    apart = np.array([[0.0, 1, 3], [1, 0, 2], [3, 2, 0]])
    fill = np.zeros((4, 3))
    nan = np.nan
    left = np.array([[1.0, nan, nan], [1, 1, nan], [1, nan, -1], [nan, nan, nan]])
    one, two, torn, none = expected(left, apart, fill, np.array([0.5, 0.5, 2.5]), np.zeros(4), Shares())
    assert 0 < one < two < 1
    assert 0 < torn < one
    assert none == pytest.approx(0, abs=1e-5)


def test_rank_correlation_and_losses() -> None:
    assert spearman(np.array([1, 2, 3.0]), np.array([2, 4, 9.0])) == pytest.approx(1)
    assert spearman(np.array([1, 2, 3.0]), np.array([3, 2, 1.0])) == pytest.approx(-1)
    assert spearman(np.array([1, 1, 2.0]), np.array([1, 2, 3.0])) == pytest.approx(0.8660254)
    assert np.isnan(spearman(np.ones(3), np.arange(3.0)))
    measured = np.array([2.0, *([3.0] * 12), 1.0])
    assert losses(np.arange(14.0), measured) == {1: 1.0, 10: 1.0, 20: 0.0}


def test_losses_are_summed_up_over_the_places_that_have_one() -> None:
    over = spread([0.0, None, 0.1, 0.2])
    assert over is not None
    assert (over.places, over.median, over.worst) == (3, 0.1, 0.2)
    assert over.p90 == pytest.approx(0.18)
    assert spread([None]) is None


# --- what it falls back on


def test_without_results_it_is_the_closed_form() -> None:
    few = FittedModel.fit(RECORDS[:10], SGEMM, H200)
    assert not few.learnt
    for model in (few, FittedModel.fit([], SGEMM, H200)):
        assert model.predict(CUBE, UNSEEN) == pytest.approx(rank(SGEMM, H200, CUBE, UNSEEN))
    assert FittedModel.fit([], SGEMM, H200).predict(CUBE, []) == []


def test_far_from_all_that_was_measured_the_correction_fades() -> None:
    far = make_problem(SGEMM, 65536)
    closed = prepare(SGEMM, H200, far, UNSEEN).terms.time_ms(MODEL.constants)
    learnt = np.abs(np.log(MODEL.predict(far, UNSEEN) / closed))
    near_closed = prepare(SGEMM, H200, CUBE, UNSEEN).terms.time_ms(MODEL.constants)
    assert learnt.mean() < np.abs(np.log(MODEL.predict(CUBE, UNSEEN) / near_closed)).mean() / 2


def test_no_time_is_below_what_the_multiply_adds_take() -> None:
    assert MODEL.left is not None
    eager = replace(MODEL, levels=np.full(len(SIZES), -5.0))
    for size in (2048, 8192):
        problem = make_problem(SGEMM, size)
        least = prepare(SGEMM, H200, problem, UNSEEN).terms.least_ms()
        times = np.array(eager.predict(problem, UNSEEN))
        assert (times >= least).all()
        assert flops(SGEMM, problem) / times.min() / 1e9 < H200.peak_fp32_tflops
    # Where the bound is far away nothing changes.
    assert (
        MODEL.predict(CUBE, UNSEEN[:1])[0] > 1.5 * prepare(SGEMM, H200, CUBE, UNSEEN[:1]).terms.least_ms()[0]
    )


def test_only_what_was_measured_teaches() -> None:
    replayed = [replace(one, outcome=replace(one.outcome, origin=Origin.REPLAYED)) for one in RECORDS]
    assert measurements(replayed, SGEMM, H200).count == 0
    assert measurements([*RECORDS, *replayed], SGEMM, H200).count == GROUND.measured.count > 0


def test_the_order_of_records_does_not_matter() -> None:
    other = FittedModel.fit(RECORDS[::-1], SGEMM, H200)
    assert other.predict(CUBE, UNSEEN) == pytest.approx(MODEL.predict(CUBE, UNSEEN), rel=1e-3)


def test_a_kernel_without_costs_learns_too() -> None:
    plain = replace(SGEMM, cost={}, shared_accesses=())
    model = FittedModel.fit(RECORDS, plain, H200)
    column = [place.problem for place in GROUND.measured.places].index(CUBE)
    measured = GROUND.measured.log_ms[:, column]
    rows = np.flatnonzero(np.isfinite(measured))
    times = model.predict(CUBE, [GROUND.measured.configs[row] for row in rows])
    assert spearman(np.array(times), measured[rows]) > 0.9


def test_what_is_a_number_at_one_size_only_says_nothing() -> None:
    odd = replace(SGEMM, variants={**SGEMM.variants, "ODD": Expression.parse("'wide' if M > 1024 else BM")})
    model = FittedModel.fit(RECORDS, odd, H200)
    assert model.regression is not None
    assert "ODD" not in model.regression.names
    assert model.predict(CUBE, UNSEEN) == pytest.approx(MODEL.predict(CUBE, UNSEEN), rel=1e-6)


# --- records


def test_records_of_an_older_space_stand_for_the_defaults() -> None:
    old = Config.of(
        {name: value for name, value in SGEMM.defaults.items() if name not in ("SPREAD", "CLUSTER")}
    )
    problem = Problem(CUBE.sizes, CUBE.dtype, tuple(pair for pair in CUBE.classes if "trans" not in pair[0]))
    alien = Config.of({"FOREIGN": 1})
    records = [
        trial(1.0, old, problem, device=H200.identity),
        trial(3.0, old, problem, device=H200.identity),
        trial(1.0, alien, problem, device=H200.identity),
        trial(failed(), UNSEEN[0], CUBE, device=H200.identity),
        trial(predicted(0.1), UNSEEN[1], CUBE, device=H200.identity),
        trial(
            1.0, UNSEEN[2], CUBE, device=replace(H200.identity, table="h300")
        ),  # of a device that no table describes
    ]
    read = measurements(records, SGEMM, H200)
    assert read.places == (Place(H200, CUBE, "k1", "cold/normal-1/1"),)
    assert read.configs == (Config.of({name: SGEMM.defaults[name] for name in SGEMM.parameter_names}),)
    assert read.log_ms.tolist() == [[pytest.approx(np.log(2))]]
    assert read.failed == {UNSEEN[0]}


# --- picking


def test_a_pick_was_good_elsewhere_and_never_failed() -> None:
    picked = pick(MODEL, place_of(1536))
    assert picked is not None
    assert picked.config in good_at(MODEL, range(len(SIZES)))
    assert picked.config not in GROUND.measured.failed
    other = pick(MODEL, place_of(1536), lambda config: config != picked.config)
    assert other is not None
    assert other.predicted_ms >= picked.predicted_ms


def test_nothing_is_picked_where_it_would_be_a_guess() -> None:
    assert pick(MODEL, place_of(2048 * 2 ** round(FARTHEST))) is None
    assert pick(MODEL, place_of(1536, "another kernel")) is None
    assert pick(FittedModel.fit([], SGEMM, H200), place_of(1536)) is None
    assert pick(MODEL, place_of(1536), lambda config: False) is None


def test_few_configurations_are_chosen_for_many_sizes() -> None:
    measured = GROUND.measured
    few = chosen(measured, range(len(SIZES)), 3)
    assert len(few) <= 3
    assert not measured.failed & set(few)
    # The first is the one that is best on average; of one place alone it is the fastest there.
    (fastest,) = chosen(measured, [0], 5)
    assert measured.log_ms[measured.configs.index(fastest), 0] == np.nanmin(measured.log_ms[:, 0])
    regrets = held_out_regret(measured)
    assert [one.kernels for one in regrets] == [1, 2, 4, 8, 16]
    assert all(0 <= one.median <= one.p90 <= one.worst for one in regrets)
    assert regrets[-1].worst <= regrets[0].worst
    assert held_out_regret(measured.keeping([0, 1])) == []
    assert held_out_regret(measured.keeping([])) == []
    assert held_out_regret(replace(measured, failed=frozenset(measured.configs))) == []

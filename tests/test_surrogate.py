"""The Gaussian process behind `auto`, and what `auto` makes of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fakes.tables import cache_text
from fakes.toy import toy_gpu, toy_problem, toy_spec

from autotune.config import Config
from autotune.legality import search_space
from autotune.records import Origin, Outcome, Status
from autotune.replay.kernel_tuner import table_of_cache
from autotune.replay.loop import replay
from autotune.replay.stages import Recorded
from autotune.replay.table import Entry, Table
from autotune.spec.kernel_spec import Parameter
from autotune.study.auto import Auto
from autotune.study.axes import Axes
from autotune.study.brain import Brain
from autotune.study.foresight import Foresight, Prior, shortened
from autotune.study.improvement import log_expected_improvement
from autotune.study.pool import Pool
from autotune.study.posterior import Posterior
from autotune.study.process import Process
from autotune.study.samplers import LegalSampler, RandomLegal
from autotune.study.strategies import Subject

PARAMETERS = (
    Parameter("a", (1, 2, 4, 8)),
    Parameter("b", (False, True)),
    Parameter("c", ("x", "y", "z")),
    Parameter("d", (16, 32, 48, 64)),
    Parameter("one", (7,)),
)
TILES = {
    "rows": [16, 32, 64, 128],
    "columns": [16, 32, 64, 128],
    "down": [4, 8, 16, 32],
    "across": [4, 8, 16, 32],
    "vector": [1, 2, 4],
    "stage": [0, 1],
    "swap": [0, 1],
}


def tile_time(config: Mapping[str, int]) -> float | str:
    """Of a tiled product: the work of a thread, the size of a block, and what the rest costs."""
    work = config["rows"] * config["columns"] / (config["down"] * config["across"])
    threads = config["down"] * config["across"]
    if threads == 512:
        return "RuntimeFailedConfig"
    traffic = 64 / config["rows"] + 64 / config["columns"]
    spills = 3.0 if work > 128 else 1.0
    factors = 1 + 4 / work + 0.5 * traffic + 0.2 * abs(math.log2(threads / 128))
    return spills * factors * (1 + 0.1 * abs(config["vector"] - 2)) * (1.15 - 0.15 * config["stage"])


def tiles(
    time_of: Callable[[Mapping[str, int]], float | str] = tile_time, rename: Callable[[str], str] = str
) -> Table:
    """1,500 configurations."""

    def legal(config: Mapping[str, int]) -> bool:
        named = {name: config[rename(name)] for name in TILES}
        return (
            32 <= named["down"] * named["across"] <= 512
            and named["rows"] % (named["down"] * named["vector"]) == 0
            and named["columns"] % named["across"] == 0
        )

    def timed(config: Mapping[str, int]) -> float | str:
        return time_of({name: config[rename(name)] for name in TILES})

    parameters = {rename(name): values for name, values in TILES.items()}
    return table_of_cache(cache_text(parameters, timed, legal), "tiles")


def evaluations(table: Table, within: float, seeds: int = 5, **options: object) -> float:
    """The median over seeds until the best is within a factor of the optimum, at most 80."""
    samplers = [Auto(table.space, seed=seed, **options) for seed in range(seeds)]  # type: ignore[arg-type]
    return float(np.median([found_at(table, sampler, within) for sampler in samplers]))


def found_at(table: Table, sampler: LegalSampler, within: float, most: int = 80) -> int:
    brain = Brain(table.space, sampler)
    for tried in range(1, most + 1):
        config = brain.ask()
        assert config is not None
        entry = table.entries[table.row(config)]
        if entry.time_ms <= within * float(table.sorted_ms[0]):
            return tried
        brain.tell(config, entry.outcome)
    return most


def auto(**options: object) -> Callable[[Subject, int, int | None], Auto]:
    return lambda subject, seed, trials: Auto(subject.space, seed=seed, **options)  # type: ignore[arg-type]


def rows(n: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.integers(len(one.values), size=n) for one in PARAMETERS])


def test_distances_are_of_values_not_of_places() -> None:
    axes = Axes(PARAMETERS)
    assert axes.columns == [0, 1, 2, 3]
    assert axes.apart[0][0].tolist() == [0, 1, 2, 3]
    assert axes.apart[1].tolist() == [[0, 1], [1, 0]]
    assert axes.apart[2].tolist() == [[0, 1, 1], [1, 0, 1], [1, 1, 0]]
    assert axes.apart[3][0, 2] == pytest.approx(math.log2(3))
    codes = rows(20)
    hot = axes.one_hot(codes)
    assert (hot.sum(axis=1) == 4).all()
    points = axes.spread(codes)
    across = np.abs(points[:, None, :] - points[None, :, :]).sum(axis=2)
    distances = axes.distances(codes)
    assert across.max() <= 4 + 1e-9
    assert ((across < 1e-9) == (distances.sum(axis=0) < 1e-9)).all()


def test_sizes_that_the_rules_tie_together_have_a_joint_axis() -> None:
    parameters = (
        Parameter("tile", (16, 32, 64)),
        Parameter("part", (4, 8, 16)),
        Parameter("across", (4, 8, 16)),
        Parameter("free", (1, 2, 4)),
        Parameter("flag", (0, 1)),
    )
    every = np.indices([len(one.values) for one in parameters]).reshape(len(parameters), -1).T
    tile, part, across, _, _ = every.T
    legal = every[(part <= tile) & (part + across <= 2)]
    axes = Axes(parameters, legal)
    assert (axes.single, len(axes)) == (5, 8)
    names = [(parameters[first].name, parameters[second].name) for first, second, _ in axes._joint]
    assert set(names) == {("tile", "part"), ("part", "across"), ("tile", "across")}
    same = np.array([[1, 0, 0, 0, 0], [2, 1, 2, 2, 1]])
    ratio = names.index(("tile", "part"))
    product = names.index(("part", "across"))
    # 32 / 4 and 64 / 8 are the same, 4 * 4 and 8 * 16 three doublings apart.
    distances = axes.distances(same)[axes.single :, 0, 1]
    assert (distances[ratio], distances[product]) == (0, 3)
    assert len(Axes(parameters, every)) == len(Axes(parameters)) == 5


@pytest.mark.parametrize("joint", [False, True])
def test_the_slope_is_that_of_the_likelihood(joint: bool) -> None:
    codes = rows(25)
    axes = Axes(PARAMETERS, np.array([[i, 0, 0, i, 0] for i in range(4)]) if joint else None)
    assert len(axes) == 4 + joint
    foretold = np.random.default_rng(1).normal(size=(25, 2))
    wanted = np.random.default_rng(2).normal(size=25)
    distances = axes.distances(codes)

    def likelihood(logs: np.ndarray) -> float:
        process = Process(axes, 2)
        process._logs = logs
        process._unpack()
        matrix = process.covariance(codes, foretold, axes.one_hot(codes), foretold).astype(float)
        matrix = matrix + process.noise * np.eye(25)
        _, size = np.linalg.slogdet(matrix)
        prior = ((logs - process._start) ** 2 / process._width**2).sum()
        return float(-(wanted @ np.linalg.solve(matrix, wanted) + size + prior) / 2)

    process = Process(axes, 2)
    process._logs = process._logs + np.random.default_rng(3).normal(size=len(process._logs)) / 3
    process._logs[-1] = -1.0
    slope = process._slope(distances, foretold, wanted)
    for place in range(len(slope)):
        step = np.zeros(len(slope))
        step[place] = 0.02
        measured = (likelihood(process._logs + step) - likelihood(process._logs - step)) / 0.04
        assert slope[place] == pytest.approx(measured, rel=0.02, abs=0.02)


def test_growing_is_the_same_as_starting_anew_and_pending_trials_leave_the_mean() -> None:
    axes, codes, pool = Axes(PARAMETERS), rows(12), rows(40, 1)
    rng = np.random.default_rng(5)
    foretold, their = rng.normal(size=(12, 1)), rng.normal(size=(40, 1))
    values = rng.normal(size=12)
    process = Process(axes, 1)
    process.fit(codes, foretold, values)
    whole = Posterior(process, codes, foretold, pool, their)
    grown = Posterior(process, codes[:8], foretold[:8], pool, their)
    for place in range(8, 12):
        grown.add(codes[place], foretold[place])
    none = codes[:0], foretold[:0]
    mean, deviation = whole.expect(values, *none)
    again, spread = grown.expect(values, *none)
    assert np.allclose(mean, again, atol=1e-3)
    assert np.allclose(deviation, spread, atol=1e-2)
    with_pending, less = whole.expect(values, pool[:3], their[:3])
    assert np.allclose(mean, with_pending)
    assert (less <= deviation + 1e-6).all()
    assert less[0] < 0.3 * deviation[0]


def test_expected_improvement_is_right_and_keeps_its_order_far_away() -> None:
    rng = np.random.default_rng(0)
    drawn = rng.normal(2.0, 0.5, size=400_000)
    expected = np.maximum(0, 1.6 - drawn).mean()
    value = log_expected_improvement(np.array([2.0]), np.array([0.5]), 1.6)
    assert value[0] == pytest.approx(math.log(expected), abs=0.02)
    far = log_expected_improvement(np.linspace(1, 40, 200), np.full(200, 0.5), 1.6)
    assert (np.diff(far) < 0).all()


def test_only_the_fast_end_keeps_its_differences() -> None:
    logs = np.array([0.0, 1.0, 2.0, 3.0, math.inf])
    short = shortened(logs).tolist()
    assert short[:2] == [0, 1]
    assert 1.5 < short[2] < short[3] == short[4] < 2.5
    # However slow it is, it is not more than a ceiling away.
    assert shortened(np.array([0.0, 1.0, 2.0, 3.0, 1000.0]))[-1] <= 2 + 0.7 * 2


def test_auto_is_ahead_of_random_by_far() -> None:
    table = tiles()
    chance = [found_at(table, RandomLegal(table.space, seed), 1.02) for seed in range(5)]
    assert evaluations(table, 1.02) < 45
    assert float(np.median(chance)) == 80


def test_names_and_the_order_of_rows_do_not_matter() -> None:
    plain = tiles()
    renamed = tiles(rename=lambda name: f"P{sorted(TILES, reverse=True).index(name)}")
    order = np.random.default_rng(0).permutation(len(plain))
    shuffled = replace(plain, entries=tuple(plain.entries[place] for place in order))
    medians = [evaluations(table, 1.02, seeds=7) for table in (plain, renamed, shuffled)]
    assert max(medians) <= 1.6 * min(medians)
    # Not even the seed's luck changes with the names.
    assert medians[0] == medians[1]


def test_noise_of_five_percent_is_lived_with() -> None:
    table = tiles()
    found = []
    for seed in range(4):
        noisy = Recorded(table, seed=seed, samples=3, noise=0.05)
        trace = replay(table, auto(), seed, 60, noisy)
        found.append(float(trace.best_ms[-1]) / float(table.sorted_ms[0]))
    assert np.median(found) < 1.03
    assert max(found) < 1.1


def test_what_another_gpu_was_quick_at_is_tried_first() -> None:
    table = tiles()

    def other_gpu(config: Mapping[str, int]) -> float | str:
        time = tile_time(config)
        if isinstance(time, str):
            return time
        return 2 * time * (1.1 if config["vector"] == 2 else 1.0) * (1 + 0.1 * config["swap"])

    known = {entry.config: entry.time_ms for entry in tiles(other_gpu).entries if entry.time_ms > 0}
    assert evaluations(table, 1.02, priors=[Prior("other", known)]) <= 10
    # A source that tells nothing true is found out.
    rng = np.random.default_rng(0)
    nonsense = {config: float(rng.uniform(1, 10)) for config in known}
    assert evaluations(table, 1.1, seeds=1, priors=[Prior("nonsense", nonsense)]) < 80


def test_a_source_that_knows_few_configurations_speaks_for_their_like() -> None:
    table = tiles()
    some = [entry for entry in table.entries if entry.time_ms > 0][::5]
    pool = Pool(table.space, np.random.default_rng(0))
    foresight = Foresight(pool, [Prior("some", {entry.config: entry.time_ms for entry in some})])
    worked = [place for place, row in enumerate(pool.codes) if _time(table, pool.config(row)) > 0]
    foretold = foresight.of(pool.codes[worked])[:, 0]
    times = [_time(table, pool.config(row)) for row in pool.codes[worked]]
    ranks = [np.argsort(np.argsort(one)) for one in (foretold, times)]
    assert np.corrcoef(*ranks)[0, 1] > 0.9
    # One with other names, or with a single time, tells nothing.
    alien = Prior("alien", {Config.of({"x": 1}): 1.0, Config.of({"x": 2}): 2.0})
    assert len(Foresight(pool, [alien, Prior("one", {some[0].config: 1.0})])) == 0


def _time(table: Table, config: Config) -> float:
    return table.entries[table.row(config)].time_ms


def test_a_batch_is_distinct_and_spread() -> None:
    table = tiles()
    brain = Brain(table.space, Auto(table.space, seed=0))
    for _ in range(20):
        config = brain.ask()
        assert config is not None
        brain.tell(config, table.entries[table.row(config)].outcome)
    batch = [brain.ask() for _ in range(16)]
    assert len(set(batch)) == 16
    for config in reversed(batch):
        assert config is not None
        brain.tell(config, table.entries[table.row(config)].outcome)
    best = min(_time(table, config) for config in batch if config and _time(table, config) > 0)
    assert best < 1.3 * float(table.sorted_ms[0])


def test_failures_are_learnt() -> None:
    table = tiles()
    failing = np.isnan(table.times_ms)
    assert 0.03 < failing.mean() < 0.5
    trace = replay(table, auto(), 0, 60)
    assert failing[list(trace.rows)[20:]].mean() < failing.mean() / 2
    nothing = [replace_outcome(entry) for entry in table.entries]
    dead = replace(table, entries=tuple(nothing))
    assert len(replay(dead, auto(), 0, 30).rows) == 30


def replace_outcome(entry: Entry) -> Entry:
    outcome = Outcome(Status.LAUNCH_ERROR, Origin.REPLAYED, "always")
    return replace(entry, outcome=outcome, time_ms=math.nan)


def test_a_large_space_is_searched_near_the_best(tmp_path: Path) -> None:
    parameters = {f"P{place}": [1, 2, 4, 8, 16, 32] for place in range(12)}
    spec = toy_spec(tmp_path, parameters, ["P0 * P1 <= 256", "P2 >= P3"])
    gpu, problem = toy_gpu(), toy_problem(spec)
    space = search_space(spec, gpu, problem)
    assert space.count > 10**8

    def cost(config: Config) -> float:
        return 1 + sum(abs(math.log2(int(value)) - 2) for value in config.values())  # type: ignore[call-overload]

    brain = Brain(space, Auto(space, seed=0))
    best = []
    for _ in range(120):
        config = brain.ask()
        assert config in space
        assert config is not None
        best.append(cost(config))
        brain.tell(config, Outcome(Status.OK, Origin.PREDICTED, predicted_ms=best[-1]))
    # A random draw has 20, the best of a thousand about 9.
    assert min(best) < 4


def test_candidates_are_foretold_once() -> None:
    table = tiles()
    asked = []

    def model(configs: Sequence[Config]) -> list[float]:
        asked.append(len(configs))
        return [float(1 + place % 7) for place, _ in enumerate(configs)]

    foresight = Foresight(Pool(table.space, np.random.default_rng(0)), model=model)
    first = foresight.of_pool()
    calls = len(asked)
    assert foresight.of_pool() is first
    assert len(asked) == calls


def test_more_trials_than_it_learns_from() -> None:
    table = tiles()
    brain = Brain(table.space, Auto(table.space, seed=0))
    records = table.records()[:400]
    brain.learn(records)
    config = brain.ask()
    assert config is not None
    assert config not in {record.config for record in records}

"""How searches on tables are scored, and the runner that compares them."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fakes.tables import cache_text, write_cache
from hypothesis import given
from hypothesis import strategies as st

FOLDER = Path(__file__).parents[1] / "benchmarks" / "search"
sys.path.append(str(FOLDER))

import ours  # noqa: E402
from methodology import (  # noqa: E402
    Landscape,
    best_so_far,
    evaluations_to,
    expected_evaluations,
    performance,
)
from table import BEGIN, END, aims, own_part, rewritten  # noqa: E402

times_of_a_table = st.lists(st.floats(0.5, 100), min_size=2, max_size=7)


def valley(count: int, seed: int = 0) -> np.ndarray:
    """Times with a long tail, as tables have them."""
    return 1 + np.random.default_rng(seed).gamma(2.0, 2.0, count)


def random_searches(times: np.ndarray, searches: int, length: int) -> np.ndarray:
    landscape = Landscape.of(times)
    rng = np.random.default_rng(1)
    return np.array([best_so_far(landscape, rng.permutation(times), length) for _ in range(searches)])


@given(times_of_a_table)
def test_the_exact_baseline_is_the_mean_over_all_draws(times: list[float]) -> None:
    baseline = Landscape.of(times).exact_baseline(len(times))
    for k in range(1, len(times) + 1):
        draws = [min(draw) for draw in itertools.combinations(times, k)]
        assert baseline[k - 1] == pytest.approx(np.mean(draws))


def test_random_search_scores_nothing_by_the_exact_baseline_and_something_by_the_published() -> None:
    times = valley(1000)
    landscape = Landscape.of(times)
    budget = landscape.budget()
    traces = random_searches(times, 2000, budget)
    assert abs(performance(landscape, traces, landscape.exact_baseline(budget))) < 0.03
    assert performance(landscape, traces, landscape.published_baseline(budget)) > 0.05


def test_the_optimum_at_once_scores_one_and_the_worst_less_than_nothing() -> None:
    landscape = Landscape.of(valley(500))
    baseline = landscape.exact_baseline(100)
    assert performance(landscape, np.full((3, 100), landscape.best), baseline) == pytest.approx(1)
    assert performance(landscape, np.full((3, 100), landscape.ascending[-1]), baseline) < 0


def test_the_budget_ends_where_random_search_is_close() -> None:
    landscape = Landscape.of(valley(3000))
    budget = landscape.budget()
    baseline = landscape.exact_baseline(budget)
    goal = landscape.best + 0.05 * (landscape.median - landscape.best)
    assert baseline[-1] <= goal < baseline[-2]
    assert Landscape.of([1.0, 1.0, 1.0]).budget() == 1


def test_failures_are_evaluations_and_count_as_the_slowest() -> None:
    nan = float("nan")
    landscape = Landscape.of([nan, 3.0, 1.0, nan])
    assert landscape.ascending.tolist() == [1.0, 3.0, 3.0, 3.0]
    assert landscape.median == 2.0
    assert best_so_far(landscape, [nan, 3.0, nan, 1.0], 6).tolist() == [3.0, 3.0, 3.0, 1.0, 1.0, 1.0]
    with pytest.raises(ValueError, match="works"):
        Landscape.of([nan])


def test_evaluations_to_a_goal() -> None:
    traces = np.array([[3.0, 2.0, 1.0], [3.0, 3.0, 3.0], [1.0, 1.0, 1.0]])
    assert evaluations_to(traces, 2.5) == [2.0, np.inf, 1.0]
    landscape = Landscape.of([1.0, 1.04, 2.0, 3.0])
    draws = [
        next(place for place, time in enumerate(order, 1) if time <= 1.05)
        for order in itertools.permutations(landscape.ascending)
    ]
    assert expected_evaluations(landscape, 0.05) == pytest.approx(np.mean(draws))


def compare(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FOLDER / "compare.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True)


def test_the_runner_keeps_searches_and_adds_only_what_is_missing(tmp_path: Path) -> None:
    write_cache(tmp_path)
    out = tmp_path / "out" / "results.json"
    out.parent.mkdir()
    arguments = ["--tables", tmp_path, "--only", "made_up", "--out", out, "--strategies"]
    first = compare(*arguments, "random", "--seeds", "2")
    assert "made_up random: 2 searches" in first.stderr
    again = compare(*arguments, "random", "no_such_peer:x", "--seeds", "3")
    assert "made_up random: 1 searches" in again.stderr
    assert "no_such_peer is not installed" in again.stderr
    results = json.loads(out.read_text())
    table = results["tables"]["made_up"]
    assert (table["configs"], table["worked"], table["best_ms"]) == (75, 65, 1.0)
    found = table["strategies"]["random"]
    assert found["seeds"] == 3
    assert found["share_reaching"]["5%"] <= 1
    assert list(results["overall"]) == ["random"]
    kept = compare(*arguments, "random", "--seeds", "9", "--kept")
    assert "made_up random:" not in kept.stderr
    assert json.loads(out.read_text())["tables"]["made_up"]["strategies"]["random"]["seeds"] == 3


def of_made_up(folder: Path, out: Path, strategy: str) -> list[str | Path]:
    """What compares two searches of the made-up table in a folder."""
    table = ["--tables", folder, "--only", "made_up", "--out", out]
    return [*table, "--seeds", "2", "--strategies", strategy]


def test_a_search_may_go_on_beyond_what_is_scored(tmp_path: Path) -> None:
    write_cache(tmp_path)
    out = tmp_path / "results.json"
    arguments = of_made_up(tmp_path, out, "random")
    compare(*arguments, "--at-least", "500")
    long = json.loads(out.read_text())["tables"]["made_up"]
    assert long["evaluations"] == long["configs"] > long["budget"]
    compare(*arguments)
    short = json.loads(out.read_text())["tables"]["made_up"]
    assert short["evaluations"] == short["budget"]
    assert short["strategies"]["random"]["P"] == pytest.approx(long["strategies"]["random"]["P"])


def test_a_shorter_search_counts_where_it_met_the_optimum(tmp_path: Path) -> None:
    write_cache(tmp_path)
    out = tmp_path / "out" / "results.json"
    out.parent.mkdir()
    arguments = of_made_up(tmp_path, out, "auto")
    compare(*arguments, "--evaluations", "1")
    longer = compare(*arguments)
    assert "made_up auto: 2 searches" in longer.stderr
    (kept,) = (tmp_path / "out" / "results.json.runs" / "made_up").glob("auto.jsonl")
    runs = [json.loads(line) | {"evaluations": 1} for line in kept.read_text().splitlines()]
    kept.write_text("".join(json.dumps(run) + "\n" for run in runs))
    again = compare(*arguments)
    assert "made_up auto:" not in again.stderr


def test_what_is_known_elsewhere_is_of_other_gpus_and_the_same_kernel(tmp_path: Path) -> None:
    for name, device in (("own", "NVIDIA A100"), ("again", "NVIDIA A100"), ("other", "NVIDIA RTX A6000")):
        (tmp_path / f"{name}.json").write_text(cache_text(device=device))
    (tmp_path / "unlike.json").write_text(
        cache_text({"bx": [1, 2], "by": [1]}, lambda _: 1.0, lambda _: True, "Y")
    )
    (tmp_path / "broken.json").write_text("{")
    (table,) = ours.read_tables(tmp_path / "own.json")
    (prior,) = ours.elsewhere(tmp_path / "own.json", table)
    assert "A6000" in prior.source
    assert len(prior.times_ms) == len(table.sorted_ms)


def test_without_tables_nothing_is_run(tmp_path: Path) -> None:
    done = compare("--tables", tmp_path, "--out", tmp_path / "results.json")
    assert "skipped" in done.stderr
    assert not (tmp_path / "results.json").exists()


def one_strategy(p: float, to1: float, last: float | None, seeds: int = 30) -> dict[str, object]:
    return {
        "version": "1",
        "seeds": seeds,
        "P": p,
        "median_to": {"5%": 30.0, "2%": 31.0, "1%": to1},
        "last_to": {"5%": 50.0, "1%": last},
        "cpu_ms_per_evaluation": 12.0,
    }


def test_aims_are_met_or_missed_by_the_recorded_figures() -> None:
    tables = {
        "gemm_RTX_3090": {
            "configs": 17956,
            "strategies": {
                "auto": one_strategy(0.98, 66.0, None),
                "auto:elsewhere": one_strategy(0.99, 40.0, 50.0),
            },
        },
        "convolution_X": {
            "configs": 4000,
            "strategies": {
                "auto": one_strategy(0.8, 60.0, 100.0),
                "kernel_tuner:a": one_strategy(0.7, 60.0, 100.0),
                "kernel_tuner:b": one_strategy(0.85, 60.0, 100.0),
            },
        },
    }
    verdicts = {what: (wanted, verdict) for what, wanted, _, verdict in aims({"tables": tables})}
    assert verdicts["gemm RTX 3090: median to 5%"] == ("<= 40", "met")
    assert verdicts["gemm RTX 3090: median to 1%"] == ("<= 65", "missed")
    assert verdicts["gemm RTX 3090: last seed to 1%"] == ("<= 300", "missed")
    assert verdicts["gemm RTX 3090: P"][1] == "met"
    assert verdicts["gemm RTX 2080 Ti"][1] == "open"
    informed = "gemm RTX 3090, the other GPUs' tables known: median to 2%, 30 seeds"
    assert verdicts[informed] == ("<= 25", "missed")
    (beside,) = (one for what, one in verdicts.items() if what.startswith("mean P"))
    assert beside == ("> 0.850 (kernel_tuner:b)", "missed")


def test_a_table_of_our_own_has_a_row_for_each_size() -> None:
    entry = {
        "configs": 632,
        "evaluations": 300,
        "budget": 24,
        "device": "NVIDIA H200",
        "kernel": "sgemm",
        "random_expected_to": {"1%": 633 / 4},
        "strategies": {
            "auto": one_strategy(0.9, 60.0, None, 10),
            "random": one_strategy(0.0, 150.0, None, 10),
        },
    }
    part = own_part({"tables": {"exhaustive_256x256x2048": entry}}, "x.json")
    assert "sgemm on NVIDIA H200" in part
    assert "| 256x256x2048 | 632 | 3 | 60 | - | 30 | 150 | 158 |" in part


def test_the_page_says_what_the_latest_results_say() -> None:
    done = subprocess.run([sys.executable, str(FOLDER / "table.py"), "--check"], check=False)
    assert done.returncode == 0, "run benchmarks/search/table.py"


def test_only_what_is_between_the_markers_is_rewritten() -> None:
    page = rewritten(f"a\n{BEGIN}\nold\n{END}\nb\n", "new")
    assert page == f"a\n{BEGIN}\nnew\n{END}\nb\n"

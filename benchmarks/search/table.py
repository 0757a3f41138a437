"""Writes the results of compare.py into docs/replay.md, between its markers, beside what is aimed at.

python benchmarks/search/table.py            # from the latest of studies/search/*-replay.json and *-own-table.json
python benchmarks/search/table.py --check    # exit 1 where the page is not what the results say
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "replay.md"
BEGIN, END = "<!-- results: written by benchmarks/search/table.py -->", "<!-- end of results -->"
OURS, INFORMED = "auto", "auto:elsewhere"
AIMS: dict[str, dict[str, float]] = {
    "gemm_RTX_3090": {"5%": 40, "1%": 65, "P": 0.97},
    "gemm_RTX_2080_Ti": {"5%": 65, "1%": 75, "P": 0.95},
}
"""What `auto` aims at by table: median evaluations at most, P at least."""
INFORMED_AIMS = {"gemm_RTX_3090": 25}
"""By table: median evaluations to within 2% at most, where the tables of the same kernel on other GPUs are known."""
SEEDS_AIMED = 30
LAST_AIMED = 300
"""Evaluations within which every seed is to come within 1%."""
OVERHEAD_AIMED_MS = 20.0
LARGE = 15_000
"""Configurations of a table for which that much time per proposal is allowed."""
AHEAD_ON = ("convolution", "dedispersion")
"""On these kernels' tables `auto` is to be ahead of every strategy of Kernel Tuner by mean P."""


def page_part(results: dict[str, Any], name: str) -> str:
    """All of it as Markdown."""
    lines = [
        "| table | strategy | seeds | P | median to 5% | to 1% | last seed to 1% | slowdown at 100 "
        "| CPU ms per evaluation |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for table, entry in results["tables"].items():
        for strategy, one in sorted(entry["strategies"].items(), key=lambda item: -item[1]["P"]):
            lines.append(
                f"| {table.replace('_', ' ')} | {strategy} | {one['seeds']} | {one['P']:.3f} "
                f"| {_count(one['median_to']['5%'])} | {_count(one['median_to']['1%'])} "
                f"| {_count(one['last_to']['1%'])} | {one['slowdown_at_100']:.3f} "
                f"| {one['cpu_ms_per_evaluation']:.1f} |"
            )
    where = results["provenance"]
    versions = sorted(
        {
            f"Kernel Tuner {one['version']}"
            for entry in results["tables"].values()
            for strategy, one in entry["strategies"].items()
            if strategy.startswith("kernel_tuner")
        }
    )
    lines += [
        "",
        f"Without prior knowledge, but `{INFORMED}` knows the kernel's tables of the other GPUs; autotune "
        f"{where['autotune']}, {', '.join(versions)}; {where['date'][:10]}, Python {where['python']}, "
        f"{where['machine']}. A dash: fewer than half of the seeds, or not the last one, came so "
        f"close within the budget. Recorded in [{name}](../studies/search/{name}).",
        "",
        f"What `{OURS}` aims at:",
        "",
        "| aim | wanted | found | |",
        "|---|---:|---:|---|",
    ]
    lines += [
        f"| {what} | {wanted} | {found} | {verdict} |" for what, wanted, found, verdict in aims(results)
    ]
    return "\n".join(lines)


def own_part(results: dict[str, Any], name: str) -> str:
    """Searches of one exhaustive table of ours, a row for each size."""
    tables = results["tables"].values()
    seeds = min(entry["strategies"][OURS]["seeds"] for entry in tables)
    devices = ", ".join(sorted({entry["device"] for entry in tables}))
    kernels = ", ".join(sorted({entry["kernel"] for entry in tables}))
    searched = max(entry["evaluations"] for entry in tables)
    lines = [
        f"On our own exhaustive table ({kernels} on {devices}), evaluations until a configuration within 1% of the "
        f"table's best was tried, {seeds} seeds of up to {searched} evaluations:",
        "",
        f"| size | configurations | within 1% of the best | `{OURS}`: median | last seed | within 5%: median "
        "| `random`: median to 1% | expected of random |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for table, entry in results["tables"].items():
        ours, chance = entry["strategies"][OURS], entry["strategies"]["random"]
        expected = entry["random_expected_to"]["1%"]
        good = round((entry["configs"] + 1) / expected - 1)
        lines.append(
            f"| {table.partition('_')[2]} | {entry['configs']} | {good} | {_count(ours['median_to']['1%'])} "
            f"| {_count(ours['last_to']['1%'])} | {_count(ours['median_to']['5%'])} "
            f"| {_count(chance['median_to']['1%'])} | {expected:.0f} |"
        )
    scores = [float(np.mean([entry["strategies"][one]["P"] for entry in tables])) for one in (OURS, "random")]
    budgets = [entry["budget"] for entry in tables]
    lines += [
        "",
        "The table is a random part of a much larger space, so most configurations have no neighbour in it. "
        f"Over the first {min(budgets)} to {max(budgets)} evaluations, the budgets, P is {scores[0]:.2f} in the mean "
        f"of the sizes for `{OURS}` and {scores[1]:.2f} for `random`. "
        f"Recorded in [{name}](../studies/search/{name}).",
    ]
    return "\n".join(lines)


def aims(results: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """What is aimed at, how much is wanted, what was found, and whether that is met."""
    for table, wanted in AIMS.items():
        one = results["tables"].get(table, {}).get("strategies", {}).get(OURS)
        name = table.replace("_", " ")
        if one is None:
            yield name, "", "not run", "open"
            continue
        yield f"{name}: seeds", f">= {SEEDS_AIMED}", str(one["seeds"]), _met(one["seeds"] >= SEEDS_AIMED)
        for within in ("5%", "1%"):
            found = one["median_to"][within]
            met = found is not None and found <= wanted[within]
            yield f"{name}: median to {within}", f"<= {wanted[within]:g}", _count(found), _met(met)
        last = one["last_to"]["1%"]
        yield (
            f"{name}: last seed to 1%",
            f"<= {LAST_AIMED}",
            _count(last),
            _met(last is not None and last <= LAST_AIMED),
        )
        yield f"{name}: P", f">= {wanted['P']:g}", f"{one['P']:.3f}", _met(one["P"] >= wanted["P"])
    for table, most in INFORMED_AIMS.items():
        one = results["tables"].get(table, {}).get("strategies", {}).get(INFORMED)
        name = f"{table.replace('_', ' ')}, the other GPUs' tables known: median to 2%"
        if one is None:
            yield name, f"<= {most}", "not run", "open"
            continue
        found = one["median_to"]["2%"]
        verdict = _met(found is not None and found <= most)
        yield f"{name}, {one['seeds']} seeds", f"<= {most}", _count(found), verdict
    large = [
        entry["strategies"][OURS]["cpu_ms_per_evaluation"]
        for entry in results["tables"].values()
        if entry["configs"] >= LARGE and OURS in entry["strategies"]
    ]
    if large:
        met = max(large) < OVERHEAD_AIMED_MS
        text = f"CPU ms per evaluation, tables of at least {LARGE:,} configurations"
        yield text, f"< {OVERHEAD_AIMED_MS:g}", f"{max(large):.1f}", _met(met)
    yield from ahead(results)


def ahead(results: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """How `auto` compares with the best of Kernel Tuner's strategies that ran on the same tables."""
    tables = [
        entry["strategies"]
        for name, entry in results["tables"].items()
        if name.startswith(AHEAD_ON) and OURS in entry["strategies"]
    ]
    peers = {one for table in tables for one in table if one.startswith("kernel_tuner")}
    everywhere = [one for one in sorted(peers) if all(one in table for table in tables)]
    if not everywhere:
        yield f"mean P on {' and '.join(AHEAD_ON)}", "", "not run", "open"
        return
    means = {one: float(np.mean([table[one]["P"] for table in tables])) for one in [OURS, *everywhere]}
    best = max(everywhere, key=means.__getitem__)
    text = f"mean P on {len(tables)} tables of {' and '.join(AHEAD_ON)}, {len(everywhere)} strategies of Kernel Tuner"
    yield text, f"> {means[best]:.3f} ({best})", f"{means[OURS]:.3f}", _met(means[OURS] > means[best])


def _met(met: bool) -> str:
    return "met" if met else "missed"


def _count(evaluations: float | None) -> str:
    return "-" if evaluations is None else f"{evaluations:g}"


def rewritten(page: str, part: str) -> str:
    """The page with the part between its markers."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{part}\n{END}{after}"


def read() -> Iterator[tuple[Callable[[dict[str, Any], str], str], str, dict[str, Any]]]:
    """What writes a part of the page, and the latest file it writes from: its name and what is in it."""
    for write, ending in ((page_part, "replay"), (own_part, "own-table")):
        files = (ROOT / "studies" / "search").glob(f"*-{ending}.json")
        if latest := max(files, default=None):
            yield write, latest.name, json.loads(latest.read_text(encoding="utf-8"))


def main() -> int:
    page = PAGE.read_text(encoding="utf-8")
    parts = [write(results, name) for write, name, results in read()]
    new = rewritten(page, "\n\n".join(parts))
    if "--check" in sys.argv[1:]:
        return int(new != page)
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Replays strategies, ours and other tuners', on recorded tables and says how good each is.

python benchmarks/search/compare.py --tables FOLDER --strategies auto kernel_tuner:genetic_algorithm --out all.json

Tables are the files of the folder (or of $AUTOTUNE_TABLES) that `autotune search --replay` takes. A strategy is one of
`autotune search --strategy`, `auto:elsewhere` (it knows the other GPUs' tables in the folder), `optuna:tpe`,
`kernel_tuner:NAME` or `pyatf:TECHNIQUE` (e.g. AUCBandit). Peers run in an interpreter that has them, by default this
one: `pip install --group benchmark`, or `--python kernel_tuner=PATH`. A peer may stand there in several versions:
`--python kernel_tuner-1.3.3=PATH` runs `kernel_tuner-1.3.3:greedy_ils`.

Each finished search is kept beside the results in OUT.runs and used again, until the table or, for our own strategies,
their code changes. Interrupt at will; `--kept` reports what there is, and table.py writes results into docs/replay.md.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT)]

from methodology import (  # noqa: E402
    Landscape,
    best_so_far,
    evaluations_to,
    expected_evaluations,
    performance,
)

from autotune import __version__  # noqa: E402
from autotune.errors import InputError  # noqa: E402
from autotune.replay.read import read_tables  # noqa: E402
from autotune.replay.table import Table  # noqa: E402

WITHIN = (0.05, 0.02, 0.01)
OWN_CODE = (
    "autotune/study",
    "autotune/space",
    "autotune/replay",
    "autotune/model",
    "benchmarks/search/ours.py",
)
"""What a search of ours depends on."""


@dataclass(frozen=True)
class Ground:
    """A table to search, where it lies, and what is known of it."""

    table: Table
    file: Path
    number: int

    @cached_property
    def landscape(self) -> Landscape:
        return Landscape.of(self.table.times_ms)

    @cached_property
    def budget(self) -> int:
        return self.landscape.budget()

    @cached_property
    def digest(self) -> str:
        text = repr([(entry.config.key, entry.time_ms) for entry in self.table.entries])
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    @property
    def name(self) -> str:
        return self.table.name.replace(" ", "_")


@dataclass(frozen=True)
class Job:
    """The seeds of one strategy on one table that are still to be run."""

    ground: Ground
    strategy: str
    evaluations: int
    seeds: tuple[int, ...]
    kept: Path
    """Where finished searches go, a line each."""
    version: str
    """Of the code that searches."""


def main() -> int:
    options = parse()
    folder = options.tables or os.environ.get("AUTOTUNE_TABLES", "")
    grounds = list(find_tables(Path(folder))) if folder else []
    if options.only:
        grounds = [ground for ground in grounds if any(word in ground.name for word in options.only)]
    if not grounds:
        print("no tables: name their folder by --tables or AUTOTUNE_TABLES; skipped", file=sys.stderr)
        return 0
    interpreters = dict(pair.split("=", 1) for pair in options.python)
    runs = options.out.with_name(options.out.name + ".runs")
    lengths = {ground.name: length_of(ground, options) for ground in grounds}
    jobs = [
        make_job(ground, strategy, lengths[ground.name], options.seeds, runs, interpreters)
        for strategy in options.strategies
        for ground in grounds
    ]
    if not options.kept:
        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(lambda job: run_job(job, runs, interpreters, options.seed_limit), jobs))
    results = summarise(jobs, options)
    options.out.write_text(json.dumps(results, indent=1) + "\n")
    show(results)
    return 0


def length_of(ground: Ground, options: argparse.Namespace) -> int:
    """How many evaluations a search of the table has."""
    return min(max(ground.budget, options.at_least), options.evaluations, len(ground.table))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", metavar="FOLDER", help="default: $AUTOTUNE_TABLES")
    parser.add_argument("--only", nargs="*", metavar="WORD", help="tables whose name has one of these in it")
    parser.add_argument("--strategies", nargs="+", default=["auto", "tpe", "random"], metavar="NAME")
    parser.add_argument("--seeds", type=int, default=30, metavar="N")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes at once")
    parser.add_argument("--evaluations", type=int, default=1000, metavar="N", help="at most; default 1000")
    parser.add_argument(
        "--at-least",
        type=int,
        default=0,
        metavar="N",
        help="go on to N where the budget is less; P is of the budget",
    )
    parser.add_argument("--seed-limit", type=float, default=300.0, metavar="S", help="seconds for one search")
    parser.add_argument("--kept", action="store_true", help="run nothing: report the searches that are kept")
    parser.add_argument("--python", action="append", default=[], metavar="PEER=PATH")
    parser.add_argument("--out", type=Path, default=Path("results.json"), metavar="FILE")
    return parser.parse_args()


# --- tables


def find_tables(folder: Path) -> Iterator[Ground]:
    """The tables of all files that hold some; others are named and left out."""
    for file in sorted(folder.rglob("*")):
        if not file.name.endswith((".json", ".json.gz", ".jsonl", ".jsonl.gz")):
            continue
        try:
            for number, table in enumerate(read_tables(file)):
                yield Ground(table, file, number)
        except InputError as error:
            print(f"left out: {error}", file=sys.stderr)


def plain_cache(ground: Ground, folder: Path) -> Path:
    """The table as the smallest cache that Kernel Tuner takes; every failure is one that happened while running."""
    path = folder / f"{ground.name}-{ground.digest}.json"
    if not path.exists():
        table = ground.table
        cache = {}
        for entry in table.entries:
            failed = not math.isfinite(entry.time_ms)
            values = {name: _plain(value) for name, value in entry.config.items()}
            key = ",".join(map(str, values.values()))
            cache[key] = {**values, "time": "RuntimeFailedConfig" if failed else entry.time_ms}
        body = {
            "device_name": table.device.name,
            "kernel_name": table.kernel,
            "problem_size": [size for _, size in table.problem.sizes][:3],
            "tune_params_keys": [parameter.name for parameter in table.parameters],
            "tune_params": {p.name: [_plain(value) for value in p.values] for p in table.parameters},
            "objective": "time",
            "cache": cache,
        }
        part = path.with_suffix(f".{threading.get_ident()}.part")
        part.write_text(json.dumps(body))
        part.replace(path)
    return path


def _plain(value: object) -> object:
    return " ".join(map(str, value)) if isinstance(value, tuple) else value


# --- running


def make_job(
    ground: Ground, strategy: str, evaluations: int, seeds: int, runs: Path, interpreters: dict[str, str]
) -> Job:
    kept = runs / ground.name / f"{strategy.replace(':', '.')}.jsonl"
    version = version_of(strategy, interpreters)
    job = Job(ground, strategy, evaluations, (), kept, version)
    finished = {run["seed"] for run in finished_runs(job)}
    missing = tuple(seed for seed in range(seeds) if seed not in finished)
    return Job(ground, strategy, evaluations, missing, kept, version)


def finished_runs(job: Job) -> list[dict]:
    """The searches kept that are of this table, this code and long enough, one per seed.

    Long enough is also a shorter one that met the optimum: nothing more can be found.
    """
    if not job.kept.exists():
        return []
    found = {}
    times, best = job.ground.table.times_ms, job.ground.landscape.best
    for line in job.kept.read_text().splitlines():
        run = json.loads(line)
        if run["table"] != job.ground.digest or run["version"] != job.version:
            continue
        if run["evaluations"] >= job.evaluations or (times[run["rows"]] <= best).any():
            found[run["seed"]] = run
    return list(found.values())


def peer_of(strategy: str) -> str:
    """`kernel_tuner` of `kernel_tuner-1.3.3:greedy_ils`; empty for what runs in this package."""
    peer = strategy.partition(":")[0].partition("-")[0] if ":" in strategy else ""
    return "" if peer in ("optuna", "auto") else peer


def interpreter_of(strategy: str, interpreters: dict[str, str]) -> str:
    return interpreters.get(strategy.partition(":")[0], sys.executable)


def version_of(strategy: str, interpreters: dict[str, str]) -> str:
    """The peer's version; for our own strategies a hash of their code."""
    peer = peer_of(strategy)
    if not peer:
        digest = hashlib.blake2b(digest_size=8)
        for name in OWN_CODE:
            path = ROOT / name
            for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
                digest.update(file.read_bytes())
        return digest.hexdigest()
    ask = f"import importlib.metadata as m; print(m.version({peer!r}))"
    command = [interpreter_of(strategy, interpreters), "-c", ask]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def run_job(job: Job, runs: Path, interpreters: dict[str, str], seed_limit: float) -> None:
    """Runs the missing seeds in one process, keeping each search as it ends."""
    if not job.seeds:
        return
    label = f"{job.ground.name} {job.strategy}"
    if not job.version:
        print(f"{label}: skipped, {peer_of(job.strategy)} is not installed there", file=sys.stderr)
        return
    job.kept.parent.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        command_of(job, runs, interpreters), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    watch = threading.Timer(seed_limit * len(job.seeds), process.kill)
    watch.start()
    done = 0
    try:
        assert process.stdout is not None
        with job.kept.open("a") as file:
            for line in process.stdout:
                run = json.loads(line) | {
                    "table": job.ground.digest,
                    "version": job.version,
                    "evaluations": job.evaluations,
                }
                file.write(json.dumps(run) + "\n")
                file.flush()
                done += 1
        errors = process.stderr.read() if process.stderr else ""
        if process.wait():
            last = (errors.strip().splitlines() or ["no message"])[-1]
            print(f"{label}: ended with {process.returncode} after {done} searches: {last}", file=sys.stderr)
        else:
            print(f"{label}: {done} searches", file=sys.stderr)
    finally:
        watch.cancel()
        process.kill()


def command_of(job: Job, runs: Path, interpreters: dict[str, str]) -> list[str]:
    peer = peer_of(job.strategy)
    tail = [str(job.evaluations), *map(str, job.seeds)]
    if not peer:
        number = str(job.ground.number)
        return [sys.executable, str(HERE / "ours.py"), str(job.ground.file), number, job.strategy, *tail]
    cache = plain_cache(job.ground, runs)
    script = str(HERE / f"{peer}_peer.py")
    name = job.strategy.partition(":")[2]
    return [interpreter_of(job.strategy, interpreters), script, str(cache), name, *tail]


# --- results


def summarise(jobs: Sequence[Job], options: argparse.Namespace) -> dict:
    """Per table what it is and how each strategy did on it; over all tables the mean P."""
    tables: dict[str, dict] = {}
    for job in jobs:
        landscape = job.ground.landscape
        entry = tables.setdefault(
            job.ground.name,
            {
                "file": job.ground.file.name,
                "digest": job.ground.digest,
                "device": job.ground.table.device.name,
                "kernel": job.ground.table.kernel,
                "configs": len(job.ground.table),
                "worked": len(job.ground.table.sorted_ms),
                "best_ms": landscape.best,
                "median_ms": landscape.median,
                "budget": job.ground.budget,
                "evaluations": job.evaluations,
                "random_expected_to": {f"{w:.0%}": expected_evaluations(landscape, w) for w in WITHIN},
                "strategies": {},
            },
        )
        runs = [run for run in finished_runs(job) if run["seed"] < options.seeds]
        if runs:
            entry["strategies"][job.strategy] = figures(job, runs)
    names = {job.strategy for job in jobs}
    everywhere = {
        name: [table["strategies"][name] for table in tables.values() if name in table["strategies"]]
        for name in sorted(names)
    }
    overall = {
        name: {
            "tables": len(found),
            "P": float(np.mean([one["P"] for one in found])),
            "P_published": float(np.mean([one["P_published"] for one in found])),
        }
        for name, found in everywhere.items()
        if found
    }
    provenance = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "autotune": __version__,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs, shared with other work",
    }
    return {"provenance": provenance, "seeds": options.seeds, "tables": tables, "overall": overall}


def figures(job: Job, runs: Sequence[dict]) -> dict:
    """How one strategy did on one table."""
    landscape, length = job.ground.landscape, job.evaluations
    times = job.ground.table.times_ms
    traces = np.array([best_so_far(landscape, times[run["rows"]], length) for run in runs])
    to = {within: evaluations_to(traces, landscape.best * (1 + within)) for within in WITHIN}
    at = min(100, length) - 1
    scored = min(length, job.ground.budget)
    return {
        "version": job.version,
        "seeds": len(runs),
        "P": performance(landscape, traces, landscape.exact_baseline(scored)),
        "P_published": performance(landscape, traces, landscape.published_baseline(scored)),
        "median_to": {f"{within:.0%}": _finite(float(np.median(to[within]))) for within in WITHIN},
        "last_to": {f"{within:.0%}": _finite(max(to[within])) for within in WITHIN},
        "share_reaching": {f"{w:.0%}": float(np.isfinite(to[w]).mean()) for w in WITHIN},
        "slowdown_at_100": float(np.mean(traces[:, at]) / landscape.best),
        "cpu_ms_per_evaluation": 1000
        * float(np.mean([run["cpu_s"] / max(len(run["rows"]), 1) for run in runs])),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def show(results: dict) -> None:
    for name, table in results["tables"].items():
        print(
            f"\n{name}: {table['configs']} configs, searched for {table['evaluations']} (budget {table['budget']})"
        )
        print(
            f"  {'strategy':34} {'seeds':>5} {'P':>6} {'publ.':>6} {'to 5%':>6} {'to 1%':>6} {'at 100':>7} {'ms':>6}"
        )
        ranked = sorted(table["strategies"].items(), key=lambda item: -item[1]["P"])
        for strategy, one in ranked:
            to5, to1 = (str(round(to)) if (to := one["median_to"][key]) else "-" for key in ("5%", "1%"))
            print(
                f"  {strategy:34} {one['seeds']:5} {one['P']:6.3f} {one['P_published']:6.3f} {to5:>6} {to1:>6} "
                f"{one['slowdown_at_100']:7.3f} {one['cpu_ms_per_evaluation']:6.1f}"
            )
    print("\noverall P: " + ", ".join(f"{name} {one['P']:.3f}" for name, one in results["overall"].items()))


if __name__ == "__main__":
    sys.exit(main())

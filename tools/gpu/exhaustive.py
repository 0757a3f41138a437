"""Records a table of many configurations at many sizes on the GPU of this machine, in as many runs as it takes.

    python tools/gpu/exhaustive.py --out TABLE.jsonl.gz [--limit 330] [--configs 2000] [--seed 1]
    python tools/gpu/exhaustive.py --out TABLE.jsonl.gz --go-on EARLIER.jsonl.gz

The configurations are the neighbours of good starting points and a uniform sample of the legal space, the same for
the same spec, GPU and seed. Each is compiled once per variant and tried on all sizes in a row. The table is a file of
records (`autotune search --replay TABLE.jsonl.gz` reads it), written every `--every` seconds and at the end; a later
run that is given it goes on where it stops. The last line printed says what was reached, as JSON.
"""

# ruff: noqa: E402  this checkout comes first on the path
from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools" / "gpu")]

from autotune.config import Config
from autotune.gpu import GpuSpec
from autotune.legality import search_space
from autotune.problem import Problem
from autotune.problems import make_problem, parse_size
from autotune.protocol import Protocol
from autotune.spec.kernel_spec import KernelSpec
from autotune.spec.load import load_spec
from autotune.starts import starting_point, starting_points
from autotune.store import RecordQuery, Store, open_store
from autotune.study.progress import Progress
from autotune.study.request import StudyRequest
from autotune.study.study import run_matrix
from autotune.trial import Stages

# Multiples of 256: tiles of powers of two divide all of them, so most configurations need a single variant.
SIZES = (
    *("256", "512", "768", "1024", "1536", "2048"),
    *("256x2048x2048", "2048x256x1024", "512x2048x512", "1024x1024x256", "2048x2048x256", "256x256x2048"),
)
STUDY = "exhaustive"
STEPS_FROM, STEPS_EACH = 50, 10
"""From how many neighbours of good ones a second step goes, and how many from each."""
NEIGHBOUR_SHARE = 0.5
"""The part of the configurations that lies around good ones; the rest is a uniform sample."""


def choose_configs(
    spec: KernelSpec, gpu: GpuSpec, problems: Sequence[Problem], count: int, seed: int
) -> list[Config]:
    """Distinct configurations in random order, half of them one or two steps from starting points.

    An order that mixes both kinds lets a run that ends early leave a fair part of the table.
    """
    rng = np.random.default_rng(seed)
    space = search_space(spec, gpu, problems[0])
    starts = dict.fromkeys(
        point.config
        for problem in problems
        for point in (starting_point(spec, gpu, problem), *starting_points(spec, gpu, problem))
        if point.config in space
    )
    near = dict(starts)
    for start in starts:
        near |= dict.fromkeys(space.neighbours(start))
    around = list(near)
    wanted = min(int(NEIGHBOUR_SHARE * count), space.count)
    while around and len(near) < wanted:
        before = len(near)
        for place in rng.permutation(len(around))[:STEPS_FROM]:
            steps = space.neighbours(around[place])
            near |= dict.fromkeys(steps[step] for step in rng.permutation(len(steps))[:STEPS_EACH])
        if len(near) == before:
            break
    places = rng.permutation(len(near))[:wanted] if len(near) > wanted else range(len(near))
    listed = list(near)
    chosen = dict.fromkeys([*starts, *(listed[place] for place in places)])
    chosen |= dict.fromkeys(space.sample(rng, min(count, space.count) - len(chosen), exclude=set(chosen)))
    rest = [config for config in chosen if config not in starts]
    # The starting points first: all others are held against good times from the beginning.
    return [*starts, *(rest[place] for place in rng.permutation(len(rest)))][:count]


def fill_table(
    requests: Sequence[StudyRequest],
    configs: Sequence[Config],
    stages: Stages,
    store: Store,
    on_event: Callable[[Progress], None] | None = None,
) -> dict[str, object]:
    """Tries what is missing; gives figures of this run and of the whole table."""
    began = time.monotonic()
    results = run_matrix(requests, stages, store, configs, on_event, final=False)
    seconds = time.monotonic() - began
    spaces = [search_space(request.spec, request.gpu, request.problem) for request in requests]
    counts = Counter(status for result in results for status in result.counts.elements())  # type: ignore[attr-defined]
    added = sum(counts.values())
    occupation = results[0].occupation
    return {
        "configs": len(configs),
        "sizes": len(requests),
        "legal": sum(config in space for space in spaces for config in configs),
        "trials_now": added,
        "seconds": round(seconds, 1),
        "trials_per_minute": round(occupation.per_minute),
        "configs_per_minute": round(occupation.per_minute / len(requests)),
        "gpu_busy": round(occupation.gpu, 3),
        "compilers_busy": None if occupation.compilers is None else round(occupation.compilers, 3),
        "counts_now": {str(status): count for status, count in counts.items()},
        "measured": {result.request.problem.label: result.measured for result in results},
        "best_ms": {
            result.request.problem.label: result.best.outcome.time_ms if result.best else None
            for result in results
        },
        "interrupted": any(result.interrupted for result in results),
    }


class Reporter:
    """Prints a line now and then, and writes the table."""

    def __init__(self, store: Store, out: Path, every_s: float) -> None:
        self._store = store
        self._out = out
        self._every_s = every_s
        self._line_at = time.monotonic() + 5
        self._write_at = time.monotonic() + every_s
        self._trials = 0

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        self._trials += progress.last is not None
        if now >= self._line_at:
            self._line_at = now + 10
            busy = progress.occupation
            compilers = f"{busy.compilers:.0%}" if busy.compilers is not None else "-"
            print(
                f"{progress.elapsed_s:6.0f} s  {self._trials} trials, {busy.per_minute:,.0f}/min, "
                f"GPU {busy.gpu:.0%}, compilers {compilers}",
                flush=True,
            )
        if now >= self._write_at:
            self.write()
            self._write_at = time.monotonic() + self._every_s

    def write(self) -> int:
        """All records of the table; an older file is replaced only when this one is whole."""
        return self._store.export_jsonl(self._out, RecordQuery(study=STUDY))


def main() -> int:
    """One run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the table, ending in .jsonl.gz")
    parser.add_argument("--go-on", type=Path, help="the table of an earlier run")
    parser.add_argument("--kernel", default="sgemm")
    parser.add_argument("--configs", type=int, default=2000)
    parser.add_argument("--sizes", default=",".join(SIZES), help="comma-separated")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=330, help="seconds for everything")
    parser.add_argument("--every", type=float, default=120, help="seconds between writings")
    options = parser.parse_args()
    from autotune.compile.pool import CompilePool
    from autotune.device.local import local_gpus
    from autotune.device.stages import GpuStages

    until = time.monotonic() + options.limit
    spec = load_spec(options.kernel)
    gpus = local_gpus()
    if not gpus:
        raise SystemExit("no NVIDIA GPU in this machine")
    gpu = gpus[0]
    problems = [make_problem(spec, parse_size(size, spec)) for size in options.sizes.split(",")]
    configs = choose_configs(spec, gpu.spec, problems, options.configs, options.seed)
    # Samples half as long as a search's: there are five times as many tables to fill as a search has trials.
    protocol = dataclasses.replace(Protocol(), sample_ms=0.5, min_samples=3)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = stack.enter_context(open_store(folder / "table.sqlite"))
        if options.go_on:
            report = store.import_jsonl(options.go_on)
            print(f"goes on from {report.added} records", flush=True)
        pool = stack.enter_context(CompilePool())
        stages = stack.enter_context(GpuStages(gpu, pool, protocol))
        left_s = until - time.monotonic() - 10  # for the last trials and for writing the table
        requests = [
            StudyRequest(
                spec=spec,
                gpu=gpu.spec,
                problem=problem,
                device=gpu.identity,
                environment=gpu.environment,
                study=STUDY,
                protocol=protocol,
                time_s=max(1.0, left_s),
                seed=options.seed,
                board=gpu.uuid,
            )
            for problem in problems
        ]
        print(f"{len(configs)} configurations x {len(problems)} sizes, {pool.workers} compilers", flush=True)
        reporter = Reporter(store, options.out, options.every)
        figures = fill_table(requests, configs, stages, store, reporter)
        figures["records"] = reporter.write()
    figures["gpu"], figures["kernel"] = gpu.spec.name, options.kernel
    print(json.dumps(figures), flush=True)
    return 130 if figures["interrupted"] else 0


if __name__ == "__main__":
    sys.exit(main())

"""Checks the SGEMM kernel on the GPU of this machine by random calls: every result right, every guard zone untouched.

    python tools/gpu/random_calls.py --out RESULT.json --commit HASH [--count 5000] [--limit 240]

Each call is a legal configuration on sizes, pitches, alignments, transpositions, alpha and beta that fit nothing in
particular (see draws.py); C is poisoned, buffers have guard zones, the reference is float64. A call that the time does
not reach is told as not run. Exit 1 where any call failed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools" / "gpu")]

from bench import Bench  # noqa: E402
from draws import Draw, Draws  # noqa: E402

from autotune.candidate import Candidate, CompiledKernel, Source  # noqa: E402
from autotune.errors import StageFailure  # noqa: E402
from autotune.launch import plan_run  # noqa: E402

AHEAD = 200
"""Calls whose kernels are compiled before the first of them runs."""


class Kernels:
    """Compiles each source once, some calls ahead of their use."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._futures: dict[Source, Future[CompiledKernel]] = {}

    def of(self, draw: Draw) -> Future[CompiledKernel]:
        """The draw's kernel; begins compiling where that has not begun."""
        if draw.source not in self._futures:
            self._futures[draw.source] = self._bench.pool.submit(draw.source, self._bench.gpu.spec.arch)
        return self._futures[draw.source]

    def __len__(self) -> int:
        return len(self._futures)


def check(bench: Bench, draw: Draw, kernel: Future[CompiledKernel]) -> str:
    """What is wrong with one call; empty where it is right."""
    try:
        run = plan_run(Candidate(draw.spec, draw.gpu, draw.problem, draw.config), kernel.result())
        if draw.launch.empty:
            return ""
        bench.stages.verify_run(replace(run, launch=draw.launch))
    except StageFailure as failure:
        return f"{failure.status}: {failure.reason}"
    return ""


def main() -> int:
    """Draws, checks, writes the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--per-config", type=int, default=50)
    parser.add_argument("--per-kernel", type=int, default=12, help="in a row of the same classes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rule", default="True", help="narrows the configurations, e.g. CLUSTER > 1")
    parser.add_argument("--kinds", default="tile,rows,columns")
    parser.add_argument("--limit", type=float, default=240, help="seconds")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit", help="of the code that runs")
    options = parser.parse_args()
    until = time.monotonic() + options.limit
    failures: list[dict[str, str]] = []
    kinds: Counter[str] = Counter()
    done = 0
    with Bench.open() as bench:
        drawing = Draws(options.seed, bench.gpu.spec, options.rule, tuple(options.kinds.split(",")))
        draws = drawing.some(options.count, options.per_config, options.per_kernel)
        kernels = Kernels(bench)
        ahead = list(islice(draws, AHEAD))
        for draw in ahead:
            kernels.of(draw)
        while ahead and time.monotonic() < until:
            draw = ahead.pop(0)
            for coming in islice(draws, 1):
                kernels.of(coming)
                ahead.append(coming)
            wrong = check(bench, draw, kernels.of(draw))
            done += 1
            config = draw.config
            kinds[
                f"{config['KIND']} {config['LOAD']}"
                f"{' cluster' if config['CLUSTER'] != 1 else ''}{' stream' if config['STREAM'] else ''}"
            ] += 1
            if wrong:
                failures.append({"call": str(draw), "wrong": wrong})
                print("WRONG", draw, wrong[:400], flush=True)
        found = {
            "commit": options.commit,
            "date": datetime.now(UTC).isoformat(),
            "gpu": bench.gpu.spec.name,
            "driver": bench.gpu.environment.driver,
            "nvrtc": bench.gpu.environment.nvrtc,
            "seed": options.seed,
            "rule": options.rule,
            "asked": options.count,
            "run": done,
            "kernels": len(kernels),
            "by_kind": dict(sorted(kinds.items())),
            "failed": len(failures),
            "failures": failures[:50],
        }
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps({**found, "failures": len(failures)}))
    return 1 if failures or done < options.count else 0


if __name__ == "__main__":
    sys.exit(main())

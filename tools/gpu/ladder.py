"""Records the SGEMM ladder on the GPU of this machine, and verifies each of its kernels where kernels break.

    python tools/gpu/ladder.py --out RESULTS --commit HASH [--size 4096] [--db FILE] [--tune 12] [--limit 100]

1. `autotune ladder`: every step tuned a little, then all of them in turn with the production kernel, cuBLAS and the
   peak of multiply-adds; and the comparisons.
2. Each step's configuration off the tile, at every alignment, with NaN where nothing may be read: bulk copies and
   clusters run nowhere else. Steps that the time does not suffice for are named.

Writes RESULTS/ladder.json, RESULTS/ladder.png where matplotlib is there, and RESULTS/verified.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools" / "gpu")]

from autotune.candidate import Candidate  # noqa: E402
from autotune.config import Config  # noqa: E402
from autotune.errors import InputError, StageFailure  # noqa: E402
from autotune.ladder.plot import check_plot, plot  # noqa: E402
from autotune.ladder.result import LadderResult, write_result  # noqa: E402
from autotune.ladder.run import TIMING  # noqa: E402
from autotune.ladder.start import measure_ladder  # noqa: E402
from autotune.problems import make_problem, parse_size  # noqa: E402
from autotune.spec.load import load_spec  # noqa: E402
from autotune.target import Target, find_target  # noqa: E402
from autotune.thorough import verify_thoroughly  # noqa: E402


@contextlib.contextmanager
def local_stages(target: Target) -> Iterator[Any]:
    """The stages of the target's board."""
    from autotune.compile.pool import CompilePool
    from autotune.device.stages import GpuStages

    if target.local is None:
        raise SystemExit("no NVIDIA GPU in this machine")
    with CompilePool() as pool, GpuStages(target.local, pool, TIMING) as stages:
        yield stages


def verify_steps(result: LadderResult, target: Target, stages: Any, until: float) -> dict[str, str]:
    """`right` or what is wrong, for each step; the newest kinds of kernels first."""
    found: dict[str, str] = {}
    for entry in reversed(result.steps):
        if entry.time_ms is None:
            found[entry.kernel] = f"not measured: {entry.note}"
        elif time.monotonic() > until:
            found[entry.kernel] = "not verified: no time left"
        else:
            spec = load_spec(entry.kernel)
            problem = make_problem(spec, parse_size(result.size, spec))
            candidate = Candidate(spec, target.gpu, problem, Config.of(dict(entry.config)))
            try:
                accuracy = verify_thoroughly(candidate, stages)
                found[entry.kernel] = f"right: {accuracy.elements} elements"
            except StageFailure as failure:
                found[entry.kernel] = str(failure)
        print(entry.kernel, found[entry.kernel], flush=True)
    return found


def record(options: argparse.Namespace, target: Target, stages: Any) -> int:
    """Both steps; 1 where a kernel is wrong."""
    until = time.monotonic() + options.limit
    options.out.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    result = measure_ladder(
        target,
        options.size,
        options.tune,
        commit=options.commit,
        db=options.db,
        tell=lambda text: print(text, flush=True),
        stages=stages,
    )
    write_result(result, options.out / "ladder.json")
    print(f"ladder in {time.monotonic() - started:.1f} s", flush=True)
    picture = options.out / "ladder.png"
    try:
        check_plot(picture)
    except InputError as error:
        print(error)
    else:
        plot(result, picture)
    found = verify_steps(result, target, stages, until)
    (options.out / "verified.json").write_text(json.dumps(found, indent=1) + "\n")
    return int(any(not text.startswith(("right", "not ")) for text in found.values()))


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--commit", default="")
    parser.add_argument("--size", default="4096")
    parser.add_argument("--db", help="where `autotune search` put what it found for a step, warm")
    parser.add_argument("--tune", type=int, default=12)
    parser.add_argument(
        "--limit", type=float, default=100.0, help="seconds after which no further step is verified"
    )
    return parser.parse_args(arguments)


def main() -> int:
    """Measures on the first GPU here."""
    options = parse()
    target = find_target("local")
    with local_stages(target) as stages:
        return record(options, target, stages)


if __name__ == "__main__":
    sys.exit(main())

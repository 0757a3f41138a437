"""Tries on the CPU what legality refuses: of configurations called illegal hardly any may work.

    python tools/refused.py --out STUDY.json [--count 500] [--seed 1] [--limit 600]

Draws from the raw space of sgemm, without clusters and bulk copies, which no CPU runs. What a kind does not use is
left at its default, since rules that keep it there refuse repetitions and no mistakes. Each refused one is rendered,
compiled and run at three problems, off the tile and on it; what exceeds a block's threads or shared memory cannot be
launched and is not tried.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from autotune.config import Config, Value  # noqa: E402
from autotune.cpu import check_launch  # noqa: E402
from autotune.errors import AutotuneError  # noqa: E402
from autotune.gpu_tables import find_gpu  # noqa: E402
from autotune.launch import plan_launch  # noqa: E402
from autotune.legality import violations  # noqa: E402
from autotune.problem import Problem  # noqa: E402
from autotune.problems import make_problem  # noqa: E402
from autotune.render import render  # noqa: E402
from autotune.spec.kernel_spec import KernelSpec  # noqa: E402
from autotune.spec.load import load_spec  # noqa: E402

SIZES = ((70, 70, 40), (256, 192, 128), (7, 300, 65))
NOT_HERE = {"CLUSTER": (1,), "LOAD": ("sync", "prefetch", "cpasync")}
UNUSED = ("only tiles use", "tiles do not use")
"""How the reasons begin of rules that keep unused parameters at their defaults."""
HARD = ("max_threads_per_block", "smem_per_block_bytes", "threads")
"""Limits beyond which nothing is launched."""


def drawn(spec: KernelSpec, rng: np.random.Generator) -> Config:
    """A random one of the raw space, unused parameters at their defaults."""
    values: dict[str, Value] = {}
    for parameter in spec.parameters:
        choices = NOT_HERE.get(parameter.name, parameter.values)
        values[parameter.name] = choices[int(rng.integers(len(choices)))]
    tile = values["KIND"] == "tile"
    for rule in spec.constraints:
        unused = UNUSED[1] if tile else UNUSED[0]
        if rule.because.startswith(unused):
            for name in rule.rule.names - {"KIND"}:
                if name in spec.defaults:
                    values[name] = spec.defaults[name]
    return Config.of(values)


def attempt(config: Config) -> str:
    """`legal`, `works`, or why it does not."""
    spec, gpu = load_spec("sgemm"), find_gpu("h200")
    problems = [make_problem(spec, sizes, classes={"beta": "general"}) for sizes in SIZES]
    broken = violations(spec, gpu, problems[0], config)
    if not broken:
        return "legal"
    if any(one.limit in HARD for one in broken):
        return "cannot be launched"
    return next((why for problem in problems if (why := failure(spec, problem, config))), "works")


def failure(spec: KernelSpec, problem: Problem, config: Config) -> str:
    """Why it does not work at a problem; empty where it does."""
    gpu = find_gpu("h200")
    try:
        check_launch(render(spec, gpu, problem, config), plan_launch(spec, problem, config, gpu), "matmul")
    except AutotuneError as error:
        return str(getattr(error, "status", "") or type(error).__name__)
    return ""


def main() -> int:
    """Draws, tries, writes the file; 1 where more than one in a hundred refused ones work."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=900, help="seconds")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    until = time.monotonic() + options.limit
    spec, rng = load_spec("sgemm"), np.random.default_rng(options.seed)
    configs = [drawn(spec, rng) for _ in range(options.count)]
    outcomes: Counter[str] = Counter()
    working: list[str] = []
    with ProcessPoolExecutor(options.workers) as pool:
        for config, outcome in zip(configs, pool.map(attempt, configs), strict=False):
            outcomes[outcome] += 1
            if outcome == "works":
                problem = make_problem(spec, SIZES[0])
                why = "; ".join(map(str, violations(spec, find_gpu("h200"), problem, config)))
                working.append(f"{config}: {why}")
            if time.monotonic() > until:
                pool.shutdown(wait=False, cancel_futures=True)
                break
    refused = sum(outcomes.values()) - outcomes["legal"]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    found = {
        "commit": commit.stdout.strip(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "kernel": spec.name,
        "rules_of": "h200",
        "seed": options.seed,
        "asked": options.count,
        "drawn": sum(outcomes.values()),
        "refused": refused,
        "refused_that_work": outcomes["works"],
        "outcomes": dict(outcomes.most_common()),
        "working": working,
    }
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps({**found, "working": working[:5]}, indent=1))
    return int(outcomes["works"] > refused / 100)


if __name__ == "__main__":
    sys.exit(main())

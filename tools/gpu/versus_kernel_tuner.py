"""Our search and Kernel Tuner on the same rendered kernels, space, reference and number of samples, on a GPU here.

    python tools/gpu/versus_kernel_tuner.py --out RESULT.json [--size 2048] [--configs 2000] [--seconds 90]

One after the other each gets the same seconds on a random sample of `sgemm`'s legal configurations, with nothing
compiled beforehand: seven samples of each configuration, all of them checked against the same float64 reference, early
dropping off on our side. Then both winners are measured by us in turn. Kernel Tuner has to be importable
(`pip install --group benchmark`); without a GPU, `--dry-run` makes the case and stops before tuning.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools" / "gpu")]

from kernel_tuner_side import THREADS  # noqa: E402

from autotune.buffers import fill, lay_out, poisoned_outputs  # noqa: E402
from autotune.candidate import Candidate, LaunchPlan, ScalarPlan, ScratchPlan  # noqa: E402
from autotune.config import Config  # noqa: E402
from autotune.gpu import GpuSpec  # noqa: E402
from autotune.launch import plan_launch  # noqa: E402
from autotune.legality import search_space, violations  # noqa: E402
from autotune.problem import Problem  # noqa: E402
from autotune.problems import make_problem  # noqa: E402
from autotune.protocol import Protocol  # noqa: E402
from autotune.references import get_reference  # noqa: E402
from autotune.render import render  # noqa: E402
from autotune.replay.table import parameters_of  # noqa: E402
from autotune.space.listed import ListedSpace  # noqa: E402
from autotune.spec.kernel_spec import KernelSpec  # noqa: E402
from autotune.spec.load import load_spec  # noqa: E402

SAMPLES = 7
FLAGS = ["-std=c++17"]
"""As our own compiler has them."""


def choose_configs(spec: KernelSpec, gpu: GpuSpec, problem: Problem, count: int, seed: int) -> list[Config]:
    """Random legal configurations whose launch needs no scratch memory, which Kernel Tuner has no word for."""
    space = search_space(spec, gpu, problem)
    chosen: list[Config] = []
    for config in space.sample(np.random.default_rng(seed), min(space.count, 4 * count)):
        plan = plan_launch(spec, problem, config, gpu)
        scratch = sum(one.nbytes for one in plan.arguments if isinstance(one, ScratchPlan))
        if not scratch and not violations(spec, gpu, problem, config):
            chosen.append(config)
        if len(chosen) == count:
            break
    return chosen


def make_case(
    spec: KernelSpec, gpu: GpuSpec, problem: Problem, configs: list[Config], strategy: str, seconds: float
) -> dict[str, Any]:
    """All that Kernel Tuner is given; plain values and arrays."""
    plans = [plan_launch(spec, problem, config, gpu) for config in configs]
    sources = [render(spec, gpu, problem, config) for config in configs]
    arguments, answer, expected, tolerance = host_data(spec, plans[0])
    return {
        "entry": spec.entry,
        "rows": [{**config, THREADS: plan.block[0]} for config, plan in zip(configs, plans, strict=True)],
        "launches": [{"grid": plan.grid, "smem": plan.dynamic_smem_bytes} for plan in plans],
        "sources": [source.text for source in sources],
        "flags": [*FLAGS, f"-I{sources[0].template.resolve().parent}"],
        "arguments": arguments,
        "answer": answer,
        "expected": expected,
        "tolerance": tolerance,
        "samples": SAMPLES,
        "strategy": strategy,
        "seconds": seconds,
    }


def host_data(spec: KernelSpec, plan: LaunchPlan) -> tuple[list[Any], list[Any], dict[int, Any], float]:
    """Arguments in order; outputs to be checked, None for others; by place the expected values and scale; tolerance."""
    protocol = Protocol()
    layout = lay_out(plan.buffers, guarded=False)
    arena = np.empty(layout.nbytes, dtype=np.uint8)
    fill(arena, layout, protocol.data, protocol.data_seed, poisoned_outputs(plan.buffers, plan.known), np)
    views = layout.views(arena)
    wanted = get_reference(spec.reference).expected(views, plan.known, np)
    arguments: list[Any] = []
    answer: list[Any] = []
    expected: dict[int, Any] = {}
    for place, argument in enumerate(plan.arguments):
        answer.append(None)
        if isinstance(argument, ScalarPlan):
            arguments.append(np.dtype(argument.dtype).type(argument.value))
        elif isinstance(argument, ScratchPlan):
            arguments.append(np.zeros(1, dtype=np.float32))
        else:
            arguments.append(np.ascontiguousarray(views[argument.name]))
            if argument.name in wanted.values:
                expected[place] = (wanted.values[argument.name], wanted.scale[argument.name])
                answer[place] = wanted.values[argument.name].astype(argument.dtype)
    return arguments, answer, expected, wanted.tolerance


def theirs(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Kernel Tuner in its own process, with an empty cache."""
    case_file, result_file = folder / "case.pickle", folder / "result.json"
    case_file.write_bytes(pickle.dumps(case))
    command = [
        sys.executable,
        str(ROOT / "tools" / "gpu" / "kernel_tuner_side.py"),
        str(case_file),
        str(result_file),
    ]
    environment = {**os.environ, "CUPY_CACHE_DIR": str(folder / "cupy")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not result_file.exists():
        return {"error": (done.stderr or done.stdout)[-2000:]}
    found: dict[str, Any] = json.loads(result_file.read_text())
    return found


def ours(
    spec: KernelSpec, local: Any, problem: Problem, configs: list[Config], options: argparse.Namespace
) -> dict[str, Any]:
    """Our search over the same list, with an empty cache."""
    from autotune.compile.pool import CompilePool
    from autotune.device.stages import GpuStages
    from autotune.store import open_store
    from autotune.study.request import StudyRequest
    from autotune.study.study import run_study

    # Seven samples whatever comes, so that both do the same work.
    protocol = dataclasses.replace(Protocol(), min_samples=SAMPLES, max_samples=SAMPLES, racing=False)
    space = ListedSpace(parameters_of(configs), configs)
    with (
        tempfile.TemporaryDirectory() as folder,
        open_store(Path(folder) / "records.sqlite") as store,
        CompilePool(cache=Path(folder) / "cache") as pool,
        GpuStages(local, pool, protocol) as stages,
    ):
        request = StudyRequest(
            spec=spec,
            gpu=local.spec,
            problem=problem,
            device=local.identity,
            environment=local.environment,
            study="versus",
            protocol=protocol,
            time_s=options.seconds,
            strategy=options.strategy,
            seed=options.seed,
            board=local.uuid,
            space=space,
        )
        began = time.perf_counter()
        result = run_study(request, stages, store)
        took = time.perf_counter() - began
    assert result.best is not None
    samples = {
        len(one.outcome.measurement.samples_ms)
        for one in result.records
        if one.round == "search" and one.outcome.measurement
    }
    return {
        "seconds": took,
        "evaluated": sum(result.counts.values()),
        "verified": result.measured,
        "counts": {str(status): count for status, count in result.counts.items()},
        "samples": sorted(samples),
        "occupation": dataclasses.asdict(result.occupation),
        "best": {"row": configs.index(result.best.config), "time_ms": result.best.outcome.time_ms},
    }


def beside_each_other(
    spec: KernelSpec, local: Any, problem: Problem, winners: dict[str, Config]
) -> dict[str, Any]:
    """The winners' times, measured by us in turn."""
    from autotune.compile.pool import CompilePool
    from autotune.device.stages import GpuStages
    from autotune.launch import plan_run

    with CompilePool() as pool, GpuStages(local, pool) as stages:
        runs = []
        for config in winners.values():
            candidate = Candidate(spec, local.spec, problem, config)
            runs.append(
                plan_run(candidate, stages.compile(candidate, render(spec, local.spec, problem, config)))
            )
        timed = stages.compare_runs(runs)
    return {
        name: {
            "config": winners[name].key,
            "time_ms": one.measurement.time_ms,
            "spread": one.measurement.spread,
        }
        for name, one in zip(winners, timed, strict=True)
    }


def main() -> int:
    options = parse()
    spec = load_spec("sgemm")
    if options.dry_run:
        from autotune.gpu_tables import find_gpu

        local, gpu = None, find_gpu(options.dry_run)
    else:
        from autotune.device.local import local_gpus

        boards = local_gpus()
        if not boards:
            raise SystemExit("no NVIDIA GPU in this machine; --dry-run h200 makes the case without one")
        local, gpu = boards[0], boards[0].spec
    problem = make_problem(spec, options.size)
    configs = choose_configs(spec, gpu, problem, options.configs, options.seed)
    case = make_case(spec, gpu, problem, configs, options.their_strategy, options.seconds)
    figures: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(),
        "gpu": gpu.name,
        "problem": problem.key,
        "configs": len(configs),
        "samples": SAMPLES,
        "strategies": {"ours": options.strategy, "kernel_tuner": options.their_strategy},
    }
    if local is not None:
        figures["environment"] = dataclasses.asdict(local.environment)
        figures["ours"] = ours(spec, local, problem, configs, options)
        options.out.write_text(json.dumps(figures, indent=1) + "\n")
        with tempfile.TemporaryDirectory() as folder:
            figures["kernel_tuner"] = theirs(case, Path(folder))
        options.out.write_text(json.dumps(figures, indent=1) + "\n")
        sides = {name: figures[name] for name in ("ours", "kernel_tuner") if figures[name].get("best")}
        for side in sides.values():
            side["verified_per_minute"] = 60 * side["verified"] / side["seconds"]
        if len(sides) == 2:
            figures["times_as_many"] = (
                sides["ours"]["verified_per_minute"] / sides["kernel_tuner"]["verified_per_minute"]
            )
        winners = {name: configs[side["best"]["row"]] for name, side in sides.items()}
        figures["winners"] = beside_each_other(spec, local, problem, winners)
    options.out.write_text(json.dumps(figures, indent=1) + "\n")
    print(json.dumps(figures, indent=1))
    return 0 if local is None or "times_as_many" in figures else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--size", type=int, default=2048)
    parser.add_argument("--configs", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=90.0, help="for each of the two")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--strategy", default="auto", help="ours")
    parser.add_argument("--their-strategy", default="adaptive_tabu_greywolf", metavar="NAME")
    parser.add_argument(
        "--dry-run", metavar="GPU", help="make the case for a GPU of the tables, tune nothing"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

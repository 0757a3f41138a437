"""GPU cases about registers, occupancy, legality and compiled code."""

from __future__ import annotations

import dataclasses
import random
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
from bench import QUICK, Bench
from case import ROOT, NotChecked, Numbers, failure_of, find_nvcc, measured

from autotune.candidate import Candidate, Runnable
from autotune.config import Config
from autotune.exporter import ExportEntry, export
from autotune.launch import plan_run
from autotune.legality import nearest_legal, resource_violations, search_space, violations
from autotune.occupancy import with_occupancy
from autotune.problems import make_problem
from autotune.records import Status
from autotune.render import render


def t20(bench: Bench, numbers: Numbers) -> None:
    def with_block(entry: str) -> Runnable:
        run = bench.mutant(entry, 256)
        launch = dataclasses.replace(run.launch, grid=(8, 16, 1), block=(32, 16, 1))
        return dataclasses.replace(run, launch=launch)

    free, bounded = with_block("wide"), with_block("wide_and_bounded")
    broken = resource_violations(
        bench.gpu.spec, free.launch, with_occupancy(free.kernel.resources, free.launch, bench.gpu.spec)
    )
    numbers["without bounds"] = f"{free.kernel.resources.registers} registers: " + "; ".join(map(str, broken))
    assert broken
    failure = failure_of(lambda: bench.stages.verify_run(free), Status.LAUNCH_ERROR)
    numbers["the driver says"] = failure.reason
    resources = with_occupancy(bounded.kernel.resources, bounded.launch, bench.gpu.spec)
    assert not resource_violations(bench.gpu.spec, bounded.launch, resources)
    numbers["with bounds"] = (
        f"{resources.registers} registers, "
        f"{resources.spill_store_bytes} + {resources.spill_load_bytes} B spilled, "
        f"{measured(bench, bounded):.4f} ms"
    )
    compare_occupancy(bench, [bounded], numbers)


def compare_occupancy(bench: Bench, runs: list[Runnable], numbers: Numbers) -> None:
    wrong = []
    for run in runs:
        facts = bench.stages.inspect(run)
        ours = with_occupancy(run.kernel.resources, run.launch, bench.gpu.spec)
        if ours.blocks_per_sm != facts.blocks_per_sm or ours.registers != facts.registers:
            wrong.append(f"{run.kernel.entry}: {ours} against {facts}")
    numbers["occupancy as the driver's"] = f"{len(runs) - len(wrong)} of {len(runs)}"
    assert not wrong, wrong


def t29(bench: Bench, numbers: Numbers) -> None:
    """No legal one may fail; at most 1% of the refused ones may work; each refusal has a legal neighbour."""
    begin = time.monotonic()
    problem = make_problem(bench.spec, (257, 131, 67))
    space = search_space(bench.spec, bench.gpu.spec, problem)
    legal = space.sample(np.random.default_rng(29), 120)
    rng = random.Random(29)
    raw = [Config(tuple((p.name, rng.choice(p.values)) for p in bench.spec.parameters)) for _ in range(500)]
    refused = [config for config in raw if config not in space]
    for config in refused[:50]:
        broken = violations(bench.spec, bench.gpu.spec, problem, config)
        assert broken, config
        assert not violations(bench.spec, bench.gpu.spec, problem, nearest_legal(space, config))
    legal += [config for config in raw if config in space]

    def candidate(config: Config) -> Candidate:
        return Candidate(bench.spec, bench.gpu.spec, problem, config)

    outcomes: Counter[str] = Counter()
    runs = []
    sources = [render(bench.spec, bench.gpu.spec, problem, config) for config in legal]
    futures = [bench.pool.submit(source, bench.gpu.spec.arch) for source in sources]
    for config, future in zip(legal, futures, strict=True):
        run = plan_run(candidate(config), future.result())
        resources = with_occupancy(run.kernel.resources, run.launch, bench.gpu.spec)
        if resource_violations(bench.gpu.spec, run.launch, resources):
            failure_of(lambda r=run: bench.stages.verify_run(r), Status.LAUNCH_ERROR)
            outcomes["refused after compiling, and the driver refuses it too"] += 1
            continue
        bench.stages.verify_run(run)
        runs.append(run)
        outcomes["legal and right"] += 1
    compare_occupancy(bench, runs, numbers)
    numbers["legal"] = dict(outcomes)

    worked, tried = [], 0
    with bench.protocol(dataclasses.replace(QUICK, run_limit_s=2.0)):
        for config in refused[:60]:
            if time.monotonic() - begin > 70:
                break
            tried += 1
            try:
                source = render(bench.spec, bench.gpu.spec, problem, config)
                kernel = bench.pool.submit(source, bench.gpu.spec.arch).result()
                bench.stages.verify_run(plan_run(candidate(config), kernel))
                worked.append(config.key)
            except Exception:  # noqa: BLE001  any way of failing will do
                continue
    numbers["refused that work"] = f"{len(worked)} of {tried} tried ({len(refused)} of 500 raw refused)"
    numbers["which"] = worked[:3]
    assert len(worked) <= max(1, 0.01 * tried)


def t43(bench: Bench, numbers: Numbers) -> None:
    for entry in ("naive", "templated<7>"):
        run = bench.mutant(entry, 64)
        numbers[entry] = f"{run.kernel.entry}: {bench.stages.verify_run(run).worst_error:.3f}"
    missing = dataclasses.replace(run, kernel=dataclasses.replace(run.kernel, entry="templated"))
    failure = failure_of(lambda: bench.stages.verify_run(missing), Status.LAUNCH_ERROR)
    assert "naive" in failure.reason
    numbers["missing"] = failure.reason[:200]
    candidate = bench.candidate(256)
    source = render(candidate.spec, candidate.gpu, candidate.problem, candidate.config)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernel.cu").write_text(source.text)
        nvcc = find_nvcc()
        if nvcc is None:
            raise NotChecked("the offline compiler's names: nvcc is not here")
        cubin = Path(folder) / "kernel.cubin"
        command = [
            nvcc,
            "-std=c++17",
            "-cubin",
            f"-arch={bench.gpu.spec.arch}",
            "-o",
            cubin,
            Path(folder) / "kernel.cu",
        ]
        subprocess.run(
            [*command, f"-I{source.template.parent}", f"-I{source.template.parents[1]}"], check=True
        )
        run = bench.run(candidate)
        offline = dataclasses.replace(run.kernel, image=cubin, entry="sgemm", compiler="nvcc")
        accuracy = bench.stages.verify_run(dataclasses.replace(run, kernel=offline))
        numbers["nvcc"] = f"{accuracy.worst_error:.3f}"


def t41_t42(bench: Bench, numbers: Numbers) -> None:
    """Two headers in both orders beside the user's own macros and `smem`: built by nvcc, run, and checked."""
    nvcc = find_nvcc()
    if nvcc is None:
        raise NotChecked("nvcc is not here")
    example = ROOT / "examples" / "cpp"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for table, changes in (("one", {}), ("two", {"VA": 1, "VB": 2, "VN": 2, "VC": 2})):
            gpu = dataclasses.replace(bench.gpu.spec, table=table)
            candidate = bench.candidate(1024, changes=changes)
            entry = ExportEntry(candidate.problem, candidate.config, None, "default")
            export(bench.spec, gpu, [entry], folder / f"{table}.cuh")
        for first, second in (("one", "two"), ("two", "one")):
            both = folder / "both.cuh"
            both.write_text(HOSTILE.format(first=first, second=second))
            program = folder / f"{first}_first"
            command = [nvcc, "-std=c++14", f"-arch={bench.gpu.spec.arch}", "-O2", f"-I{folder}"]
            command += ['-DAUTOTUNE_HEADER="both.cuh"', f"-DAUTOTUNE_SCOPE=sgemm_{first}", "-o", str(program)]
            command += [str(example / "main.cu"), str(example / "second.cu")]
            built = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
            assert built.returncode == 0, built.stderr[-2000:]
            ran = subprocess.run(
                [program, "--check"], capture_output=True, text=True, timeout=60, check=False
            )
            numbers[f"{first} first"] = ran.stdout.strip().splitlines()[-1:]
            assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-500:]


HOSTILE = """#pragma once
#define min(a, b) no_such_thing
#define max(a, b) no_such_thing
#define BM 1
#define TM 2
#define CEIL_DIV(a, b) 3
#include "{first}.cuh"
#include "{second}.cuh"
#undef min
#undef max
static __global__ void users_own(int* out) {{
    extern __shared__ int smem[];
    smem[threadIdx.x] = BM + TM + CEIL_DIV(1, 1);
    out[threadIdx.x] = smem[threadIdx.x];
}}
"""

"""The GPU cases by id: correctness first, then crashes and hangs, measuring, resources, and whole studies."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from bench import DATA, QUICK, Bench, Stopwatch

from autotune.candidate import Candidate, Runnable, ScalarPlan
from autotune.config import Config
from autotune.errors import StageFailure
from autotune.exporter import ExportEntry, export
from autotune.launch import plan_run
from autotune.legality import nearest_legal, resource_violations, search_space, violations
from autotune.occupancy import with_occupancy
from autotune.problems import make_problem
from autotune.protocol import Protocol
from autotune.records import Status
from autotune.render import render
from autotune.thorough import thorough_cases, verify_thoroughly

Numbers = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]


class NotChecked(Exception):
    """Something that a case, or part of it, needs is not on this machine."""


@dataclass(frozen=True)
class Case:
    id: str
    what: str
    limit_s: int
    run: Callable[[Bench, Numbers], None]


def failure_of(act: Callable[[], object], *statuses: Status) -> StageFailure:
    """The failure that an act must end in."""
    try:
        got = act()
    except StageFailure as caught:
        failure = caught
    else:
        raise AssertionError(f"no failure, got {got}")
    assert failure.status in statuses, f"{failure} is not one of {statuses}"
    return failure


def close_to(value: float, other: float, relative: float) -> bool:
    return abs(value - other) <= relative * other


# --- correctness


def t02(bench: Bench, numbers: Numbers) -> None:
    for sizes in ((256, 256, 256), (257, 131, 67)):
        accuracy = bench.stages.verify_run(bench.run(bench.candidate(sizes)))
        numbers[f"error at {sizes}"] = round(accuracy.worst_error, 3)
    for entry in ("all_nan", "reads_c"):
        failure = failure_of(
            lambda e=entry: bench.stages.verify_run(bench.mutant(e, 64)), Status.WRONG_RESULT
        )
        assert failure.accuracy is not None
        assert failure.accuracy.worst_error == float("inf")
    for entry in ("writes_past_the_end", "changes_an_input"):
        failure = failure_of(
            lambda e=entry: bench.stages.verify_run(bench.mutant(e, 64)), Status.WRONG_RESULT
        )
        numbers[entry] = failure.reason


def t03(bench: Bench, numbers: Numbers) -> None:
    candidate = bench.candidate(256)
    for case in thorough_cases(bench.spec, candidate.problem):
        if case.what in ("no depth", "no rows", "alpha zero, NaN in A and B"):
            run = bench.run(dataclasses.replace(candidate, problem=case.problem))
            accuracy = bench.stages.verify_run(run, case.data, case.values)
            key = f"{case.what}, beta {dict(case.problem.classes)['beta']}"
            numbers[key] = accuracy.worst_error
    general = bench.run(bench.candidate((64, 48, 0), {"beta": "general"}))
    bench.stages.verify_run(general, values={"beta": 1.0})


def t05(bench: Bench, numbers: Numbers) -> None:
    worst = 0.0
    for align, offset in ((1, 1), (2, 2), (4, 0)):
        classes = {f"align_{name}": align for name in "abc"} | {"beta": "general"}
        run = bench.run(bench.candidate((130, 67, 45), classes))
        for pad in {1: (3, 5, 7), 2: (2, 6), 4: (4, 8)}[align]:
            worst = max(worst, bench.stages.verify_run(shifted(run, pad, align, offset)).worst_error)
    numbers["worst error"] = round(worst, 3)
    accuracy = verify_thoroughly(bench.candidate(512), bench.stages)
    numbers["thorough"] = f"{accuracy.worst_error:.3f} over {accuracy.elements} elements"


def shifted(run: Runnable, pad: int, align: int, offset: int) -> Runnable:
    """The run with rows that are at least `pad` longer and buffers off their boundary."""
    pitches: dict[str, int] = {}
    arguments: list[Any] = []
    for argument in run.launch.arguments:
        if not isinstance(argument, ScalarPlan):
            pitch = -(-(argument.shape[1] + pad) // align) * align
            pitches[f"ld{argument.name.lower()}"] = pitch
            argument = dataclasses.replace(argument, pitch=pitch, offset=offset)
        elif argument.name in pitches:
            argument = dataclasses.replace(argument, value=pitches[argument.name])
        arguments.append(argument)
    return dataclasses.replace(run, launch=dataclasses.replace(run.launch, arguments=tuple(arguments)))


def t06(bench: Bench, numbers: Numbers) -> None:
    for depth in (64, 4096, 32768):
        sizes = (128, 128, depth)
        errors = [
            bench.stages.verify_run(bench.mutant(entry, sizes)).worst_error
            for entry in ("naive", "backwards", "in_slices")
        ]
        for changes in ({}, {"BK": 8, "ORDER": "nested"}, {"LOAD": "sync", "STAGES": 1, "REGDB": False}):
            candidate = bench.candidate(sizes, changes=changes)
            assert not violations(candidate.spec, candidate.gpu, candidate.problem, candidate.config)
            errors.append(bench.stages.verify_run(bench.run(candidate)).worst_error)
        mutant = bench.mutant("loses_a_slice", sizes)
        failure = failure_of(lambda m=mutant: bench.stages.verify_run(m), Status.WRONG_RESULT)
        assert failure.accuracy is not None
        numbers[f"K={depth}"] = f"right {max(errors):.3f}, mutant {failure.accuracy.worst_error:.1f}, limit 4"


# --- crashes and hangs


def t07(bench: Bench, numbers: Numbers) -> None:
    with bench.protocol(QUICK):
        runs = [
            bench.run(Candidate(bench.spec, bench.gpu.spec, make_problem(bench.spec, 512), config))
            for config in bench.configs(512, 19)
        ]
        alone = [measured(bench, run) for run in runs]
        with_bad = []
        for number, run in enumerate(runs):
            if number == 4:
                bad = bench.mutant("illegal_address", 512)
                failure = failure_of(lambda b=bad: bench.stages.verify_run(b), Status.CRASHED)
                numbers["bad one"] = failure.reason
                assert re.search("illegal", failure.reason, re.IGNORECASE)
            with_bad.append(measured(bench, run))
    off = [abs(b / a - 1) for a, b in zip(alone, with_bad, strict=True)]
    numbers["times differ by at most"] = f"{max(off):.1%}, median {sorted(off)[9]:.2%}"
    assert sorted(off)[16] < 0.05


def measured(bench: Bench, run: Runnable) -> float:
    bench.stages.verify_run(run)
    return bench.stages.measure_run(run).measurement.time_ms


def t09(bench: Bench, numbers: Numbers) -> None:
    fast = bench.run(bench.candidate(1024))
    alone = measured(bench, fast)
    slow = bench.mutant("takes_ten_seconds", 64)
    start = time.monotonic()
    with bench.protocol(dataclasses.replace(Protocol(), run_limit_s=2.0)):
        failure = failure_of(lambda: bench.stages.verify_run(slow), Status.TIMEOUT)
    numbers["killed after"] = f"{time.monotonic() - start:.1f} s: {failure.reason}"
    after = measured(bench, fast)
    numbers["alone, after"] = f"{alone:.5f}, {after:.5f} ms ({after / alone - 1:+.2%})"
    assert close_to(after, alone, 0.05)


def t12(bench: Bench, numbers: Numbers) -> None:
    right = [bench.mutant("naive", (64, 64, k)) for k in (32, 64, 96)]
    wrong = bench.mutant("loses_a_slice", 64)
    refused = bench.mutant("refuses_large_blocks", 64)
    protocol = Protocol(warmup_ms=0.2, min_samples=2, max_samples=3)
    counts: Counter[str] = Counter()
    begin = None
    with bench.protocol(protocol):
        for number in range(600):
            run = (*right, wrong, refused)[number % 5] if number % 3 else (wrong, refused)[number // 3 % 2]
            try:
                bench.stages.verify_run(run)
                bench.stages.measure_run(run)
                counts["ok"] += 1
            except StageFailure as failure:
                counts[str(failure.status)] += 1
            if number == 60:
                begin = bench.stages.stats()
    end = bench.stages.stats()
    assert begin is not None
    numbers["counts"] = dict(counts)
    numbers["RSS MiB"] = f"{begin.rss_bytes >> 20} -> {end.rss_bytes >> 20}"
    numbers["device MiB"] = f"{begin.device_used_bytes >> 20} -> {end.device_used_bytes >> 20}"
    assert set(counts) == {"ok", "wrong_result", "launch_error"}
    assert end.rss_bytes < 1.05 * begin.rss_bytes
    assert end.device_used_bytes < 1.05 * begin.device_used_bytes


def t60(bench: Bench, numbers: Numbers) -> None:
    start = time.monotonic()
    accuracy = bench.stages.verify_run(bench.run(bench.candidate(8192)))
    numbers["8192 with reference"] = f"{time.monotonic() - start:.1f} s, error {accuracy.worst_error:.3f}"
    watched = dataclasses.replace(bench.gpu, watchdog=True)
    before, bench.stages.gpu = bench.stages.gpu, watched
    try:
        slow = bench.mutant("takes_ten_seconds", 64)
        failure = failure_of(lambda: bench.stages.verify_run(slow), Status.TIMEOUT)
    finally:
        bench.stages.gpu = before
    assert "watchdog" in failure.reason
    bench.stages.verify_run(bench.run(bench.candidate(256)))


# --- measuring


def t13(bench: Bench, numbers: Numbers) -> None:
    count = min(4 * 2**20, bench.gpu.spec.l2_bytes // 16 // 2048 * 2048)
    runs = {entry: bench.copy(entry, count) for entry in ("in_order", "scattered")}
    for run in runs.values():
        bench.stages.verify_run(run)
    cold = {entry: bench.stages.measure_run(run) for entry, run in runs.items()}
    warm = {entry: bench.stages.measure_run(run, protocol=Protocol().warm()) for entry, run in runs.items()}
    watch = Stopwatch()
    sets = 5 * bench.gpu.spec.l2_bytes // (8 * count) + 1
    independent = {entry: watch.time_ms(run, sets, calls=4 * sets) for entry, run in runs.items()}
    watch.close()
    for entry in runs:
        numbers[entry] = (
            f"cold {cold[entry].measurement.time_ms * 1e3:.1f} us, "
            f"warm {warm[entry].measurement.time_ms * 1e3:.1f}, "
            f"independent cold {independent[entry] * 1e3:.1f}"
        )
    ratio = cold["scattered"].measurement.time_ms / cold["in_order"].measurement.time_ms
    numbers["ratio"] = f"{ratio:.2f}, independent {independent['scattered'] / independent['in_order']:.2f}"
    assert ratio > 1.4
    assert independent["scattered"] > independent["in_order"]
    assert warm["in_order"].measurement.time_ms < cold["in_order"].measurement.time_ms
    assert Protocol().key.startswith("cold/")


def t14(bench: Bench, numbers: Numbers) -> None:
    run = bench.run(bench.candidate(8192))
    bench.stages.verify_run(run)
    times = {}
    for data in ("normal", "ones", "zeros"):
        protocol = dataclasses.replace(Protocol(), data=data)
        times[data] = bench.stages.measure_run(run, protocol=protocol).measurement
        numbers[data] = f"{times[data].time_ms:.3f} ms, {run.flops / times[data].time_ms / 1e9:.1f} TFLOP/s"
    watch = Stopwatch()
    independent = watch.time_ms(run, calls=4, repeats=3)
    watch.close()
    numbers["independent"] = f"{independent:.3f} ms"
    numbers["key"] = Protocol().key
    assert close_to(times["normal"].time_ms, independent, 0.03)
    assert Protocol().key.split("/")[1] == f"normal-{Protocol().data_seed}"


def burn(until: float) -> None:
    while time.monotonic() < until:
        random.random()


def t17(bench: Bench, numbers: Numbers) -> None:
    small = [{"BM": 32, "BN": 32, "BK": 16, "WM": 16, "WN": 32, "TM": 4, "TN": 4, "MINB": 0}, {}]
    runs = [bench.run(bench.candidate(64, changes=changes)) for changes in small]
    idle = [measured(bench, run) for run in runs]
    context = multiprocessing.get_context("spawn")
    load = [context.Process(target=burn, args=(time.monotonic() + 25,)) for _ in range(os.cpu_count() or 1)]
    for process in load:
        process.start()
    time.sleep(3)
    loaded = [measured(bench, run) for run in runs]
    for process in load:
        process.terminate()
        process.join()
    watch = Stopwatch()
    queued = [watch.time_ms(run, sets=1, calls=1000, repeats=3, graph=True) for run in runs]
    watch.close()
    warm = [bench.stages.measure_run(run, protocol=Protocol().warm()).measurement.time_ms for run in runs]
    numbers["us"] = "; ".join(
        f"idle {a * 1e3:.2f} loaded {b * 1e3:.2f} warm {w * 1e3:.2f} queued batch (warm) {c * 1e3:.2f}"
        for a, b, c, w in zip(idle, loaded, queued, warm, strict=True)
    )
    assert all(close_to(b, a, 0.10) for a, b in zip(idle, loaded, strict=True))
    assert all(close_to(w, c, 0.10) for w, c in zip(warm, queued, strict=True))
    assert idle.index(min(idle)) == loaded.index(min(loaded))


def t56(bench: Bench, numbers: Numbers) -> None:
    for size in (256, 1024, 4096):
        problem = make_problem(bench.spec, size)
        run = bench.run(bench.candidate(size))
        first = bench.stages.baseline(bench.spec, problem)
        together = bench.stages.compare_runs([run], vendor=True)
        second = bench.stages.baseline(bench.spec, problem)
        assert first is not None
        assert second is not None
        times = [first.measurement.time_ms, together[1].measurement.time_ms, second.measurement.time_ms]
        ours = together[0].measurement
        numbers[f"{size}"] = (
            f"cuBLAS {times[0]:.5f} {times[1]:.5f} {times[2]:.5f} ms, A/A {times[2] / times[0]:.3f} "
            f"{times[1] / times[0]:.3f}; default kernel {ours.time_ms:.5f} ms = "
            f"{times[1] / ours.time_ms:.3f} of cuBLAS"
        )
        numbers["how"] = first.notes[0]
        assert close_to(times[2], times[0], 0.02), numbers
        assert close_to(times[1], times[0], 0.02), numbers


# --- resources


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


def load_case(bench: Bench, numbers: Numbers) -> None:
    """`autotune.load` on arrays of CuPy and PyTorch: packed, views of larger arrays, alpha, beta, odd sizes."""
    import cupy

    import autotune

    with tempfile.TemporaryDirectory() as folder:
        sgemm = autotune.load("sgemm", db=Path(folder) / "empty.sqlite")
        generator = cupy.random.default_rng(3)

        def normal(rows: int, columns: int) -> Any:
            return generator.standard_normal((rows, columns), dtype=cupy.float32)

        worst = 0.0
        for m, n, k in ((256, 512, 128), (129, 257, 65), (1, 1, 7), (33, 5, 0)):
            a, b = normal(m, k + 3)[:, 1 : k + 1], normal(k + 1, n)[:k]
            c = normal(m, n + 5)[:, 2 : n + 2]
            plain = sgemm(a, b)
            expected = a.astype(cupy.float64) @ b.astype(cupy.float64)
            worst = max(worst, float(cupy.abs(plain - expected).max()))
            wanted = 2.0 * expected + 0.5 * c
            assert sgemm(a, b, out=c, alpha=2.0, beta=0.5) is c
            worst = max(worst, float(cupy.abs(c - wanted).max()))
        numbers["worst error"] = worst
        assert worst < 1e-3
        try:
            import torch
        except ImportError:
            raise NotChecked("PyTorch arrays: PyTorch is not here") from None
        left, right = torch.randn(300, 200, device="cuda"), torch.randn(200, 100, device="cuda")
        product = sgemm(left, right)
        numbers["torch"] = float((product.double() - left.double() @ right.double()).abs().max())
        assert isinstance(product, torch.Tensor)
        assert numbers["torch"] < 1e-3  # type: ignore[operator]


def find_nvcc() -> str | None:
    import shutil

    return shutil.which("nvcc") or next(
        (str(path) for path in (Path("/usr/local/cuda/bin/nvcc"),) if path.exists()), None
    )


# --- whole studies


def trouble(bench: Bench, numbers: Numbers) -> None:
    """20 trials, four of them trouble; killed in the middle, then resumed."""
    from autotune.store import RecordQuery, open_store

    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "trouble.sqlite"
        command = [sys.executable, __file__, str(database)]
        search_path = os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
        environment = {**os.environ, "PYTHONPATH": search_path}
        child = subprocess.Popen(command, cwd=ROOT, env=environment)
        deadline = time.monotonic() + 60
        while stored(database) < 7 and child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        child.send_signal(signal.SIGKILL)
        child.wait()
        at_kill = stored(database)
        done = subprocess.run(command, cwd=ROOT, env=environment, timeout=100, check=False)
        with open_store(database) as store:
            records = [record for record in store.records(RecordQuery()) if record.round == "search"]
        numbers["stored when killed"] = at_kill
        by_config = Counter(record.config.key for record in records)
        reasons = {
            r.config["VARIANT"]: f"{r.outcome.status}: {r.outcome.reason}"
            for r in records
            if r.outcome.reason
        }
        numbers["failures"] = reasons
        timed = [record for record in records if record.outcome.status.timed]
        numbers["timed"] = len(timed)
        assert done.returncode == 0
        assert at_kill >= 7
        assert len(by_config) == 20
        assert max(by_config.values()) == 1
        assert len(timed) == 16
        assert all(record.outcome.accuracy is not None for record in timed)
        statuses = {r.config["VARIANT"]: r.outcome.status for r in records if not r.outcome.status.timed}
        assert statuses == {
            3: Status.TIMEOUT,
            8: Status.CRASHED,
            12: Status.WRONG_RESULT,
            16: Status.LAUNCH_ERROR,
        }, statuses


def stored(database: Path) -> int:
    import sqlite3

    if not database.exists():
        return 0
    try:
        with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
            return int(connection.execute("select count(*) from autotune_trials").fetchone()[0])
    except sqlite3.Error:
        return 0


def trouble_study(database: Path) -> None:
    """The study itself, for the process that gets killed."""
    from autotune.spec.load import load_spec
    from autotune.store import open_store
    from autotune.study.request import StudyRequest
    from autotune.study.study import run_study

    with Bench.open() as bench, open_store(database) as store:
        spec = load_spec("trouble", [DATA])
        bench.stages.protocol = dataclasses.replace(QUICK, run_limit_s=3.0)
        request = StudyRequest(
            spec=spec,
            gpu=bench.gpu.spec,
            problem=make_problem(spec, 2**20),
            device=bench.gpu.identity,
            environment=bench.gpu.environment,
            study="trouble",
            protocol=bench.stages.protocol,
            strategy="exhaustive",
            board=bench.gpu.uuid,
        )
        run_study(request, bench.stages, store)


CASES = (
    Case("T02", "NaN in C with beta zero; NaN results and stray writes are rejected", 90, t02),
    Case("T03", "K=0, alpha=0 with NaN, empty outputs", 60, t03),
    Case("T05", "leading dimensions and offsets; the winner's thorough check", 120, t05),
    Case("T06", "summation orders pass, a lost K-slice fails", 90, t06),
    Case("T07", "an illegal address as 5th of 20", 90, t07),
    Case("T09", "no measurement before a killed kernel is gone", 60, t09),
    Case("T12", "600 trials, a third failing: memory stays", 60, t12),
    Case("T13", "cold ranking against an independent one", 40, t13),
    Case("T14", "random data by default; zeros and ones beside it", 60, t14),
    Case("T17", "short kernels under host load", 70, t17),
    Case("T20", "registers and launch bounds", 40, t20),
    Case("T29", "legality against the truth", 150, t29),
    Case("T41_T42", "exported headers compile", 110, t41_t42),
    Case("T43", "entries by name from both compilers", 60, t43),
    Case("T56", "A/A test of the vendor's routine", 60, t56),
    Case("T60", "watchdog hint; the reference in steps", 60, t60),
    Case("load", "the Python callable on CuPy and PyTorch arrays", 60, load_case),
    Case("trouble", "20 trials with four troubles, killed and resumed", 170, trouble),
)

if __name__ == "__main__":
    trouble_study(Path(sys.argv[1]))

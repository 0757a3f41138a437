"""GPU cases about times."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import random
import time

from bench import Bench, Stopwatch
from case import Numbers, close_to, measured

from autotune.device.messages import CUBLAS
from autotune.problems import make_problem
from autotune.protocol import Protocol


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
    # A large copy streams as fast from memory as noise allows; the loads of a tiny product only wait.
    tiny = bench.run(bench.candidate(64))
    waits = measured(bench, tiny)
    hits = bench.stages.measure_run(tiny, protocol=Protocol().warm()).measurement.time_ms
    numbers["64x64x64"] = f"cold {waits * 1e3:.2f} us, warm {hits * 1e3:.2f} us"
    assert hits < waits
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
        twice = bench.stages.compare_runs([run], routines=(CUBLAS, CUBLAS))
        same = twice[2].measurement.time_ms / twice[1].measurement.time_ms
        numbers[f"{size}, twice in turn"] = f"{same:.4f}"
        assert close_to(same, 1.0, 0.02), numbers
        assert close_to(times[2], times[0], 0.02), numbers
        assert close_to(times[1], times[0], 0.02), numbers

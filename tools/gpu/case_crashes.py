"""GPU cases about kernels that crash, hang or fail, and what is left of the others."""

from __future__ import annotations

import dataclasses
import re
import time
from collections import Counter

from bench import QUICK, Bench
from case import Numbers, close_to, failure_of, measured

from autotune.candidate import Candidate
from autotune.errors import StageFailure
from autotune.problems import make_problem
from autotune.protocol import Protocol
from autotune.records import Status


def t07(bench: Bench, numbers: Numbers) -> None:
    with bench.protocol(QUICK):
        runs = [
            bench.run(Candidate(bench.spec, bench.gpu.spec, make_problem(bench.spec, 512), config))
            for config in bench.configs(512, 19)
        ]
        # The shorter of two medians: what happens on the host now and then makes a median longer, never shorter.
        alone = [
            min(pair)
            for pair in zip(*([measured(bench, run) for run in runs] for _ in range(2)), strict=True)
        ]
        with_bad = []
        for number, run in enumerate(runs):
            if number == 4:
                bad = bench.mutant("illegal_address", 512)
                failure = failure_of(lambda b=bad: bench.stages.verify_run(b), Status.CRASHED)
                numbers["bad one"] = failure.reason
                assert re.search("illegal", failure.reason, re.IGNORECASE)
            with_bad.append(min(measured(bench, run) for _ in range(2)))
    off = [abs(b / a - 1) for a, b in zip(alone, with_bad, strict=True)]
    numbers["times differ by at most"] = f"{max(off):.1%}, median {sorted(off)[9]:.2%}"
    assert max(off) < 0.05


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

"""A misbehaving compiler costs one trial; the pool, its processes and the caller are unharmed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, wait
from pathlib import Path

import psutil
import pytest

from autotune.candidate import Source
from autotune.compile.compiler import EXCERPT_CHARS
from autotune.compile.pool import CompilePool, default_workers
from autotune.errors import AutotuneError, StageFailure
from autotune.records import Status

OBEY = "fakes.compilers:obey"
MIB = 1 << 20


def source(text: str) -> Source:
    return Source(text, "k", Path("k.cu.j2"))


def gone(pid: int, within_s: float = 5.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CompilePool]:
    cache = tmp_path_factory.mktemp("cache")
    with CompilePool(workers=1, timeout_s=20, memory_bytes=256 * MIB, cache=cache, compiler=OBEY) as opened:
        yield opened


def failure(pool: CompilePool, text: str) -> StageFailure:
    """How the trial of one bad config ends; a good one right after it on the same worker must work."""
    bad, good = pool.submit(source(text), "sm_86"), pool.submit(source("fine"), "sm_86")
    with pytest.raises(StageFailure) as failed:
        bad.result(60)
    assert good.result(60).arch == "sm_86"
    assert len(failed.value.reason) < 2 * EXCERPT_CHARS + 500
    return failed.value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("abort", "SIGABRT"),  # (a)
        ("segv", "SIGSEGV"),  # (b)
        ("raise", "ZeroDivisionError"),  # (c)
        ("odd", "OddError"),
        ("unpicklable", "UnpicklableError"),
        ("exit", "exited with code 3"),
        ("nonsense", "gave int"),
        ("flood", "flooded"),  # (d)
        ("flood-and-die", "exited with code 1; it printed"),
    ],
)
def test_T11_a_crash_or_flood_is_one_failed_trial_with_a_bounded_excerpt(
    pool: CompilePool, text: str, says: str
) -> None:
    failed = failure(pool, text)
    assert failed.status is Status.COMPILE_ERROR
    assert says in failed.reason


def test_T11_the_rest_of_the_run_is_unharmed(tmp_path: Path) -> None:
    texts = ["fine", "abort", "fine", "segv", "raise", "fine", "flood-and-die", "fine"]
    with CompilePool(workers=2, cache=tmp_path, compiler=OBEY) as pool:
        futures = [pool.submit(source(text), "sm_86") for text in texts]
        wait(futures, 60)
        assert pool.busy == 0
    for text, future in zip(texts, futures, strict=True):
        assert (future.exception() is None) == (text == "fine")


def test_T24_a_compiler_that_sleeps_forever_is_stopped_with_its_children(tmp_path: Path) -> None:
    pids_file = tmp_path / "pids"
    with CompilePool(workers=1, timeout_s=1.5, cache=tmp_path, compiler=OBEY) as pool:
        started = time.monotonic()
        failed = failure(pool, f"spawn {pids_file}")
        assert time.monotonic() - started < 10
    assert failed.status is Status.COMPILE_TIMEOUT
    assert "1.5 s" in failed.reason
    pids = [int(word) for word in pids_file.read_text().split()]
    assert len(pids) == 3
    assert all(gone(pid) for pid in pids)


@pytest.mark.parametrize("text", ["allocate", "child-allocates", "at-once"])
def test_T24_memory_without_end_is_stopped(pool: CompilePool, text: str) -> None:
    assert failure(pool, text).status is Status.COMPILE_OOM


def test_other_errors_keep_their_kind(tmp_path: Path) -> None:
    with CompilePool(workers=1, cache=tmp_path) as pool, pytest.raises(AutotuneError) as e:
        pool.submit(source("x"), "compute_86").result(60)
    assert not isinstance(e.value, StageFailure)
    assert "compute_86" in str(e.value)


def test_close_is_quick_and_cancels_what_waits(tmp_path: Path) -> None:
    pool = CompilePool(workers=1, cache=tmp_path, compiler=OBEY)
    futures = [pool.submit(source("sleep 600"), "sm_86") for _ in range(3)]
    time.sleep(0.5)
    started = time.monotonic()
    pool.close()
    pool.close()
    assert time.monotonic() - started < 5
    for future in futures:
        with pytest.raises(CancelledError):
            future.result(1)
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(source("fine"), "sm_86")
    assert pool.busy == 0


@pytest.mark.parametrize("guarded", [True, False], ids=["closed", "abandoned"])
def test_an_interrupt_ends_a_script_without_a_guard_and_leaves_nothing(tmp_path: Path, guarded: bool) -> None:
    pids_file = tmp_path / "pids"
    program = f"""
from pathlib import Path
from autotune.candidate import Source
from autotune.compile.pool import CompilePool
pool = CompilePool(workers=2, cache=Path({str(tmp_path)!r}), compiler={OBEY!r})
future = pool.submit(Source("spawn {pids_file}", "k", Path("k.cu.j2")), "sm_86")
try:
    future.result()
finally:
    if {guarded}: pool.close()
"""
    tests = Path(__file__).parent
    parent = subprocess.Popen(
        [sys.executable, "-"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tests), str(tests.parent)])},
    )
    assert parent.stdin is not None
    parent.stdin.write(program)
    parent.stdin.close()
    deadline = time.monotonic() + 30
    while (
        not (pids_file.exists() and len(pids_file.read_text().split()) == 3) and time.monotonic() < deadline
    ):
        time.sleep(0.02)
    worker, near, far = (int(word) for word in pids_file.read_text().split())
    started = time.monotonic()
    parent.send_signal(signal.SIGINT)
    parent.wait(20)
    assert time.monotonic() - started < 5
    assert parent.stderr is not None
    assert "KeyboardInterrupt" in parent.stderr.read()
    assert gone(worker)
    assert gone(near)
    if guarded:
        assert gone(far)
    else:
        os.kill(far, signal.SIGKILL)


def test_default_workers_fit_the_machine() -> None:
    assert 1 <= default_workers() <= len(os.sched_getaffinity(0))

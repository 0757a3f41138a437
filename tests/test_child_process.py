"""A child that hangs, crashes, raises, floods or hoards is contained, and nothing of it is left."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from autotune.child.errors import ChildDied, ChildRaised, ChildTimeout, ChildTooBig
from autotune.child.process import OUTPUT_TAIL_BYTES, ChildProcess
from autotune.errors import InputError

MODULE = "fakes.child_jobs"
MIB = 1 << 20


@pytest.fixture
def child() -> Iterator[ChildProcess]:
    process = ChildProcess(MODULE, ["some", "words"])
    yield process
    process.close()


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


def test_replies_of_any_size_and_arguments(child: ChildProcess) -> None:
    big = os.urandom(3 * MIB)
    assert child.request(("echo", big), 20) == big
    assert child.request(("args",), 20) == ["some", "words"]
    assert child.alive


def test_what_the_child_prints_never_disturbs_the_replies(child: ChildProcess) -> None:
    assert child.request(("print", 10 * MIB), 30) == "printed"  # 50 MB
    assert child.request(("echo", 1), 20) == 1


def test_errors_cross_with_their_data_and_the_child_lives_on(child: ChildProcess) -> None:
    with pytest.raises(InputError) as wrong:
        child.request(("input error",), 20)
    assert (wrong.value.where, wrong.value.nearest) == ("here.yaml:1", "that")
    with pytest.raises(ChildRaised, match="ZeroDivisionError: boom") as raised:
        child.request(("raise",), 20)
    assert "child_jobs.py" in raised.value.trace
    with pytest.raises(ChildRaised, match="pickle"):
        child.request(("unpicklable",), 20)
    assert child.request(("echo", 2), 20) == 2


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGSEGV, signal.SIGKILL])
def test_a_crash_names_its_signal_and_keeps_the_last_words(
    child: ChildProcess, number: signal.Signals
) -> None:
    with pytest.raises(ChildDied, match=number.name) as died:
        child.request(("signal", number), 20)
    assert "last words" in died.value.output
    assert len(died.value.output) <= OUTPUT_TAIL_BYTES
    assert not child.alive
    child.restart()
    assert child.request(("echo", 3), 20) == 3


def test_an_exit_names_its_code_and_later_requests_fail_cleanly(child: ChildProcess) -> None:
    with pytest.raises(ChildDied, match="exited with code 7"):
        child.request(("exit", 7), 20)
    with pytest.raises(ChildDied, match="exited with code 7"):
        child.request(("echo", os.urandom(MIB)), 20)


def test_a_child_whose_module_is_missing_says_so() -> None:
    process = ChildProcess("fakes.no_such_module")
    with pytest.raises(ChildDied, match="exited with code 1") as died:
        process.request(("echo", 1), 20)
    assert "no_such_module" in died.value.output
    process.close()


def test_a_hang_is_cut_off_with_all_its_children(child: ChildProcess) -> None:
    near, far = child.request(("children",), 20)  # type: ignore[misc]
    started = time.monotonic()
    with pytest.raises(ChildTimeout, match=r"within 0\.5 s"):
        child.request(("deaf",), 0.5)
    assert time.monotonic() - started < 5
    assert gone(child.pid)
    assert gone(near)
    assert gone(far)


def test_memory_without_end_is_cut_off() -> None:
    process = ChildProcess(MODULE, memory_bytes=200 * MIB)
    with pytest.raises(ChildTooBig) as too_big:
        process.request(("allocate",), 30)
    assert too_big.value.limit_bytes < too_big.value.resident_bytes
    assert not process.alive
    process.close()


def test_failures_pickle_with_their_data() -> None:
    for error in (
        ChildTimeout("x", 2.0),
        ChildDied("x", -11),
        ChildTooBig("x", 3, 2),
        ChildRaised("x", "K", "m", "t"),
    ):
        copy = pickle.loads(pickle.dumps(error))
        assert (str(copy), copy.output) == (str(error), "x")


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_nothing_outlives_the_parent_however_it_ends(end: signal.Signals) -> None:
    # The program comes on standard input: no file, no __main__ guard.
    program = f"""
import threading, time
from autotune.child.process import ChildProcess
child = ChildProcess({MODULE!r})
near, far = child.request(("children",), 60)
print(child.pid, near, far, flush=True)
threading.Thread(target=child.request, args=(("sleep", 600), 600), daemon=True).start()
time.sleep(600)
"""
    path = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parent.parent)])
    parent = subprocess.Popen(
        [sys.executable, "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    parent.stdin.write(program)
    parent.stdin.close()
    child, near, far = (int(word) for word in parent.stdout.readline().split())
    parent.send_signal(end)
    parent.wait(20)
    try:
        assert gone(child)
        assert gone(near)
    finally:
        os.kill(far, signal.SIGKILL)  # it had left the group: only a living parent can find it

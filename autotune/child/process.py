"""Runs work that may hang, crash or eat all memory in a process of its own, and gets rid of all of it.

The parent holds a `ChildProcess`; the child's module calls `autotune.child.serve.serve(handle)`. Messages
are framed pickles on two private pipes, so whatever the child or its libraries print cannot disturb them. The
child is a fresh interpreter (no fork, no copy of the parent's `__main__`), so it works from a script without
a guard, from a notebook or standard input, and its CUDA state is its own.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.child.errors import ChildDied, ChildTimeout, ChildTooBig
from autotune.child.serve import HEADER, Raised

if TYPE_CHECKING:
    import psutil

START_LIMIT_S = 120.0
"""How long an interpreter may take to start and import its module; not counted in a request's own limit."""
READ_BYTES = 1 << 20
OUTPUT_TAIL_BYTES = 16 * 1024
"""What is kept of the text a child prints."""
END_LIMIT_S = 5.0
"""How long a killed child is waited for."""
POLL_S = 0.05
"""How often a waiting parent looks whether the child lives."""
MEMORY_EVERY_S = 0.2
"""How often it looks how much memory the child has: with many children, each look takes the others' time."""

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ChildProcess:
    """One long-lived child with its pipes. One thread makes requests; any thread may `kill`."""

    def __init__(
        self,
        module: str,
        args: Sequence[str] = (),
        *,
        memory_bytes: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Starts `python -m module`, which has to call `serve`; `env` adds to the parent's environment."""
        self.module = module
        self.args = tuple(args)
        self.memory_bytes = memory_bytes
        self.env = dict(env or {})
        self._kill_lock = threading.Lock()
        self._process: subprocess.Popen[bytes]
        self._output: _OutputTail
        self._requests: int
        self._replies: int
        self._lifeline: int
        self._ready: bool
        self._killed: bool
        self._start()

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        """Process id, which is also the id of its process group and session."""
        return self._process.pid

    def request(self, message: object, timeout_s: float) -> object:
        """The child's reply to one message.

        Raises the `AutotuneError` that the handler raised, or a `ChildFailure`. After `ChildTimeout`,
        `ChildTooBig` and `ChildDied` the whole process tree is gone and `restart` is due.
        """
        payload = pickle.dumps(message)
        try:
            if not self._ready:
                self._receive(time.monotonic() + START_LIMIT_S, START_LIMIT_S)
                self._ready = True
            self._output.clear()
            deadline = time.monotonic() + timeout_s
            self._send(payload, deadline, timeout_s)
            reply = pickle.loads(self._receive(deadline, timeout_s))
        except (
            BaseException
        ):  # also an interrupt: it leaves a reply under way that the next request would take for its own
            self.kill()
            raise
        if isinstance(reply, Raised):
            raise reply.error
        return reply

    def kill(self) -> None:
        """Ends the child and all its descendants at once; harmless when they are gone already."""
        with self._kill_lock:
            if self._killed:  # by now the process id may belong to somebody else
                return
            self._killed = True
            strays = _descendants(self.pid)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            _kill_all(strays)
            # A process that hangs inside a driver dies only when the driver lets go of it: not waited for.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_LIMIT_S)

    def restart(self) -> None:
        """Replaces the child by a fresh one."""
        self.close()
        self._start()

    def close(self) -> None:
        """Ends the child and releases its pipes; not to be called while another thread makes a request."""
        self.kill()
        self._output.join()
        for descriptor in (self._requests, self._replies, self._lifeline):
            os.close(descriptor)
        self._requests = self._replies = self._lifeline = -1

    def _start(self) -> None:
        child_requests, self._requests = os.pipe()
        self._replies, child_replies = os.pipe()
        child_lifeline, self._lifeline = os.pipe()
        ends = (child_requests, child_replies, child_lifeline)
        # The child finds what the parent finds, wherever either was started; -P keeps the current folder out.
        path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                self.module,
                *map(str, ends),
                str(self.memory_bytes or 0),
                *self.args,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=ends,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **self.env},
        )
        for descriptor in ends:
            os.close(descriptor)
        os.set_blocking(self._requests, False)
        os.set_blocking(self._replies, False)
        self._ready = False
        self._killed = False
        self._weigh_at = 0.0
        self._output = _OutputTail(self._process)

    def _send(self, payload: bytes, deadline: float, timeout_s: float) -> None:
        rest = memoryview(HEADER.pack(len(payload)) + payload)
        while rest:
            _, writable, _ = select.select([], [self._requests], [], POLL_S)
            if writable:
                try:
                    rest = rest[os.write(self._requests, rest) :]
                except BlockingIOError:
                    pass
                except BrokenPipeError:
                    self._raise_died()
            self._look(deadline, timeout_s)

    def _receive(self, deadline: float, timeout_s: float) -> bytes:
        received = bytearray()
        while True:
            readable, _, _ = select.select([self._replies], [], [], POLL_S)
            if not readable:
                self._look(deadline, timeout_s)
                continue
            # There is one reply to a request: all that comes belongs to it.
            chunk = os.read(self._replies, READ_BYTES)
            if not chunk:
                self._raise_died()
            received += chunk
            if len(received) >= HEADER.size:
                (length,) = HEADER.unpack_from(received)
                if len(received) >= HEADER.size + length:
                    return bytes(received[HEADER.size :])

    def _look(self, deadline: float, timeout_s: float) -> None:
        """Raises where waiting on is useless: the child is gone, too big, or late."""
        if not self.alive and not select.select([self._replies], [], [], 0)[0]:
            self._raise_died()
        now = time.monotonic()
        if self.memory_bytes is not None and now >= self._weigh_at:
            self._weigh_at = now + MEMORY_EVERY_S
            resident = _resident_bytes(self.pid)
            if resident > self.memory_bytes:
                self.kill()
                raise ChildTooBig(self._output.text(), resident, self.memory_bytes)
        if now > deadline:
            self.kill()
            raise ChildTimeout(self._output.text(), timeout_s)

    def _raise_died(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)  # its pipes close a moment before its exit code is there
        self.kill()
        self._output.join()
        raise ChildDied(self._output.text(), self._process.poll() or 0)


class _OutputTail:
    """Drains what a child prints, so that it never blocks on a full pipe, and keeps the end of it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        self._stream = process.stdout
        self._tail = bytearray()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._drain, name=f"output of {process.pid}", daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        with self._stream as stream:
            while chunk := os.read(stream.fileno(), 1 << 16):
                with self._lock:
                    self._tail += chunk
                    del self._tail[:-OUTPUT_TAIL_BYTES]

    def clear(self) -> None:
        with self._lock:
            self._tail.clear()

    def text(self) -> str:
        with self._lock:
            return self._tail.decode(errors="replace")

    def join(self) -> None:
        """Waits, briefly, for the last words of a process that has ended."""
        self._thread.join(timeout=0.5)


def _descendants(pid: int) -> list[psutil.Process]:
    """All processes below `pid`, also those that left its process group."""
    import psutil

    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.Error:
        return []


def _kill_all(processes: Sequence[psutil.Process]) -> None:
    import psutil

    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()


def _resident_bytes(pid: int) -> int:
    """Resident memory of the process and its descendants; those that end meanwhile count nothing.

    Follows the kernel's own lists of children: asking every process of the machine for its parent takes longer.
    """
    total, family = 0, [pid]
    while family:
        number = family.pop()
        with contextlib.suppress(OSError, IndexError, ValueError):
            total += int(Path(f"/proc/{number}/statm").read_text().split()[1]) * _PAGE_BYTES
            for children in Path(f"/proc/{number}/task").glob("*/children"):
                family += map(int, children.read_text().split())
    return total

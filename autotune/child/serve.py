"""The child's side of `autotune.child.process`: reads requests, answers them, dies with its parent."""

from __future__ import annotations

import faulthandler
import fcntl
import os
import pickle
import resource
import select
import signal
import struct
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from autotune.child.errors import ChildRaised
from autotune.errors import AutotuneError

HEADER = struct.Struct("<Q")
"""Stands before each pickled message: its length in bytes."""
HARD_LIMIT_FACTOR = 1.5
"""From this multiple of the memory limit on the kernel refuses memory, should the child outrun its watch."""
_TEXT_LIMIT = 16 * 1024


@dataclass(frozen=True)
class Ready:
    """The child's first message: it has started and waits for requests."""


@dataclass(frozen=True)
class Raised:
    """A reply that is an error."""

    error: AutotuneError


def serve(handle: Callable[[object], object], started: Callable[[list[str]], None] | None = None) -> None:
    """The child's main loop: a reply for each request until the parent goes away.

    `started` gets the extra arguments of `ChildProcess` once, before the first request. An `AutotuneError`
    from `handle` is raised again in the parent; anything else becomes `ChildRaised` there.
    """
    requests, replies, lifeline, memory_bytes = map(int, sys.argv[1:5])
    for descriptor in (requests, replies, lifeline):
        os.set_inheritable(descriptor, False)
    _die_with_parent(lifeline)
    faulthandler.enable()
    if memory_bytes:
        limit = int(memory_bytes * HARD_LIMIT_FACTOR)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if started is not None:
        started(sys.argv[5:])
    _write_frame(replies, pickle.dumps(Ready()))
    while (message := _read_frame(requests)) is not None:
        _write_frame(replies, _reply(handle, message))


def _reply(handle: Callable[[object], object], message: bytes) -> bytes:
    try:
        return pickle.dumps(handle(pickle.loads(message)))
    except AutotuneError as error:
        return pickle.dumps(Raised(error))
    except Exception as error:  # noqa: BLE001  the worker boundary
        trace = traceback.format_exc()[-_TEXT_LIMIT:]
        text = _bounded_text(error)
        return pickle.dumps(Raised(ChildRaised(kind=type(error).__name__, message=text, trace=trace)))


def _bounded_text(error: Exception) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  an exception whose own __str__ fails still is one failed request
        text = "(its text cannot be read)"
    return text[-_TEXT_LIMIT:]


def _die_with_parent(lifeline: int) -> None:
    """Lets the kernel kill this process group when the parent's end of the pipe closes, however it ended.

    Unlike a thread that waits for the end of file, this needs no interpreter lock; unlike `PR_SET_PDEATHSIG`,
    it does not fire when only the parent's *thread* that started us ends.
    """
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([lifeline], [], [], 0)[0]:  # it closed before we were listening
        os.killpg(0, signal.SIGKILL)


def _read_frame(descriptor: int) -> bytes | None:
    header = _read_exactly(descriptor, HEADER.size)
    return None if header is None else _read_exactly(descriptor, HEADER.unpack(header)[0])


def _read_exactly(descriptor: int, count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        chunk = os.read(descriptor, min(count - len(data), 1 << 20))
        if not chunk:
            return None
        data += chunk
    return bytes(data)


def _write_frame(descriptor: int, payload: bytes) -> None:
    rest = memoryview(HEADER.pack(len(payload)) + payload)
    while rest:
        rest = rest[os.write(descriptor, rest) :]

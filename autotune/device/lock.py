"""One GPU, one measurement at a time: a lock per board across all processes of the machine."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def device_lock(board: str, folder: Path | None = None) -> Iterator[None]:
    """Waits until no other process or thread uses this board, and keeps them off meanwhile.

    The system frees the lock of a process that ends, however it ends. All users of a machine share it.
    """
    path = (
        folder or Path(tempfile.gettempdir())
    ) / f"autotune-{board.replace(':', '-').replace('.', '-')}.lock"
    descriptor = _open(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except PermissionError:  # another user's file in a sticky folder may be opened, but not with O_CREAT
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

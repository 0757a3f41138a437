"""Where finished records wait while the database does not take them: JSON lines in the user's data folder.

Several processes may share the file. Whoever appends or takes holds its lock, and a taker removes the file
before letting go, so that nothing is appended to a file that has just been taken in.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from autotune import paths
from autotune.errors import StoreError
from autotune.records import TrialRecord
from autotune.store.jsonl import header_line, parse_records, record_line


class Spill:
    """The waiting records of one database, seen from one host."""

    def __init__(self, database: str, host: str) -> None:
        self._digest = hashlib.sha256(database.encode()).hexdigest()[:16]
        self.path = paths.user_data_dir() / "spill" / f"{self._digest}-{host}.jsonl"
        """Where this host's records go; files of other hosts that share the folder are taken in as well."""

    def append(self, records: Sequence[TrialRecord]) -> None:
        """Keeps the records, on the disk when this returns; raises StoreError where even that fails."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(self.path) as file:
                if not _whole_lines(file):
                    file.write(header_line().encode())
                file.write("".join(record_line(record) for record in records).encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StoreError(f"{self.path}: records cannot be kept here either: {error.strerror}") from error

    def take(self, add: Callable[[list[TrialRecord]], object]) -> int:
        """Hands all waiting records to `add`, then removes them; what `add` raises leaves them in place."""
        taken = 0
        for path in sorted(self.path.parent.glob(f"{self._digest}-*.jsonl")):
            with _locked(path) as file:
                text = _whole_lines(file).decode()
                records = parse_records(text, str(path)) if text else []
                if records:
                    add(records)
                path.unlink(missing_ok=True)
                taken += len(records)
        return taken


@contextmanager
def _locked(path: Path) -> Iterator[BinaryIO]:
    while True:
        with path.open("ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            # It may have been taken in and removed between opening and locking.
            if path.exists() and os.fstat(file.fileno()).st_ino == path.stat().st_ino:
                yield file
                return


def _whole_lines(file: BinaryIO) -> bytes:
    """The lines of the file, cut off behind the last whole one.

    A process killed while it appended leaves half a line, of a record that was never reported as kept.
    """
    file.seek(0)
    content = file.read()
    whole = content[: content.rfind(b"\n") + 1]
    file.truncate(len(whole))
    return whole

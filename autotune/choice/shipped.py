"""Shipped studies: recorded results that come with the package or lie in a project folder. Only ever read.

studies/<gpu table>/<kernel>/*.jsonl[.gz]
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from glob import escape
from pathlib import Path

from autotune import paths
from autotune.errors import StoreError
from autotune.records import TrialRecord
from autotune.store.jsonl import read_records


def shipped_records(kernel: str, device_key: str, folders: Sequence[Path] = ()) -> list[TrialRecord]:
    """All records for a kernel on a kind of device, baselines included; project folders come first.

    A record that is in several files comes once. Raises StoreError, with file and line, for a damaged file.
    """
    table = device_key.split("/")[0]
    found: dict[str, TrialRecord] = {}
    for path in study_files([f"{escape(table)}/{kernel}/*.jsonl*"], folders):
        for record in records_in(path):
            if record.device.key == device_key:
                found.setdefault(record.uid, record)
    return list(found.values())


def study_files(patterns: Sequence[str], folders: Sequence[Path] = ()) -> list[Path]:
    """Files of records below the `studies` of project folders, then below the shipped ones; each once."""
    # Whose project is the program's own checkout has one folder for both.
    roots: dict[Path, Path] = {}
    for root in [*(folder / "studies" for folder in folders), paths.shipped("studies")]:
        roots.setdefault(root.resolve(), root)
    found = [path for root in roots.values() for pattern in patterns for path in sorted(root.glob(pattern))]
    return [path for path in found if path.suffix in (".jsonl", ".gz")]


def records_in(path: Path) -> tuple[TrialRecord, ...]:
    """All the records of a file, read once while it stays as it is: asking for the best of a whole suite asks often.

    Raises StoreError, with file and line, for a damaged file.
    """
    try:
        state = path.stat()
    except OSError as error:
        raise StoreError(f"{path}: cannot be read as records: {error.strerror}") from error
    return _records_in(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=32)
def _records_in(path: Path, changed_ns: int, size_bytes: int) -> tuple[TrialRecord, ...]:
    return tuple(read_records(path))

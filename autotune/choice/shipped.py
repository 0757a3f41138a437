"""Shipped studies: recorded results that come with the package or lie in a project folder. Only ever read.

studies/<gpu table>/<kernel>/*.jsonl[.gz]
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from autotune import paths
from autotune.records import TrialRecord
from autotune.store.jsonl import read_records


def shipped_records(kernel: str, device_key: str, folders: Sequence[Path] = ()) -> list[TrialRecord]:
    """All records for a kernel on a kind of device, baselines included; project folders come first.

    A record that is in several files comes once. Raises StoreError, with file and line, for a damaged file.
    """
    table = device_key.split("/")[0]
    found: dict[str, TrialRecord] = {}
    for root in [*(folder / "studies" for folder in folders), paths.shipped("studies")]:
        for path in sorted((root / table / kernel).glob("*.jsonl*")):
            if path.suffix not in (".jsonl", ".gz"):
                continue
            for record in _records_in(path, path.stat().st_mtime_ns):
                if record.device.key == device_key:
                    found.setdefault(record.uid, record)
    return list(found.values())


@lru_cache(maxsize=32)
def _records_in(path: Path, changed_ns: int) -> tuple[TrialRecord, ...]:
    """Read once while the file stays as it is: asking for the best of a whole suite asks often."""
    return tuple(read_records(path))

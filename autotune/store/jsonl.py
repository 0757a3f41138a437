"""Records as lines of JSON, for exchange and for shipped studies; gzip where the name ends in `.gz`.

The first line is a header with the version of the format; each further line is one record.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterable
from pathlib import Path

from autotune import __version__
from autotune.errors import StoreError
from autotune.records import TrialRecord
from autotune.store.record_json import record_from_json, record_to_json

FORMAT = "autotune-records"
FORMAT_VERSION = 1
"""Raised whenever a line changes so that older programs could not read it."""


def header_line() -> str:
    """The first line of every file."""
    return json.dumps({"format": FORMAT, "version": FORMAT_VERSION, "autotune": __version__}) + "\n"


def record_line(record: TrialRecord) -> str:
    """One record as one line."""
    return json.dumps(record_to_json(record), separators=(",", ":"), allow_nan=False) + "\n"


def write_records(path: Path, records: Iterable[TrialRecord]) -> int:
    """Writes all the records and gives their number; an older file is replaced only when all are written."""
    count = 0
    lines = [header_line()]
    for record in records:
        lines.append(record_line(record))
        count += 1
    content = "".join(lines).encode()
    if path.suffix == ".gz":
        # No name and no time inside, so that equal records make equal files.
        content = gzip.compress(content, mtime=0)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise StoreError(f"{path}: cannot be written: {error.strerror}") from error
    return count


def read_records(path: Path) -> list[TrialRecord]:
    """All the records of a file; raises StoreError with file and line."""
    try:
        content = path.read_bytes()
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    except FileNotFoundError as error:
        raise StoreError(f"{path}: no such file") from error
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise StoreError(f"{path}: cannot be read as records: {error}") from error
    return parse_records(text, str(path))


def parse_records(text: str, where: str) -> list[TrialRecord]:
    """The records of a text with its header line; raises StoreError with the line."""
    lines = text.split("\n")
    _check_header(lines[0], where)
    records = []
    for number, line in enumerate(lines[1:], 2):
        if not line.strip():
            continue
        try:
            records.append(record_from_json(json.loads(line)))
        except (ValueError, RecursionError) as error:
            raise StoreError(f"{where}:{number}: not a line of JSON: {error}") from error
        except StoreError as error:
            raise StoreError(f"{where}:{number}: {error}") from error
    return records


def _check_header(line: str, where: str) -> None:
    try:
        header = json.loads(line)
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise StoreError(f'{where}:1: the first line must be the header {{"format": "{FORMAT}", ...}}')
    version = header.get("version")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise StoreError(
            f"{where}:1: written in format version {version}; this autotune {__version__} reads up to "
            f"{FORMAT_VERSION}. Update it: pip install --upgrade cuda-autotune"
        )

"""Reading another database, or a file of records, without changing it."""

from __future__ import annotations

import sqlite3
import tempfile
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from autotune.errors import InputError
from autotune.records import TrialRecord
from autotune.store.engine import Database, connect, store_error
from autotune.store.jsonl import read_records
from autotune.store.rows import Unpacker, select_records
from autotune.store.schema import copy_file, file_version, prepare, refuse_newer

SQLITE_START = b"SQLite format 3\0"
"""What every file of SQLite begins with."""


@dataclass(frozen=True)
class MergeReport:
    """What a merge did; records are the same where their `uid` is."""

    added: int
    already_there: int


def records_of(source: str | Path) -> list[TrialRecord]:
    """All the records of another database (of this or an older schema) or of an exported file."""
    if str(source).endswith((".jsonl", ".jsonl.gz")):
        return read_records(Path(source))
    database = Database.of(source)
    try:
        if database.path is None:
            return _read_all(database)
        if not database.path.is_file():
            raise InputError(f"no such database: {database.path}")
        if str(source).endswith((".json", ".json.gz")) and not _is_sqlite(database.path):
            raise InputError(
                f"{source} is neither a database nor a file that `autotune db export` wrote; if it is a cache file of "
                f"Kernel Tuner: autotune db import {source}"
            )
        found = file_version(database.path)
        refuse_newer(database, found)
        if found is None:
            raise InputError(f"{database.path} holds no records of autotune")
        # A copy may be migrated; the source stays as it is.
        with tempfile.TemporaryDirectory(prefix="autotune-merge-") as folder:
            copy = Path(folder) / "copy.sqlite"
            copy_file(database.path, copy)
            return _read_all(Database.file(copy))
    except (DBAPIError, sqlite3.Error) as error:
        raise store_error(database, error) from error


def _is_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(SQLITE_START)) == SQLITE_START


def _read_all(database: Database) -> list[TrialRecord]:
    engine = connect(database)
    try:
        prepare(database, engine)
        with engine.begin() as connection:
            rows = connection.execute(select_records()).all()
    finally:
        engine.dispose()
    unpacker = Unpacker()
    return [unpacker.record(row) for row in rows]

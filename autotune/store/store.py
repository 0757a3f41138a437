"""The store: opening a database, adding to it, asking it."""

from __future__ import annotations

import sqlite3
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeVar, cast

from sqlalchemy import Connection, Engine, Select, delete, func, select, text
from sqlalchemy.exc import DBAPIError

from autotune.errors import InputError, StoreError
from autotune.problem import Problem
from autotune.records import TrialRecord
from autotune.store.engine import Database, connect, lasting, retried, store_error
from autotune.store.hosts import (
    Host,
    StoreWarning,
    forget_writer,
    note_writer,
    refuse_second_host,
    warn_of_network,
)
from autotune.store.jsonl import read_records, write_records
from autotune.store.merge import MergeReport, records_of
from autotune.store.models import Base, DeviceRow, ProblemRow, TrialRow
from autotune.store.query import RecordQuery
from autotune.store.rows import (
    Unpacker,
    delete_unshared,
    insert_packed,
    pack,
    problem_of,
    select_records,
)
from autotune.store.schema import Migration, prepare
from autotune.store.spill import Spill

PATIENCE_S = 60.0
"""Passing storage errors are tried again this long before a record is kept elsewhere."""
OPEN_PATIENCE_S = 15.0
"""Likewise while opening, when a user is waiting and no result is at stake yet."""
SEEN_EVERY_S = 60.0
"""How often a writing process renews its note in the file."""
CONCURRENT_ROWS = 200
"""More rows than other writers of a server can have inserted and not yet committed."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class StoreInfo:
    """What a database holds."""

    database: str
    schema: str
    trials: int
    by_status: dict[str, int]
    by_study: dict[str, int]
    by_device: dict[str, int]
    size_bytes: int


def open_store(
    url: str | Path | None = None,
    *,
    patience_s: float = PATIENCE_S,
    migrate: bool = False,
    host: Host | None = None,
) -> Store:
    """The database of a URL or a path (None: the user's own), created, or migrated after a backup, as needed.

    `migrate` allows migrating PostgreSQL too. Raises StoreError for a database that is damaged, newer than
    this program or open on another host, and InputError for a name that is none.
    """
    database = Database.of(url)
    host = host or Host.current()
    network = database.path is not None and host.on_network(database.path)
    if network and database.path is not None:
        warn_of_network(host, database.path)
    engine = connect(database)
    try:
        # Write-ahead logging needs memory shared by all who have the file open, which a network cannot give.
        migration = retried(
            lambda: prepare(database, engine, journal="delete" if network else "wal", migrate_server=migrate),
            min(patience_s, OPEN_PATIENCE_S),
        )
        store = Store(database, engine, migration, host, patience_s)
        store.take_in()
    except (DBAPIError, sqlite3.Error) as error:
        engine.dispose()
        raise store_error(database, error) from error
    except OSError as error:
        engine.dispose()
        raise StoreError(f"{database}: {error.strerror}") from error
    except StoreError:
        engine.dispose()
        raise
    return store


class Store:
    """An open database of trial records, made by `open_store`; several threads may use it at once."""

    def __init__(
        self, database: Database, engine: Engine, migration: Migration, host: Host, patience_s: float
    ) -> None:
        self.database = database
        self.migration = migration
        """What opening did to the schema; `backup` is the copy made before migrating."""
        self._engine = engine
        self._host = host
        self._patience_s = patience_s
        self._spill = Spill(database.identity, host.name)
        self._spilled = False
        self._seen = float("-inf")
        self._file = database.file_id()
        if database.path is not None:
            with engine.begin() as connection:
                refuse_second_host(connection, host, database.path)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the database; the store cannot be used afterwards."""
        if self.database.path is not None and self._seen > float("-inf"):
            try:
                self._write_once(lambda connection: forget_writer(connection, self._host))
            except DBAPIError as error:
                # Only the note that we have the file open stays behind, and it expires.
                warnings.warn(f"{self.database}: {error.orig}", StoreWarning, stacklevel=2)
        self._engine.dispose()

    def add(self, record: TrialRecord) -> None:
        """Adds one record; on the disk when this returns. See `add_many`."""
        self.add_many([record])

    def add_many(self, records: Sequence[TrialRecord]) -> None:
        """Adds records, all or none; a record whose `uid` is there already is left as it is.

        Storage that fails for a while is tried again; if it goes on, the records are kept in a file in the
        user's data folder, with a StoreWarning, and taken in later. Raises StoreError, with the records kept
        likewise, where trying again cannot help.
        """
        packed = [pack(record) for record in records]
        try:
            self._write(lambda connection: insert_packed(connection, packed))
        except DBAPIError as error:
            self._spill.append(records)
            kept = f"{len(records)} finished record(s) kept in {self._spill.path}, to be taken in later"
            if lasting(error):
                raise StoreError(f"{store_error(self.database, error)} ({kept})") from error
            self._spilled = True
            warnings.warn(f"{store_error(self.database, error)}; {kept}", StoreWarning, stacklevel=2)
            return
        if self.database.file_id() != self._file:
            # SQLite goes on writing to a file that has no name any more.
            self._spill.append(records)
            raise StoreError(
                f"{self.database} was deleted or replaced while it was open; {len(records)} finished record(s) kept in "
                f"{self._spill.path}, to be taken in when it is opened again"
            )
        if self._spilled:
            self.take_in()

    def take_in(self) -> int:
        """Adds the records that were kept in the user's data folder; gives their number."""
        try:
            taken = self._spill.take(self._insert)
        except (DBAPIError, StoreError, OSError) as error:
            cause = store_error(self.database, error) if isinstance(error, DBAPIError) else error
            waiting = f"{cause}; finished records still wait in {self._spill.path.parent}"
            warnings.warn(waiting, StoreWarning, stacklevel=2)
            return 0
        self._spilled = False
        return taken

    def records(self, query: RecordQuery | None = None) -> list[TrialRecord]:
        """The records that match, oldest first."""
        return self.records_after(0, query)[0]

    def records_after(self, mark: int, query: RecordQuery | None = None) -> tuple[list[TrialRecord], int]:
        """The matching records that were stored after a mark (0: all), and the mark to go on with.

        Cheap to ask often. On a server, records stored at the same moment may come twice; none is left out.
        """
        # A server numbers rows when they are inserted, and shows them when they are committed.
        overlap = 0 if self.database.path is not None else CONCURRENT_ROWS
        wanted = select_records().where(TrialRow.id > mark - overlap, *(query or RecordQuery()).conditions())
        rows = self._read(lambda connection: connection.execute(wanted).all())
        unpacker = Unpacker()
        ids = [cast(int, row._mapping["id"]) for row in rows]
        return [unpacker.record(row) for row in rows], max(ids, default=mark)

    def problems(self, query: RecordQuery | None = None) -> list[Problem]:
        """The distinct problems that matching records are about."""
        wanted = (
            select(ProblemRow.body)
            .distinct()
            .select_from(TrialRow)
            .join(ProblemRow, TrialRow.problem == ProblemRow.digest)
            .join(DeviceRow, TrialRow.device == DeviceRow.digest)
            .where(*(query or RecordQuery()).conditions())
            .order_by(ProblemRow.body)
        )
        return [problem_of(body) for body in self._read(lambda connection: connection.scalars(wanted).all())]

    def merge(self, source: str | Path) -> MergeReport:
        """Adds all the records of another database or exported file, which is only read."""
        return self.add_new(records_of(source))

    def export_jsonl(self, path: Path, query: RecordQuery | None = None) -> int:
        """Writes the records that match as lines of JSON (gzip for `.gz`) and gives their number."""
        return write_records(path, self.records(query))

    def import_jsonl(self, path: Path) -> MergeReport:
        """Adds the records of an exported file, all or none; raises StoreError with file and line."""
        return self.add_new(read_records(path))

    def add_new(self, records: Sequence[TrialRecord]) -> MergeReport:
        """Adds those records whose `uid` is not there yet, all or none; raises StoreError."""
        try:
            added = self._insert(records)
        except DBAPIError as error:
            raise store_error(self.database, error) from error
        return MergeReport(added, len(records) - added)

    def info(self) -> StoreInfo:
        """Schema, size and counts."""
        return self._read(self._info)

    def prune(self, query: RecordQuery, *, dry_run: bool = False) -> int:
        """Deletes the records that match and gives their number; with `dry_run` only the number.

        The one way in which records ever go; raises InputError for a query that matches everything.
        """
        if query.empty:
            raise InputError("prune needs at least one condition; to drop all records, delete the database")
        matching = (
            select(TrialRow.id)
            .join(ProblemRow, TrialRow.problem == ProblemRow.digest)
            .join(DeviceRow, TrialRow.device == DeviceRow.digest)
            .where(*query.conditions())
        )
        if dry_run:
            count = select(func.count()).select_from(matching.subquery())
            return self._read(lambda connection: connection.scalar(count) or 0)

        def delete_matching(connection: Connection) -> int:
            deleted = connection.execute(delete(TrialRow).where(TrialRow.id.in_(matching))).rowcount
            delete_unshared(connection)
            return deleted

        try:
            return self._write(delete_matching)
        except DBAPIError as error:
            raise store_error(self.database, error) from error

    def check(self) -> list[str]:
        """What is wrong with the database, one sentence each; empty where all is well."""
        problems: list[str] = []
        try:
            if self.database.path is not None:
                checks = self._read(
                    lambda connection: [
                        *connection.exec_driver_sql("PRAGMA integrity_check").all(),
                        *connection.exec_driver_sql("PRAGMA foreign_key_check").all(),
                    ]
                )
                problems += [" ".join(map(str, found)) for found in checks if tuple(found) != ("ok",)]
            self.records()
        except (StoreError, ValueError, TypeError, KeyError) as error:
            problems.append(f"a record cannot be read: {error}")
        return problems

    def _insert(self, records: Sequence[TrialRecord]) -> int:
        packed = [pack(record) for record in records]
        return self._write(lambda connection: insert_packed(connection, packed))

    def _write(self, action: Callable[[Connection], Result]) -> Result:
        # While records are being kept elsewhere anyway, a run should not wait for each of them.
        patience_s = min(self._patience_s, 1.0) if self._spilled else self._patience_s
        return retried(lambda: self._write_once(action), patience_s)

    def _write_once(self, action: Callable[[Connection], Result]) -> Result:
        with (
            self._engine.connect().execution_options(autotune_write=True) as connection,
            connection.begin(),
        ):
            result = action(connection)
            if self.database.path is not None and time.monotonic() - self._seen > SEEN_EVERY_S:
                note_writer(connection, self._host)
                self._seen = time.monotonic()
        return result

    def _read(self, action: Callable[[Connection], Result]) -> Result:
        def once() -> Result:
            with self._engine.begin() as connection:
                return action(connection)

        try:
            return retried(once, self._patience_s)
        except DBAPIError as error:
            raise store_error(self.database, error) from error

    def _info(self, connection: Connection) -> StoreInfo:
        by_status = select(TrialRow.status, func.count()).group_by(TrialRow.status)
        by_study = select(TrialRow.study, func.count()).group_by(TrialRow.study)
        by_device = (
            select(DeviceRow.key, func.count())
            .join(TrialRow, TrialRow.device == DeviceRow.digest)
            .group_by(DeviceRow.key)
        )
        return StoreInfo(
            database=str(self.database),
            schema=self.migration.after,
            trials=connection.scalar(select(func.count()).select_from(TrialRow)) or 0,
            by_status=_counts(connection, by_status),
            by_study=_counts(connection, by_study),
            by_device=_counts(connection, by_device),
            size_bytes=self._size_bytes(connection),
        )

    def _size_bytes(self, connection: Connection) -> int:
        if self.database.path is not None:
            files = (self.database.path, Path(f"{self.database.path}-wal"))
            return sum(file.stat().st_size for file in files if file.exists())
        size = text("SELECT pg_total_relation_size(to_regclass(:name))")
        names = Base.metadata.tables
        return sum(int(connection.scalar(size, {"name": name}) or 0) for name in names)


def _counts(connection: Connection, query: Select[str, int]) -> dict[str, int]:
    return {row[0]: row[1] for row in connection.execute(query.order_by(query.selected_columns[0]))}

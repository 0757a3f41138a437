"""Which database a user names, how it is reached, and which of its errors pass by themselves."""

from __future__ import annotations

import importlib.util
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

from autotune import paths
from autotune.errors import InputError, StoreError

BUSY_S = 5.0
"""How long SQLite itself waits for a lock before one attempt counts as failed."""
LASTING = (
    "no such table",
    "no such column",
    "readonly",
    "malformed",
    "not a database",
    "authentication failed",
)
"""In the text of an operational error: waiting will not help."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Database:
    """One database as the user named it."""

    url: URL
    path: Path | None
    """The SQLite file; None for PostgreSQL."""

    @classmethod
    def of(cls, name: str | Path | None) -> Database:
        """From a URL, a path, or nothing for the user's own file; raises InputError for other backends."""
        if name is None:
            return cls.file(paths.user_data_dir() / "autotune.sqlite")
        if not str(name).strip():
            raise InputError("must name a file or URL, got nothing", where="--db")
        if isinstance(name, Path) or "://" not in name:
            return cls.file(Path(name))
        rule = "must be a path, sqlite:///PATH or postgresql://USER@HOST/NAME"
        try:
            url = make_url(name.replace("postgres://", "postgresql://", 1))
        except ArgumentError as error:
            raise InputError(f"{rule}, got {name!r}", where="--db") from error
        if url.get_backend_name() == "sqlite":
            if not url.database or url.database == ":memory:":
                raise InputError("a SQLite database needs a file: sqlite:///PATH", where="--db")
            return cls.file(Path(url.database))
        if url.get_backend_name() != "postgresql":
            raise InputError(f"{rule}, got {url.get_backend_name()}", where="--db")
        return cls(url.set(drivername="postgresql+psycopg"), None)

    @classmethod
    def file(cls, path: Path) -> Database:
        """A SQLite file."""
        path = path.expanduser().absolute()
        return cls(URL.create("sqlite", database=str(path)), path)

    def file_id(self) -> tuple[int, int] | None:
        """Tells one file from another of the same name; None for a server, or where there is no file."""
        try:
            found = self.path.stat() if self.path else None
        except FileNotFoundError:
            return None
        return (found.st_dev, found.st_ino) if found else None

    def __str__(self) -> str:
        return str(self.path) if self.path else self.url.render_as_string(hide_password=True)

    @property
    def identity(self) -> str:
        """The same for every process that means this database."""
        return str(self.path.resolve()) if self.path else self.url.set(password=None).render_as_string()


def connect(database: Database) -> Engine:
    """An engine; begins a write transaction where the connection has the option `autotune_write`."""
    if database.path is None:
        if importlib.util.find_spec("psycopg") is None:
            raise StoreError("PostgreSQL needs psycopg: pip install 'cuda-autotune[postgresql]'")
        return create_engine(database.url, pool_pre_ping=True, connect_args={"connect_timeout": 10})

    engine = create_engine(database.url, connect_args={"timeout": BUSY_S})

    @event.listens_for(engine, "connect")
    def _prepare(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
        # We say ourselves when a transaction begins, and of which kind.
        connection.isolation_level = None
        connection.execute("PRAGMA foreign_keys = ON")
        # On the disk when a commit returns, also should the power fail.
        connection.execute("PRAGMA synchronous = FULL")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # A transaction that reads first and writes later fails at once when another has written in between,
        # so writers take their turn at the start.
        write = connection.get_execution_options().get("autotune_write")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def check_answers(database: Database) -> None:
    """Connects once, without changing anything; raises StoreError where that fails."""
    engine = connect(database)
    try:
        with engine.connect():
            pass
    except SQLAlchemyError as error:
        raise StoreError(f"{database}: {(str(error).splitlines() or [type(error).__name__])[0]}") from error
    finally:
        engine.dispose()


def open_file(path: Path) -> sqlite3.Connection:
    """A connection that only reads an existing SQLite file; raises StoreError where it is none."""
    with path.open("rb") as file:
        start = file.read(16)
    if start and start != b"SQLite format 3\0":
        raise StoreError(
            f"{path} is not a SQLite database; it was left as it is. Name another file with --db"
        )
    # Not `mode=ro`, which would leave a `-wal` and a `-shm` file behind.
    connection = sqlite3.connect(f"file:{quote(str(path))}?mode=rw", uri=True, timeout=BUSY_S)
    connection.execute("PRAGMA query_only = ON")
    return connection


def set_journal(path: Path, mode: str) -> None:
    """Sets how a SQLite file keeps its transactions: `wal` lets readers and writers run beside each other."""
    with closing(sqlite3.connect(path, timeout=BUSY_S)) as connection:
        if connection.execute("PRAGMA journal_mode").fetchone()[0] != mode:
            connection.execute(f"PRAGMA journal_mode = {mode}")


def lasting(error: DBAPIError | sqlite3.Error) -> bool:
    """Whether trying again cannot help."""
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return False
    passing = OperationalError | InterfaceError | sqlite3.OperationalError
    return not isinstance(error, passing) or any(text in str(error) for text in LASTING)


def retried(action: Callable[[], Result], patience_s: float) -> Result:
    """What the action gives; passing storage errors are tried again until patience is over."""
    end = time.monotonic() + patience_s
    wait_s = 0.02
    while True:
        try:
            return action()
        except (DBAPIError, sqlite3.Error) as error:
            if lasting(error) or time.monotonic() + wait_s > end:
                raise
        time.sleep(wait_s)
        wait_s = min(wait_s * 2, 1.0)


def store_error(database: Database, error: DBAPIError | sqlite3.Error) -> StoreError:
    """The error as users should read it."""
    text = str(error.orig if isinstance(error, DBAPIError) else error).strip()
    if "malformed" in text or "not a database" in text:
        cure = "; it is damaged and was left as it is. Restore a backup, or name another file with --db"
        return StoreError(f"{database}: {text}{cure}")
    if "readonly" in text:
        cure = ": neither it nor its folder may be read-only. Copy it to a folder of yours, or name another with --db"
        return StoreError(f"{database}: {text}{cure}")
    return StoreError(f"{database}: {text}")

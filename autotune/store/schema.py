"""The version of the tables: finding it, creating them, and migrating older ones.

A SQLite file is migrated when it is opened, after a copy. A PostgreSQL database is shared, so it is migrated
only when asked for. A database newer than this program is refused and left as it is.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text

from autotune import __version__
from autotune.errors import StoreError
from autotune.store.engine import Database, open_file, set_journal

VERSION_TABLE = "autotune_alembic_version"
"""Alembic's own default name may belong to another program in the same database."""
SCHEMA = "0002"
"""The newest revision in `migrations/versions`."""
MIGRATION_LOCK = 0x6175746F
"""PostgreSQL advisory lock held while migrating; any fixed number will do."""


@dataclass(frozen=True)
class Migration:
    """What opening did to the schema."""

    before: str | None
    """None where the database held no tables of ours."""
    after: str
    backup: Path | None = None

    def __str__(self) -> str:
        if self.before is None:
            return "newly made"
        if self.before == self.after:
            return "up to date"
        kept = f", with a copy of the old one at {self.backup}" if self.backup else ""
        return f"migrated from schema {self.before}{kept}"


def file_version(path: Path) -> str | None:
    """The schema of an existing SQLite file, which is not changed; None where it holds no tables of ours."""
    with closing(open_file(path)) as connection:
        try:
            rows = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchall()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return None
            raise
    return str(rows[0][0]) if rows else None


def server_version(engine: Engine) -> str | None:
    """The schema of a PostgreSQL database; None where it holds no tables of ours."""
    with engine.connect() as connection:
        if not inspect(connection).has_table(VERSION_TABLE):
            return None
        found = connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}"))
    return None if found is None else str(found)


def refuse_newer(database: Database, found: str | None) -> None:
    """Raises StoreError for a schema that this program does not know."""
    if found is not None and found > SCHEMA:
        raise StoreError(
            f"{database} has schema {found}; this autotune {__version__} knows up to {SCHEMA}. It was left "
            "as it is. Update the program: pip install --upgrade cuda-autotune"
        )


def refuse_older(database: Database, found: str | None) -> None:
    """Raises StoreError for an older schema of a database that others may be using."""
    if found is not None and found < SCHEMA:
        raise StoreError(
            f"{database} has schema {found}; this autotune {__version__} needs {SCHEMA}. Back it up "
            f"(pg_dump) and run: autotune db migrate --db {database}"
        )


def back_up(path: Path, version: str) -> Path:
    """A consistent copy of a SQLite file beside it, e.g. `autotune.sqlite-0001.backup`."""
    target = path.with_name(f"{path.name}-{version}.backup")
    number = 1
    while target.exists():
        number += 1
        target = path.with_name(f"{path.name}-{version}.backup{number}")
    copy_file(path, target)
    return target


def copy_file(path: Path, target: Path) -> None:
    """A consistent copy of a SQLite file, also while others write to it; the original is only read."""
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    with closing(open_file(path)) as source, closing(sqlite3.connect(part)) as copy:
        source.backup(copy)
    part.replace(target)


def prepare(
    database: Database, engine: Engine, *, journal: str = "wal", migrate_server: bool = False
) -> Migration:
    """Brings the schema to this program's; raises StoreError for a newer one, or an older one on a server."""
    if database.path is None:
        found = server_version(engine)
        refuse_newer(database, found)
        if not migrate_server:
            refuse_older(database, found)
        backup = None
    else:
        path = database.path
        path.parent.mkdir(parents=True, exist_ok=True)
        found = file_version(path) if path.exists() else None
        refuse_newer(database, found)
        backup = back_up(path, found) if found is not None and found < SCHEMA else None
        set_journal(path, journal)
    if found != SCHEMA:
        upgrade(engine)
    return Migration(found, SCHEMA, backup)


def upgrade(engine: Engine, revision: str = SCHEMA) -> None:
    """Creates or migrates our tables in one transaction; processes that do so at once take turns."""
    from alembic import command
    from alembic.config import Config as AlembicConfig

    config = AlembicConfig()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    with engine.connect().execution_options(autotune_write=True) as connection, connection.begin():
        _take_turn(connection)
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


def _take_turn(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": MIGRATION_LOCK})

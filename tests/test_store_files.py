"""SQLite files: several processes, several hosts, several versions, and damage."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
from fakes.trials import measured, problem, trial
from sqlalchemy import text

from autotune.choice.best import Question, best_from
from autotune.errors import StoreError
from autotune.store import Host, RecordQuery, StoreWarning, open_store
from autotune.store.engine import Database, connect, store_error
from autotune.store.schema import SCHEMA, VERSION_TABLE, file_version, set_journal, upgrade

HERE = Host("here", "boot-1", "/dev/sda1 / ext4 rw 0 0\nserver:/x /net nfs4 rw 0 0\n")

pytestmark = pytest.mark.usefixtures("user_data")


def plain(path: Path) -> sqlite3.Connection:
    """A connection past the store, for standing in its way."""
    return sqlite3.connect(path, isolation_level=None)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _write_trials(path: Path, process: int, count: int) -> None:
    with open_store(path) as store:
        for index in range(count):
            store.add(trial(1.0, index, uid=f"{process}-{index}"))


def _hold_reads(path: Path, hold_s: float, stop: Event) -> None:
    """Reads in a loop, and meanwhile keeps one read transaction open."""
    with open_store(path) as store, closing(sqlite3.connect(path, isolation_level=None)) as held:
        held.execute("BEGIN")
        seen = held.execute("SELECT count(*) FROM autotune_trials").fetchone()
        end = time.monotonic() + hold_s
        while not stop.is_set() or time.monotonic() < end:
            store.records(RecordQuery(study="sgemm on a6000"))
            assert held.execute("SELECT count(*) FROM autotune_trials").fetchone() == seen
            time.sleep(0.05)
            if time.monotonic() > end and held.in_transaction:
                held.execute("COMMIT")
                return


@pytest.mark.parametrize(("each", "hold_s"), [(40, 3), pytest.param(200, 20, marks=pytest.mark.slow)])
def test_T31_eight_writers_and_a_reader_share_one_file(tmp_path: Path, each: int, hold_s: float) -> None:
    path = tmp_path / "shared.sqlite"
    fork = multiprocessing.get_context("fork")
    stop = fork.Event()
    # The file does not exist yet: its creation is part of the race.
    processes = [fork.Process(target=_write_trials, args=(path, number, each)) for number in range(8)]
    reader = fork.Process(target=_hold_reads, args=(path, hold_s, stop))
    for process in [*processes, reader]:
        process.start()
    for process in processes:
        process.join(120)
    stop.set()
    reader.join(60)
    assert [process.exitcode for process in [*processes, reader]] == [0] * 9
    with open_store(path) as store:
        uids = [record.uid for record in store.records()]
    assert sorted(uids) == sorted(f"{process}-{index}" for process in range(8) for index in range(each))


def test_a_record_is_durable_when_add_returns(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "from autotune.store import open_store\n"
        "from fakes.trials import trial\n"
        "open_store(sys.argv[1]).add(trial(uid='kept'))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = tmp_path / "trials.sqlite"
    paths = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parent.parent)])
    ended = subprocess.run([sys.executable, "-c", script, str(path)], env={**os.environ, "PYTHONPATH": paths})
    assert ended.returncode == -signal.SIGKILL
    with open_store(path) as store:
        assert [record.uid for record in store.records()] == ["kept"]


# ---- T37: versions


def question() -> Question:
    """For the best at the size of most of these trials."""
    one = trial()
    return Question(
        kernel=one.kernel,
        kernel_hash=one.kernel_hash,
        space_hash=one.space_hash,
        device=one.device.key,
        problem=one.problem,
        protocol=one.protocol,
    )


def old_file(path: Path) -> list[str]:
    """A file as the first schema left it, with three trials; gives their uids, oldest first."""
    set_journal(path, "wal")
    engine = connect(Database.file(path))
    upgrade(engine, "0001")
    engine.dispose()
    with open_store(path.with_name("new.sqlite")) as new:
        made = [trial(2.0, 64, minute=0), trial(1.0, 128, minute=1), trial(3.0, 128, problem(1), minute=2)]
        new.add_many(made)
    tables = ["problems", "devices", "environments", "configs", "trials"]
    with closing(sqlite3.connect(path)) as old:
        old.execute("ATTACH ? AS new", (str(path.with_name("new.sqlite")),))
        for table in tables:
            names = ", ".join(row[1] for row in old.execute(f"PRAGMA table_info(autotune_{table})"))
            old.execute(f"INSERT INTO autotune_{table} ({names}) SELECT {names} FROM new.autotune_{table}")
        old.commit()
    return [record.uid for record in made]


def test_T37_an_older_file_is_migrated_after_a_backup(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    uids = old_file(path)
    with open_store(path.with_name("new.sqlite")) as new:
        new_best = best_from(new, question()).record
        assert new_best is not None
        assert new_best.uid == uids[1]
    with closing(sqlite3.connect(path)) as old:
        columns = [row[1] for row in old.execute("PRAGMA table_info(autotune_trials)")]
        times = old.execute("SELECT uid, measurement FROM autotune_trials ORDER BY uid").fetchall()
    assert "notes" not in columns

    with open_store(path) as store:
        assert store.migration.before == "0001"
        assert store.migration.after == SCHEMA
        records = store.records()
        assert [record.uid for record in records] == uids
        assert [record.outcome.time_ms for record in records] == [2.0, 1.0, 3.0]
        assert {record.outcome.notes for record in records} == {()}
        assert store.info().trials == 3
        assert best_from(store, question()).record == new_best
        store.add(trial(measured(1.0, notes=("new",))))
        assert store.check() == []
        backup = store.migration.backup
        assert str(store.migration) == f"migrated from schema 0001, with a copy of the old one at {backup}"
    assert backup is not None
    assert file_version(backup) == "0001"
    with closing(sqlite3.connect(backup)) as kept:
        assert kept.execute("SELECT uid, measurement FROM autotune_trials ORDER BY uid").fetchall() == times
    with open_store(path) as again:
        assert again.migration.backup is None
        assert str(again.migration) == "up to date"
        assert again.info().trials == 4


def test_T37_a_newer_file_is_refused_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "newer.sqlite"
    with open_store(path) as store:
        store.add(trial())
    with closing(sqlite3.connect(path)) as newer:
        newer.execute("ALTER TABLE autotune_trials ADD COLUMN power_w FLOAT")
        newer.execute("UPDATE autotune_alembic_version SET version_num = '0003'")
        newer.commit()
    before = digest(path)
    with pytest.raises(StoreError, match=r"schema 0003; .* up to 0002.*pip install --upgrade"):
        open_store(path)
    with open_store(tmp_path / "own.sqlite") as own, pytest.raises(StoreError, match="schema 0003"):
        own.merge(path)
    assert digest(path) == before
    assert sorted(tmp_path.glob("newer*")) == [path]


def test_T37_merging_an_older_file_leaves_it_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    uids = old_file(path)
    before = digest(path)
    with open_store(tmp_path / "own.sqlite") as own:
        assert own.merge(path).added == 3
        assert [record.uid for record in own.records()] == uids
    assert digest(path) == before


def test_T37_an_older_server_is_migrated_only_when_asked(postgresql: Callable[[], str]) -> None:
    url = postgresql()
    engine = connect(Database.of(url))
    upgrade(engine, "0001")
    engine.dispose()
    with pytest.raises(
        StoreError, match=r"schema 0001; .* needs 0002\. .*autotune db migrate --db postgresql"
    ):
        open_store(url)
    with open_store(url, migrate=True) as store:
        store.add(trial())
        assert store.migration.before == "0001"
    with open_store(url) as store:
        assert store.info().trials == 1


def test_models_and_migrations_agree(tmp_path: Path, postgresql: Callable[[], str]) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    from autotune.store.models import Base

    for name in (str(tmp_path / "a.sqlite"), postgresql()):
        open_store(name).close()
        engine = connect(Database.of(name))
        with engine.connect() as connection:
            context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
            assert compare_metadata(context, Base.metadata) == []
        engine.dispose()


# ---- damage


@pytest.mark.parametrize("content", [b"not a database at all\n" * 50, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_file_that_is_no_database_is_refused_untouched(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.sqlite"
    path.write_bytes(content)
    with pytest.raises(StoreError, match="not a"):
        open_store(path)
    assert path.read_bytes() == content
    assert list(tmp_path.glob("notes*")) == [path]


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "trials.sqlite"
    with open_store(path) as store:
        store.add_many([trial(1.0, index) for index in range(300)])
    content = bytearray(path.read_bytes())
    for page in range(2, len(content) // 4096):
        content[page * 4096 : page * 4096 + 200] = b"\xa5" * 200
    path.write_bytes(content)
    with pytest.raises(StoreError, match="damaged"):  # noqa: PT012  (opening may notice it or not)
        store = open_store(path)
        store.records()


def test_a_record_that_cannot_be_stored_is_kept_and_taken_in(tmp_path: Path) -> None:
    path = tmp_path / "trials.sqlite"
    with open_store(path) as store, closing(sqlite3.connect(path)) as other:
        other.execute("ALTER TABLE autotune_trials RENAME TO hidden")
        with pytest.raises(StoreError, match=r"1 finished record\(s\) kept in"):
            store.add(trial(uid="kept"))
        other.execute("ALTER TABLE hidden RENAME TO autotune_trials")
    with open_store(path) as store:
        assert [record.uid for record in store.records()] == ["kept"]


def test_a_lost_server_connection_is_made_again(postgresql: Callable[[], str]) -> None:
    url = postgresql()
    with open_store(url) as store, open_store(url) as other:
        store.add(trial(uid="before"))
        with other._engine.begin() as connection:
            ours = text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            assert connection.execute(ours).all()
        store.add(trial(uid="after"))
        assert {record.uid for record in store.records()} == {"before", "after"}


def test_an_unreachable_server_is_told_without_the_password() -> None:
    with pytest.raises(StoreError, match="127") as told:
        open_store("postgresql://me:secret@127.0.0.1:1/trials", patience_s=0.1)
    assert "secret" not in str(told.value)


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file"):
        open_store(tmp_path / "file" / "trials.sqlite")


# ---- T54: hosts and passing errors


def test_T54_a_network_file_system_is_warned_of(tmp_path: Path) -> None:
    assert HERE.filesystem(Path("/net/home/a.sqlite")) == "nfs4"
    assert HERE.filesystem(Path("/network/a.sqlite")) == "ext4"
    mounted = replace(HERE, mounts=HERE.mounts + f"server:/y {tmp_path} lustre rw 0 0\n")
    path = tmp_path / "trials.sqlite"
    with pytest.warns(StoreWarning, match="lustre.*postgresql.*db merge"):
        store = open_store(path, host=mounted)
    with store, closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        store.add(trial())
        assert store.info().trials == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_store(path, host=HERE).close()


def test_T54_a_second_host_is_refused_while_the_first_has_the_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trials.sqlite"
    there = Host("there", "boot-2", "")
    first = open_store(path, host=HERE)
    open_store(path, host=there).close()  # nothing written yet
    first.add(trial())
    with pytest.raises(StoreError, match=r"open on host here.*this is host there.*postgresql.*db merge"):
        open_store(path, host=there)
    open_store(path, host=replace(HERE, name="container")).close()  # same kernel, same locks
    open_store(path, host=replace(HERE, boot="boot-3")).close()  # the machine was restarted
    with open_store(tmp_path / "own.sqlite", host=there) as own:
        assert own.merge(path).added == 1
    first.close()
    with open_store(path, host=there) as second:
        second.add(trial())

    # A host that crashed holds the file for some minutes only.
    crashed = open_store(path, host=HERE)
    crashed.add(trial())
    with pytest.raises(StoreError, match="open on host here"):
        open_store(path, host=there)
    monkeypatch.setattr("autotune.store.hosts.WRITER_OPEN", timedelta(0))
    with open_store(path, host=there) as third:
        assert third.info().trials == 3


def test_T54_a_passing_error_is_retried(tmp_path: Path) -> None:
    path = tmp_path / "trials.sqlite"
    with open_store(path) as store, closing(plain(path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        adding = threading.Thread(target=store.add, args=(trial(uid="late"),))
        adding.start()
        adding.join(0.5)
        assert adding.is_alive()
        other.execute("COMMIT")
        adding.join(20)
        assert [record.uid for record in store.records()] == ["late"]


def test_T54_results_are_kept_while_the_storage_fails_and_taken_in_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user_data: Path
) -> None:
    monkeypatch.setattr("autotune.store.engine.BUSY_S", 0.05)
    path = tmp_path / "trials.sqlite"
    with (
        open_store(path, patience_s=0.2) as store,
        closing(plain(path)) as other,
    ):
        store.add(trial(uid="before"))
        other.execute("BEGIN IMMEDIATE")
        for uid in ("kept-1", "kept-2"):
            with pytest.warns(StoreWarning, match="locked.*kept in"):
                store.add(trial(uid=uid))
        assert [record.uid for record in store.records()] == ["before"]
        kept = list((user_data / "spill").iterdir())
        assert len(kept) == 1
        # A process that was killed while it appended left half a line.
        kept[0].write_bytes(kept[0].read_bytes() + b'{"uid": "ha')
        with pytest.warns(StoreWarning, match="kept in"):
            store.add(trial(uid="kept-3"))
        other.execute("ROLLBACK")
        store.add(trial(uid="after"))
        uids = {record.uid for record in store.records()}
        assert uids == {"before", "kept-1", "kept-2", "kept-3", "after"}
        assert list((user_data / "spill").iterdir()) == []


def test_T54_results_kept_by_a_run_that_ended_are_taken_in_at_the_next_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.store.engine.BUSY_S", 0.05)
    path = tmp_path / "trials.sqlite"
    with closing(plain(path)) as other:
        store = open_store(path, patience_s=0.1)
        other.execute("BEGIN IMMEDIATE")
        with pytest.warns(StoreWarning, match="kept in"):
            store.add(trial(uid="kept"))
        store.close()
        other.execute("ROLLBACK")
    with open_store(tmp_path / "another.sqlite") as another:
        assert another.records() == []
    with open_store(path) as store:
        assert [record.uid for record in store.records()] == ["kept"]


@pytest.mark.parametrize("replaced", [False, True])
def test_results_are_kept_when_the_file_is_deleted_under_a_running_search(
    tmp_path: Path, replaced: bool
) -> None:
    path = tmp_path / "records.db"
    lost, kept = trial(minute=0), [trial(minute=1), trial(minute=2)]
    with open_store(path) as store:
        store.add(lost)
        for file in tmp_path.glob("records.db*"):
            file.unlink()
        if replaced:
            open_store(path).close()
        with pytest.raises(StoreError, match=r"deleted or replaced while it was open; 2 finished .* kept in"):
            store.add_many(kept)
    with open_store(path) as store:
        assert [record.uid for record in store.records()] == [record.uid for record in kept]


def test_merging_a_file_into_itself_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    with open_store(path) as store:
        store.add_many([trial(minute=minute) for minute in range(3)])
        assert store.merge(path).added == 0
        assert len(store.records()) == 3


def test_a_read_only_database_is_told_with_the_cure(tmp_path: Path) -> None:
    error = store_error(
        Database.of(tmp_path / "r.db"), sqlite3.OperationalError("attempt to write a readonly database")
    )
    assert "may be read-only. Copy it to a folder of yours" in str(error)

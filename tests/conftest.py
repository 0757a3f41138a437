"""Fixtures that several test files use."""

from __future__ import annotations

import itertools
import os
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# Tests run side by side, and NumPy's threads would wait for each other's cores; read where NumPy is first imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def pytest_configure() -> None:
    """Started in the background by a shell, everything inherits that Ctrl-C is ignored; tests send it to children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Callable[[], str]]:
    """Makes a fresh PostgreSQL database at each call and gives its URL."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pgserver

        # Not below pytest's own folder: for root the server runs as another user, who may not go there.
        folder = tempfile.mkdtemp(prefix="autotune-pg-")
        server = pgserver.get_server(folder, cleanup_mode="delete")
    # What is lost with the power is of no interest here, and waiting for the disk takes most of the time.
    server.psql("ALTER SYSTEM SET fsync = off;")
    server.psql("SELECT pg_reload_conf();")
    numbers = itertools.count()

    def make() -> str:
        name = f"test{next(numbers)}"
        server.psql(f"CREATE DATABASE {name};")
        return str(server.get_uri(name))

    yield make
    server.cleanup()


@pytest.fixture
def user_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty place for the user's own data."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data" / "autotune"

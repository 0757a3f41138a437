"""Reads recorded tables from a file, whichever of the two kinds it is."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from autotune.errors import InputError, StoreError
from autotune.replay.kernel_tuner import looks_like_cache, table_of_cache
from autotune.replay.table import Table, tables_of_records
from autotune.store.jsonl import FORMAT, parse_records

HEAD_BYTES = 20_000
"""What says which kind of file it is stands within these."""


def read_tables(path: Path) -> list[Table]:
    """The tables of a file: exported records (one table per problem and device) or a cache of Kernel Tuner.

    Both may be gzipped. Raises InputError for any other file, and for one without recorded trials.
    """
    text, name = _text(path), _name(path)
    if f'"{FORMAT}"' in text[:200]:
        try:
            tables = tables_of_records(parse_records(text, str(path)), name)
        except StoreError as error:
            raise InputError(str(error), key="--replay") from error
        if not tables:
            raise InputError("holds no recorded trial: only those of searches on a device count", str(path))
        return tables
    if looks_like_cache(text):
        try:
            return [table_of_cache(text, name)]
        except InputError as error:
            error.where = str(path)
            raise
    rule = "must hold records that `autotune db export` wrote, or a cache of Kernel Tuner"
    raise InputError(rule, str(path))


def is_cache(path: Path) -> bool:
    """Whether a file begins like a cache of Kernel Tuner."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return looks_like_cache(file.read(HEAD_BYTES).decode(errors="replace"))
    except (OSError, EOFError, zlib.error):
        return False


def _text(path: Path) -> str:
    try:
        content = path.read_bytes()
        return (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    except FileNotFoundError as error:
        raise InputError("no such file", str(path)) from error
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", str(path)) from error


def _name(path: Path) -> str:
    return path.name.removesuffix(".gz").rsplit(".", 1)[0]

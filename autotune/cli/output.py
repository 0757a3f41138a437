"""Printing: one JSON document on stdout when asked, tables otherwise, progress and notes on stderr."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.config import Config
from autotune.problem import Problem

if TYPE_CHECKING:
    from rich.console import Console

PIPED_WIDTH = 250


def print_json(document: object) -> None:
    """One JSON document on stdout; dataclasses, enums, dates, configs and problems included."""
    click.echo(json.dumps(plain(document), indent=2, allow_nan=False, default=str))


def plain(value: object) -> object:
    """A value made of what JSON knows; NaN and infinities become null."""
    if isinstance(value, Config):
        return {name: plain(item) for name, item in value.values_by_name}
    if isinstance(value, Problem):
        return {
            "sizes": dict(value.sizes),
            "dtype": value.dtype,
            "classes": {name: plain(item) for name, item in value.classes},
        }
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, str):
        return value
    if isinstance(value, Iterable):
        return [plain(item) for item in value]
    if isinstance(value, float) and value - value != 0:
        return None
    return value


def console(stderr: bool = False) -> Console:
    """A rich console; on stderr for everything that is not the answer itself."""
    from rich.console import Console

    drawn = Console(stderr=stderr, highlight=False)
    # Piped output is for grep and awk: one row a line, however long.
    return drawn if drawn.is_terminal else Console(stderr=stderr, highlight=False, width=PIPED_WIDTH)


def note(text: str) -> None:
    """One line on stderr beside the answer."""
    click.echo(text, err=True)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], stderr: bool = False) -> None:
    """A plain table; numbers are right-aligned."""
    from rich.table import Table

    listed = [[_cell(cell) for cell in row] for row in rows]
    drawn = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    drawn.show_header = any(columns)
    for index, column in enumerate(columns):
        numeric = bool(listed) and all(_is_number(row[index]) for row in listed)
        drawn.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in listed:
        drawn.add_row(*row)
    console(stderr).print(drawn)


def format_ms(time_ms: float) -> str:
    """A time in ms with four significant digits."""
    return f"{time_ms:.4g} ms"


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _is_number(text: str) -> bool:
    try:
        float(text.rstrip("%x"))
    except ValueError:
        return text == "-"
    return True

"""Printing: one JSON document on stdout when asked, tables otherwise, progress and notes on stderr."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.config import Config
from autotune.problem import Problem

if TYPE_CHECKING:
    from rich.console import Console

PIPED_WIDTH = 10_000
"""Columns of a table that is piped: more than any row has."""
MOST_TIES = 5
"""How many configurations as fast as the best are listed for people; `--json` has all."""


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

    def make(width: int | None = None) -> Console:
        # What is shown is data, e.g. `a[0]`, never markup or emoji.
        return Console(stderr=stderr, highlight=False, markup=False, emoji=False, width=width)

    drawn = make()
    # Piped output is for grep and awk: one row a line, however long.
    return drawn if drawn.is_terminal else make(PIPED_WIDTH)


def note(text: str) -> None:
    """One line on stderr beside the answer."""
    click.echo(text, err=True)


@contextlib.contextmanager
def patience(text: str, after_s: float = 2.0) -> Iterator[None]:
    """Tells somebody at a terminal what takes so long, if it does."""
    timer = threading.Timer(after_s, lambda: note(text) if sys.stderr.isatty() else None)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


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
    shown = console(stderr)
    with shown.capture() as captured:
        shown.print(drawn)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()), err=stderr)


def format_ms(time_ms: float) -> str:
    """A time in ms with four significant digits."""
    return f"{time_ms:.4g} ms"


def format_figure(value: float) -> str:
    """A rate or count for people: four significant digits, thousands in full."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def print_ties(ties: Sequence[str], before: str) -> None:
    """A line for each of the first few ties, each after `before`, and how many more there are."""
    for tied in ties[:MOST_TIES]:
        click.echo(f"{before}as fast: {tied}")
    if len(ties) > MOST_TIES:
        click.echo(f"{before}as fast: {len(ties) - MOST_TIES} more; --json lists them")


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return format_figure(value) if isinstance(value, float) else str(value)


def _is_number(text: str) -> bool:
    try:
        float(text.rstrip("%x").replace(",", ""))
    except ValueError:
        return text == "-"
    return True

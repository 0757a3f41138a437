"""How a running search is shown: one live line on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING

import click

from autotune.cli.output import console
from autotune.records import Origin

if TYPE_CHECKING:
    from rich.live import Live

    from autotune.study.progress import Progress

PLAIN_INTERVAL_S = 5.0


class ProgressView:
    """Shows `Progress` on stderr while it is open."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._last_plain = 0.0

    def __enter__(self) -> ProgressView:
        if sys.stderr.isatty():
            from rich.live import Live

            self._live = Live(console=console(stderr=True), refresh_per_second=8, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def show(self, progress: Progress) -> None:
        """Draws the present state."""
        text = line(progress)
        if self._live:
            from rich.text import Text

            self._live.update(Text(text))
        elif (now := time.monotonic()) - self._last_plain >= PLAIN_INTERVAL_S or progress.last is None:
            self._last_plain = now
            click.echo(text, err=True)


@contextlib.contextmanager
def counting(what: str) -> Iterator[Callable[[int, int], None]]:
    """Tells somebody at a terminal how many of how many are done; the line is gone at the end."""

    def show(done: int, total: int) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r\033[K{what}: {done}/{total}", err=True, nl=False)

    try:
        yield show
    finally:
        if sys.stderr.isatty():
            click.echo("\r\033[K", err=True, nl=False)


def line(progress: Progress) -> str:
    """The state on one line: done/total, best so far, failures by reason, occupation, time left."""
    total = f"/{progress.total}" if progress.total is not None else ""
    parts = [f"{progress.problem.label} {progress.phase} {progress.done}{total}"]
    if progress.best_ms is not None:
        figures = ", ".join(f"{value:,.0f} {name}" for name, value in progress.best_metrics.items())
        parts.append(
            f"best {progress.best_ms:.4g} ms ({figures})" if figures else f"best {progress.best_ms:.4g} ms"
        )
    failures = ", ".join(f"{count} {status}" for status, count in progress.failures.items() if count)
    if failures:
        parts.append(f"failed: {failures}")
    busy = progress.occupation
    if busy.per_minute:
        compilers = f", compilers {busy.compilers:.0%}" if busy.compilers is not None else ""
        gpu = "" if progress.origin is Origin.PREDICTED else f", GPU {busy.gpu:.0%} busy"
        parts.append(f"{progress.origin} {busy.per_minute:,.0f}/min{gpu}{compilers}")
    if progress.time_left_s is not None:
        parts.append(f"{_clock(progress.time_left_s)} left")
    return " | ".join(parts)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"

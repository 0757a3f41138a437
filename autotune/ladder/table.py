"""A ladder as rows of text: the seed's table for the present GPU, bars, and the comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from autotune.ladder.result import Comparison, Entry, LadderResult

COLUMNS = (
    "step",
    "GFLOP/s",
    "% cuBLAS",
    "% peak",
    "regs",
    "smem B",
    "occup.",
    "GB/s",
    "glob B/FLOP",
    "smem B/FLOP",
    "limiter",
    "seed",
    "seed GFLOP/s",
    "seed % cuBLAS",
)
COMPARED_COLUMNS = ("", "ms", "GFLOP/s", "against the first", "configuration")
BAR_WIDTH = 50


def rows(result: LadderResult) -> list[tuple[object, ...]]:
    """One row for each step, the production kernel and the library."""
    vendor = result.vendor.gflops if result.vendor else None
    return [_row(result, entry, vendor) for entry in result.entries]


def _row(result: LadderResult, entry: Entry, vendor: float | None) -> tuple[object, ...]:
    return (
        entry.name,
        _rounded(entry.gflops),
        _percent(entry.gflops, vendor),
        _percent(entry.gflops, result.peak_gflops),
        entry.registers,
        entry.smem_bytes,
        _percent(entry.occupancy, 1.0),
        _rounded(entry.gbps),
        _digits(entry.global_bytes_per_flop),
        _digits(entry.shared_bytes_per_flop),
        entry.limiter or None,
        entry.seed or None,
        entry.seed_gflops,
        _percent(entry.seed_gflops, result.seed_cublas_gflops),
    )


def bars(result: LadderResult) -> list[tuple[str, str, str]]:
    """Name, bar and rate; the peak of multiply-adds is the full width."""
    return [
        (
            entry.name,
            "█" * max(1, round(BAR_WIDTH * entry.gflops / result.peak_gflops)),
            f"{entry.gflops:,.0f}",
        )
        for entry in result.entries
        if entry.gflops
    ]


def compared_rows(comparison: Comparison) -> list[tuple[object, ...]]:
    """One row for each contestant, with how much faster it is than the first that has a time."""
    first = next((entry.time_ms for entry in comparison.entries if entry.time_ms), None)
    return [
        (
            entry.name,
            _digits(entry.time_ms),
            _rounded(entry.gflops),
            f"{first / entry.time_ms:.2f}x" if first and entry.time_ms else None,
            ",".join(f"{name}={value}" for name, value in entry.config.items()) or entry.note or None,
        )
        for entry in comparison.entries
    ]


def remarks(result: LadderResult) -> list[str]:
    """Lines below the table: what has no time and why, steps that are no faster than the one before, spills."""
    lines = [f"{entry.name}: {entry.note}" for entry in result.entries if entry.gflops is None]
    lines += [
        f"{entry.name}: spills {entry.spill_bytes} B a thread"
        for entry in result.entries
        if entry.spill_bytes
    ]
    lines += [
        f"{after.name} is slower than {before.name}{f': {after.about}' if after.about else ''}"
        for before, after in _slower(result.steps)
    ]
    return lines


def _slower(steps: Sequence[Entry]) -> list[tuple[Entry, Entry]]:
    timed = [entry for entry in steps if entry.gflops]
    return [
        (before, after) for before, after in pairwise(timed) if (after.gflops or 0) < (before.gflops or 0)
    ]


def _percent(value: float | None, whole: float | None) -> str | None:
    return f"{100 * value / whole:.1f}%" if value is not None and whole else None


def _rounded(value: float | None) -> str | None:
    return None if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.1f}"


def _digits(value: float | None) -> str | None:
    return None if value is None else f"{value:.4g}"

"""What a GPU case is, and what several of them share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import Bench

from autotune.candidate import Runnable
from autotune.errors import StageFailure
from autotune.records import Status

Numbers = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]


class NotChecked(Exception):
    """Something that a case, or part of it, needs is not on this machine."""


@dataclass(frozen=True)
class Case:
    id: str
    what: str
    limit_s: int
    run: Callable[[Bench, Numbers], None]


def failure_of(act: Callable[[], object], *statuses: Status) -> StageFailure:
    """The failure that an act must end in."""
    try:
        got = act()
    except StageFailure as caught:
        failure = caught
    else:
        raise AssertionError(f"no failure, got {got}")
    assert failure.status in statuses, f"{failure} is not one of {statuses}"
    return failure


def close_to(value: float, other: float, relative: float) -> bool:
    return abs(value - other) <= relative * other


def measured(bench: Bench, run: Runnable) -> float:
    bench.stages.verify_run(run)
    return bench.stages.measure_run(run).measurement.time_ms


def find_nvcc() -> str | None:
    import shutil

    return shutil.which("nvcc") or next(
        (str(path) for path in (Path("/usr/local/cuda/bin/nvcc"),) if path.exists()), None
    )

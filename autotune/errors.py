"""Every error that `autotune` raises on purpose.

    AutotuneError                  exit 1   base: catch this one
    ├── InputError                 exit 2   what the user wrote is wrong; says file, key, value, rule, nearest
    ├── GpuUnavailable             exit 3   a GPU, a driver or CuPy is needed and not here
    ├── NothingFound               exit 4   nothing legal, everything failed, or no stored answer
    ├── StoreError                 exit 1   the database cannot be used as it is
    └── StageFailure               (none)   one trial ended early; becomes its recorded status

All of them pickle with their data, since they cross process boundaries.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autotune.records import Accuracy, Status


class AutotuneError(Exception):
    """Base of all errors raised on purpose; `exit_code` is what the command line returns for it."""

    exit_code = 1


@dataclass
class InputError(AutotuneError):
    """What the user wrote is wrong: where it stands, the rule it breaks and the nearest valid choice."""

    rule: str
    """What has to hold, and what was got instead, as one sentence."""
    where: str = ""
    """`file:line` where known, else the option or argument."""
    key: str = ""
    """Dotted key, e.g. `parameters.BM`."""
    nearest: str = ""
    """The nearest valid choice, or the cure."""

    exit_code = 2

    def __post_init__(self) -> None:
        super().__init__(self.rule, self.where, self.key, self.nearest)

    def __str__(self) -> str:
        place = ": ".join(part for part in (self.where, self.key) if part)
        hint = f" (nearest: {self.nearest})" if self.nearest else ""
        return f"{place}: {self.rule}{hint}" if place else f"{self.rule}{hint}"


class GpuUnavailable(AutotuneError):
    """A GPU, its driver or CuPy is needed for this and is not here."""

    exit_code = 3


class NothingFound(AutotuneError):
    """No legal configuration, no trial that worked, or no stored answer."""

    exit_code = 4


class StoreError(AutotuneError):
    """The database cannot be opened, is of another version, or refuses to take a record."""


@dataclass
class StageFailure(AutotuneError):
    """One stage of a trial failed; `status` and `reason` are what gets recorded."""

    status: Status
    reason: str
    accuracy: Accuracy | None = None

    def __post_init__(self) -> None:
        super().__init__(self.status, self.reason, self.accuracy)

    def __str__(self) -> str:
        return f"{self.status}: {self.reason}"


def nearest_name(name: str, names: Iterable[str]) -> str:
    """The name closest to a misspelt one, or all the valid names where none is close."""
    choices = [str(choice) for choice in names]
    close = difflib.get_close_matches(name, choices, n=1, cutoff=0.5)
    return close[0] if close else ", ".join(choices)

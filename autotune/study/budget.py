"""When a study has had enough: measured configurations, seconds, or too many failures in a row."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

PATIENCE = 100
"""Failures in a row after which a study gives up: something other than the configurations is wrong then."""


@dataclass
class Budget:
    """What a run may use; only distinct measured configurations count as trials.

    Illegal and failed configurations cost time but no trials. Trials include those of earlier runs of the
    study, the seconds are those of this run.
    """

    trials: int | None
    """Measured configurations of the whole study; None for no limit."""
    time_s: float | None
    """Seconds of this run; None for no limit."""
    patience: int | None = PATIENCE
    """Failures in a row; None where every configuration is to be tried anyway."""
    clock: Callable[[], float] = time.monotonic
    failures_in_a_row: int = 0
    _started: float = field(init=False)

    def __post_init__(self) -> None:
        self._started = self.clock()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run began."""
        return self.clock() - self._started

    def note(self, timed: bool) -> None:
        """Counts one finished trial of this run."""
        self.failures_in_a_row = 0 if timed else self.failures_in_a_row + 1

    def allows(self, measured: int, in_flight: int = 0) -> bool:
        """Whether one more configuration may be begun beside those measured and those in flight."""
        return not self.verdict(measured + in_flight)

    def verdict(self, measured: int) -> str:
        """Why the run is over, as a note for the user; empty while it is not."""
        if self.trials is not None and measured >= self.trials:
            return f"all {self.trials} trials are done"
        if self.time_s is not None and self.elapsed_s >= self.time_s:
            return f"the time of {self.time_s:g} s is used up"
        if self.patience is not None and self.failures_in_a_row >= self.patience:
            return f"gave up after {self.failures_in_a_row} failures in a row"
        return ""

    def time_left_s(self, measured: int, measured_now: int) -> float | None:
        """Estimated seconds to the end, from the pace of this run; None while there is nothing to go by."""
        estimates = []
        if self.time_s is not None:
            estimates.append(max(0.0, self.time_s - self.elapsed_s))
        if self.trials is not None and measured_now:
            estimates.append(max(0, self.trials - measured) * self.elapsed_s / measured_now)
        return min(estimates, default=None)

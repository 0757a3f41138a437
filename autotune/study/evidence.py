"""What an Optuna study has come to so far: finished trials with their times, and those that run."""

from __future__ import annotations

import math
from dataclasses import dataclass

import optuna
from optuna.trial import FrozenTrial, TrialState

from autotune.config import Config
from autotune.space.search_space import SearchSpace
from autotune.study.vocabulary import Vocabulary


@dataclass(frozen=True)
class Finding:
    """A finished trial."""

    config: Config
    log_time: float
    """Infinite where it failed."""


class Evidence:
    """Reads a study's trials once each, in the order in which they end."""

    def __init__(self, space: SearchSpace) -> None:
        self.findings: list[Finding] = []
        self.pending: list[Config] = []
        self._space = space
        self._words = Vocabulary(space)
        self._finished: set[int] = set()
        self._all_finished_below = 0

    def update(self, study: optuna.Study, current: FrozenTrial) -> None:
        """Takes in what has ended since the last call."""
        self.pending = []
        for trial in study.get_trials(deepcopy=False)[self._all_finished_below :]:
            if trial.number in self._finished or trial.number == current.number:
                continue
            config = self._words.decode(trial.params)
            known = config is not None and config in self._space
            if trial.state.is_finished():
                self._finished.add(trial.number)
                if known:
                    assert config is not None
                    self.findings.append(Finding(config, _log_time(trial)))
            elif known:
                assert config is not None
                self.pending.append(config)
        while self._all_finished_below in self._finished:
            self._finished.remove(self._all_finished_below)
            self._all_finished_below += 1

    @property
    def timed(self) -> list[Finding]:
        """Those that did not fail."""
        return [one for one in self.findings if math.isfinite(one.log_time)]

    @property
    def best(self) -> Finding | None:
        """The fastest; None where nothing has worked yet."""
        return min(self.timed, key=lambda one: one.log_time, default=None)


def _log_time(trial: FrozenTrial) -> float:
    if trial.state is not TrialState.COMPLETE or trial.value is None or trial.value <= 0:
        return math.inf
    return math.log(trial.value)

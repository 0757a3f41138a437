"""What proposes the next configuration: an Optuna study in memory, rebuilt from our records in every run."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator

import optuna
from optuna.trial import TrialState

from autotune.config import Config
from autotune.records import Outcome, TrialRecord
from autotune.space.search_space import SearchSpace
from autotune.study.samplers import LegalSampler
from autotune.study.vocabulary import Vocabulary


class Brain:
    """Asks for each legal configuration once; learns from outcomes and from records of other runs."""

    def __init__(self, space: SearchSpace, sampler: LegalSampler) -> None:
        self._words = Vocabulary(space)
        self._space = space
        self._sampler = sampler
        self._open: dict[Config, optuna.Trial] = {}
        self._known: set[Config] = set()
        with _quiet():
            self._study = optuna.create_study(sampler=sampler)

    def ask(self) -> Config | None:
        """A configuration not asked or learnt before; None once there is none left."""
        if len(self._known) >= self._space.count:
            return None
        trial = self._study.ask(self._words.distributions)
        config = self._words.decode(trial.params)
        assert config is not None
        self._known.add(config)
        self._open[config] = trial
        return config

    def claim(self, config: Config) -> bool:
        """Takes in a configuration that is tried here because another problem asked; False where it is known."""
        if config in self._known:
            return False
        self._known.add(config)
        self._sampler.seen.add(config)
        return True

    def tell(self, config: Config, outcome: Outcome) -> None:
        """What became of an asked or claimed configuration."""
        state, value = _verdict(outcome)
        trial = self._open.pop(config, None)
        if trial is None:
            self._add(config, state, value)
        else:
            self._study.tell(trial, value, state)

    def learn(self, records: Iterable[TrialRecord]) -> None:
        """Takes in trials that were not asked here; configurations in flight are left to `tell`."""
        for record in records:
            if record.config in self._known:
                continue
            self._known.add(record.config)
            self._add(record.config, *_verdict(record.outcome))

    def share(self, own: str, sessions: Collection[str]) -> None:
        """Several sessions search the space; this one is `own`."""
        self._sampler.share(own, sessions)

    def _add(self, config: Config, state: TrialState, value: float | None) -> None:
        self._study.add_trial(
            optuna.trial.create_trial(
                state=state,
                value=value,
                params=dict(self._words.encode(config)),
                distributions=self._words.distributions,
            )
        )


def _verdict(outcome: Outcome) -> tuple[TrialState, float | None]:
    # Pruned, since TPE forgets failed trials and would propose their like again.
    return (TrialState.PRUNED, None) if outcome.time_ms is None else (TrialState.COMPLETE, outcome.time_ms)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)

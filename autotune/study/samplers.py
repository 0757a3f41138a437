"""Optuna samplers that propose legal configurations only, each once; they also serve a plain Optuna study.

    LegalSampler      another sampler's proposals, repaired to legal ones (base class of the rest)
    └── RandomLegal   uniform over the legal space, without replacement
        ├── Exhaustive    every legal configuration, in index order
        ├── ModelOrder    best first by a ranking function
        ├── auto.Auto         by a surrogate of the time
        ├── local.Evolution   children of the fastest
        └── hand.Hand         one group of parameters at a time

`suggest` gives the Config of a trial of a plain study.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from autotune.config import Config
from autotune.space.search_space import SearchSpace
from autotune.study.vocabulary import Vocabulary

Ranking = Callable[[Sequence[Config]], Sequence[Config]]
"""Puts configurations in order, the most promising first."""

MODEL_SAMPLE = 20_000
"""How many legal configurations are ranked at most; all of them in smaller spaces."""


def suggest(trial: optuna.Trial, space: SearchSpace) -> Config:
    """The configuration that a plain Optuna study proposes for a trial; raises TrialPruned if it is illegal.

    Pruned rather than failed: TPE learns from pruned trials and forgets failed ones.
    """
    words = Vocabulary(space)
    params = {
        name: trial.suggest_categorical(name, distribution.choices)
        for name, distribution in words.distributions.items()
        if isinstance(distribution, CategoricalDistribution)
    }
    config = words.decode(params)
    if config is None or config not in space:
        raise optuna.TrialPruned(f"not legal: {config}")
    return config


class LegalSampler(BaseSampler):
    """Proposes what `base` would, repaired to a legal configuration that was not proposed or tried before.

    Where the base has nothing to say (at start-up, or as it samples parameters one by one), a uniform draw
    from the legal space stands in. Once every configuration is seen, a study's `optimize` is stopped.
    """

    def __init__(self, space: SearchSpace, base: BaseSampler, seed: int | None = None) -> None:
        self.space = space
        self.base = base
        self.seen: set[Config] = set()
        self._rng = np.random.default_rng(seed)
        self._words = Vocabulary(space)
        self._read: set[int] = set()
        self._all_read_below = 0
        self._own = ""
        self._sessions: tuple[str, ...] = ("",)

    def propose(self, study: optuna.Study, trial: FrozenTrial) -> Config | None:
        """A legal configuration not in `seen`; None where there is none left."""
        proposal = self.base.sample_relative(study, trial, self._words.several)
        raw = self._words.decode({**self._words.singles, **proposal})
        if raw is None:
            return self.draw()
        config = self.space.nearest(raw)
        if config not in self.seen and self.mine(config):
            return config
        return self._unseen_neighbour(config)

    def draw(self) -> Config | None:
        """A uniform draw from the legal configurations not yet seen."""
        wanted = 4 * len(self._sessions)
        for config in self.space.sample(self._rng, wanted):
            if config not in self.seen and self.mine(config):
                return config
        # Most of the space is seen, so leaving that out beforehand pays.
        drawn = self.space.sample(self._rng, wanted, exclude=self.seen)
        return next(filter(self.mine, drawn), drawn[0] if drawn else None)

    def share(self, own: str, sessions: Collection[str]) -> None:
        """From now on `own` is one of several sessions that search the space, and keeps to its own part."""
        if len(self._sessions) == 1 < len(sessions):
            # All may have begun with the same seed.
            self.reseed_rng()
        self._own, self._sessions = own, tuple(sessions)

    def mine(self, config: Config) -> bool:
        """Whether a configuration lies in this session's part.

        It belongs to the session whose name gives the highest hash together with it: the parts do not overlap, and
        a session that some have not heard of yet takes from each of the others alike.
        """
        if len(self._sessions) == 1:
            return True
        key = config.key
        return max(self._sessions, key=lambda name: _hash(f"{name} {key}")) == self._own

    def _anywhere(self) -> int:
        """Some index; the space may have more of them than NumPy's integers go."""
        return int(self._rng.random() * self.space.count) % self.space.count

    def _unseen_neighbour(self, config: Config) -> Config | None:
        around = [config, *self.space.neighbours(config)]
        near = [other for other in around if other not in self.seen and self.mine(other)]
        return near[int(self._rng.integers(len(near)))] if near else self.draw()

    # What Optuna calls.

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """All parameters, from the first trial on."""
        return self._words.distributions

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The texts of one proposal; of an arbitrary known one where all are seen."""
        self._read_trials(study, trial)
        config = self.propose(study, trial) or self.space.at(self._anywhere())
        self.seen.add(config)
        return self._words.encode(config)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """A parameter that is none of the space: the base's business."""
        return self.base.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Passed on to the base."""
        self.base.before_trial(study, trial)

    def after_trial(
        self, study: optuna.Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """Passed on to the base; ends `optimize` when the space is exhausted."""
        self.base.after_trial(study, trial, state, values)
        if len(self.seen) >= self.space.count:
            # Optuna raises where the caller loops with ask and tell: then stopping is the caller's.
            with contextlib.suppress(RuntimeError):
                study.stop()

    def reseed_rng(self) -> None:
        """What Optuna asks for before it runs trials in parallel."""
        self._rng = np.random.default_rng()
        self.base.reseed_rng()

    def _read_trials(self, study: optuna.Study, current: FrozenTrial) -> None:
        for trial in study.get_trials(deepcopy=False)[self._all_read_below :]:
            if trial.number in self._read or trial.number == current.number:
                continue
            config = self._words.decode(trial.params)
            if config is not None and config in self.space:
                self.seen.add(config)
            if trial.state.is_finished() or config is not None:
                self._read.add(trial.number)
        while self._all_read_below in self._read:
            self._read.remove(self._all_read_below)
            self._all_read_below += 1


class RandomLegal(LegalSampler):
    """Uniform over the legal space, without replacement."""

    def __init__(self, space: SearchSpace, seed: int | None = None) -> None:
        super().__init__(space, optuna.samplers.RandomSampler(seed=seed), seed)

    def propose(self, study: optuna.Study, trial: FrozenTrial) -> Config | None:
        """The next draw."""
        return self.draw()


class Exhaustive(RandomLegal):
    """Every legal configuration in index order; of several sessions each begins somewhere else."""

    def __init__(self, space: SearchSpace, seed: int | None = None) -> None:
        super().__init__(space, seed)
        self._first = self._passed = 0
        self._left_to_others: list[Config] = []

    def propose(self, study: optuna.Study, trial: FrozenTrial) -> Config | None:
        """The next one in order that is not seen; what is other workers' part comes last."""
        while self._passed < self.space.count:
            config = self.space.at((self._first + self._passed) % self.space.count)
            self._passed += 1
            if config in self.seen:
                continue
            if self.mine(config):
                return config
            self._left_to_others.append(config)
        while self._left_to_others:
            # Not in order: other workers that are through with their part take from the same.
            config = self._left_to_others.pop(int(self._rng.integers(len(self._left_to_others))))
            if config not in self.seen:
                return config
        return None

    def share(self, own: str, sessions: Collection[str]) -> None:
        """Goes on from a place that no other session is at, lest they try the same until all know of each other."""
        alone = len(self._sessions) == 1
        super().share(own, sessions)
        if alone and len(sessions) > 1:
            self._first, self._passed = self._anywhere(), 0


class ModelOrder(RandomLegal):
    """Best first by a ranking of up to `sample` legal configurations; random draws once those are used up.

    With `distance`, a proposal differs from every one before in at least that many parameters, as long as the
    sample has such: models hold many near copies equal.
    """

    def __init__(
        self,
        space: SearchSpace,
        rank: Ranking,
        seed: int | None = None,
        sample: int = MODEL_SAMPLE,
        distance: int = 1,
    ) -> None:
        super().__init__(space, seed)
        self._ranking = rank
        self._sample = sample
        self._wanted_distance = distance
        self._ranked: list[Config] = []
        self._codes = np.empty((0, 0), dtype=np.int16)
        self._distances = np.empty(0, dtype=np.int16)
        self._measured_against: set[Config] = set()

    def propose(self, study: optuna.Study, trial: FrozenTrial) -> Config | None:
        """The best ranked one that is far enough from those seen."""
        if not self._ranked:
            self._prepare()
        for config in self.seen - self._measured_against:
            self._measured_against.add(config)
            np.minimum(
                self._distances,
                (self._codes != self._words.positions(config)).sum(axis=1),
                out=self._distances,
            )
        for distance in range(self._wanted_distance, 0, -1):
            free = np.flatnonzero(self._distances >= distance)
            if len(free):
                own = (place for place in free if self.mine(self._ranked[place]))
                return self._ranked[next(own, free[0])]
        return self.draw()

    def _prepare(self) -> None:
        everything = self.space.count <= self._sample
        pool = list(self.space) if everything else self.space.sample(self._rng, self._sample)
        self._ranked = list(self._ranking(pool))
        self._codes = np.array([self._words.positions(config) for config in self._ranked], dtype=np.int16)
        self._distances = np.full(len(self._ranked), len(self._codes[0]), dtype=np.int16)


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


def tpe(seed: int | None) -> TPESampler:
    """Optuna's tree-structured Parzen estimator over all parameters jointly."""
    return TPESampler(seed=seed, multivariate=True)

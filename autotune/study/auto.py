"""The default strategy: a surrogate of the time, fitted to the trials there are, says where to look next."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import optuna
from optuna.trial import FrozenTrial

from autotune.columns import Array
from autotune.config import Config
from autotune.space.search_space import SearchSpace
from autotune.study.evidence import Evidence, Finding
from autotune.study.foresight import Estimates, Foresight, Prior, shortened
from autotune.study.improvement import log_expected_improvement
from autotune.study.pool import Pool
from autotune.study.posterior import Posterior
from autotune.study.process import Process
from autotune.study.samplers import RandomLegal

INITIAL = 6
"""Configurations tried before the surrogate has a say, spread over the space."""
PER_PRIOR = 2
"""The same for each other size or GPU that tells what is fast."""
FOLLOWING = 24
"""So long every second trial is the best of the source that agrees most, among those unlike any tried before."""
APART = 2
"""In how many parameters they differ."""
MODEL_LOOK = 500
"""How many of a source's best are looked through for one that does."""
SPREAD_AMONG = 50
"""Of how many random ones each of these is the farthest from those before."""
PROMISING = 0.1
"""Where there is a model, they are spread over this share of the space, the best by it."""
REFIT_SHARE = 12
"""The surrogate is fitted anew after every second trial at first, later after each such part of the trials."""
BOLDNESS = 2.0
"""The surrogate's deviations are multiplied by this, since they are fitted to few trials and too sure."""
LEAST_GAIN = 0.05
"""What lies less than this share of the usual difference below the best is no improvement worth a trial."""
MINE_AMONG = 200
"""How many of the best are looked through for one that is this session's."""
CLOSE_EVERY = 3
"""Every such proposal differs from the best in one parameter, as long as there are such."""
TELLING = 8
"""From so many trials on, it counts how well each source agrees."""
LEAST_AGREEMENT = 0.2
"""Rank correlation below which a source is left out of what is expected."""
TRIALS_LEARNT = 300
"""Of more trials the fastest half and the latest half of this number are learnt from."""


class Auto(RandomLegal):
    """Starting points, then well-spread configurations, then the greatest expected improvement.

    Trials that run are taken to end as expected, so several may be asked for at once. Failed ones count as the
    slowest. With `priors` or a `model`, the surrogate explains what these leave unexplained, and learns how far
    each can be trusted.
    """

    def __init__(
        self,
        space: SearchSpace,
        starts: Sequence[Config] = (),
        model: Estimates | None = None,
        priors: Sequence[Prior] = (),
        seed: int | None = None,
    ) -> None:
        super().__init__(space, seed)
        self._starts = [config for config in starts if config in space]
        self._model, self._priors = model, priors
        self._evidence = Evidence(space)
        self._pool_made: Pool | None = None
        self._surrogate: _Surrogate | None = None
        self._masked: set[Config] = set()
        self._free = np.ones(0, dtype=bool)

    def propose(self, study: optuna.Study, trial: FrozenTrial) -> Config | None:
        """The next one to try."""
        self._evidence.update(study, trial)
        for config in self._starts:
            if config not in self.seen and self.mine(config):
                return config
        if len(self._pool.axes) == 0:
            return self.draw()
        learnt = self._surrogate
        if learnt is None:
            learnt = self._surrogate = _Surrogate(self._pool, self._priors, self._model)
        initial = PER_PRIOR * learnt.foresight.measured or INITIAL
        if len(self.seen) < initial or not self._evidence.timed:
            return self._spread(learnt.foresight)
        if learnt.foresight.measured and len(self.seen) < FOLLOWING:
            # Only against slow ones can it be seen whether a source tells anything.
            if len(self.seen) % 8 == 6:
                return self._spread(None)
            if len(self.seen) % 2 and learnt.agreement.max() > 0:
                return self._spread(learnt.foresight)
        if learnt.take_in(self._evidence.findings, self._evidence.best):
            self._masked.clear()
        score = learnt.score(self._evidence.pending)
        best = self._evidence.best
        if best and len(self.seen) % CLOSE_EVERY == 0:
            changes = (self._pool.codes != self._pool.encode(best.config)).sum(axis=1)
            close = self._best_of(np.where(changes == 1, score, -np.inf))
            if close:
                return close
        return self._best_of(score) or self.draw()

    @property
    def _pool(self) -> Pool:
        if self._pool_made is None:
            self._pool_made = Pool(self.space, self._rng)
        return self._pool_made

    def _spread(self, foresight: Foresight | None) -> Config | None:
        """The farthest from those seen of a few random ones; of the foretold best where there is foresight."""
        pool = self._pool
        self._mask()
        open_places = np.flatnonzero(self._free)
        if not len(open_places):
            return self.draw()
        if foresight:
            open_places = self._promising(foresight, open_places)
        few = self._rng.permutation(open_places)[:SPREAD_AMONG]
        score = np.zeros(len(few))
        if self.seen:
            seen = pool.axes.spread(np.array([pool.encode(config) for config in self.seen]))
            points = pool.axes.spread(pool.codes[few])
            score = np.abs(points[:, None, :] - seen[None, :, :]).sum(axis=2).min(axis=1)
        for place in few[np.argsort(-score, kind="stable")]:
            config = pool.config(pool.codes[place])
            if self.mine(config):
                return config
        return self.draw()

    def _promising(self, foresight: Foresight, places: Array) -> Array:
        """Those of the places that foresight holds for the best; one alone where it rests on measurements."""
        pool = self._pool
        foretold = foresight.of_pool()[places]
        tried = len(self.seen.difference(self._starts))
        if not foresight.measured:
            kept = max(1, round(PROMISING * len(places))) if tried else 1
            return np.asarray(places[np.argsort(foretold.mean(axis=1), kind="stable")[:kept]])
        source = self._most_agreeing(foresight, tried)
        order = places[np.argsort(foretold[:, source], kind="stable")]
        for place in order[:MODEL_LOOK]:
            # Near copies of what was tried would teach little.
            row = pool.codes[place]
            if all((row != other).sum() >= APART for other in map(pool.encode, self.seen)):
                return np.array([place])
        return order[:1]

    def _most_agreeing(self, foresight: Foresight, tried: int) -> int:
        """Each source in its turn at first, later the one whose times go best with those measured."""
        if tried < PER_PRIOR * foresight.measured or self._surrogate is None:
            return tried % foresight.measured
        return int(self._surrogate.agreement[: foresight.measured].argmax())

    def _best_of(self, score: Array) -> Config | None:
        self._mask()
        score = np.where(self._free, score, -np.inf)
        for _ in range(MINE_AMONG):
            place = int(score.argmax())
            if not math.isfinite(score[place]):
                break
            score[place] = -np.inf
            config = self._pool.config(self._pool.codes[place])
            if self.mine(config):
                return config
        return None

    def _mask(self) -> None:
        """Brings up to date which of the pool have not been seen."""
        if len(self._free) != len(self._pool) or not self._masked:
            self._free = np.ones(len(self._pool), dtype=bool)
            self._masked = set()
        new = self.seen - self._masked
        self._free[self._pool.places(new)] = False
        self._masked |= new


class _Surrogate:
    """A Gaussian process of the logarithm of the time over a pool of candidates."""

    def __init__(self, pool: Pool, priors: Sequence[Prior], model: Estimates | None) -> None:
        self._pool = pool
        self.foresight = Foresight(pool, priors, model)
        self._process = Process(pool.axes, len(self.foresight))
        if self.foresight.measured:
            self._process.begin_like(self.foresight.processes())
        self._posterior: Posterior | None = None
        self._learnt: list[Finding] = []
        self._taken = self._fitted_at = 0
        self._ahead = np.empty((0, 0))
        self._own_ahead = np.empty((0, 0))
        self.agreement = np.ones(len(self.foresight))
        """Of each column that foretells: the rank correlation with the times measured, 0 where it is too low."""

    def take_in(self, findings: Sequence[Finding], best: Finding | None) -> bool:
        """Learns from all findings there are; gives whether the pool has changed."""
        due = max(2, len(findings) // REFIT_SHARE)
        if self._posterior is None or len(findings) - self._fitted_at >= due:
            self._refit(findings)
            return not self._pool.whole
        for finding in findings[self._taken :]:
            row = self._pool.encode(finding.config)
            ahead = self.foresight.of(row[None, :])
            self._posterior.add(row, ahead[0])
            self._learnt.append(finding)
            self._own_ahead = np.vstack([self._own_ahead, ahead])
        self._taken = len(findings)
        return False

    def _refit(self, findings: Sequence[Finding]) -> None:
        by_time = sorted(findings, key=lambda one: one.log_time)
        self._learnt = list(findings)
        if len(findings) > TRIALS_LEARNT:
            half = TRIALS_LEARNT // 2
            kept = {id(one): one for one in [*by_time[:half], *findings[-half:]]}
            self._learnt = list(kept.values())
        self._pool.follow([one.config for one in by_time])
        codes = np.array([self._pool.encode(one.config) for one in self._learnt])
        self._ahead = self.foresight.of_pool()
        self._own_ahead = self.foresight.of(codes)
        self.agreement = self._agreement()
        self._process.fit(codes, self._own_ahead, self._values(), max(self.foresight.usual_error, 1e-9))
        self._posterior = Posterior(self._process, codes, self._own_ahead, self._pool.codes, self._ahead)
        self._taken = self._fitted_at = len(findings)

    def _values(self) -> Array:
        """What is to be explained: how much slower than foretold."""
        return self._times() - self._mean_of(self._own_ahead)

    def _times(self) -> Array:
        logs = np.array([one.log_time for one in self._learnt])
        gap = self.foresight.gap
        return shortened(logs, None if gap is None else float(logs.min()) + gap)

    def _mean_of(self, ahead: Array) -> Array:
        """What all sources foretell together: their mean by agreement, as far as they agree with the times."""
        weight = self.agreement.sum()
        result: Array = ahead @ self.agreement**2 / weight if weight else np.zeros(len(ahead))
        return result

    def _agreement(self) -> Array:
        if len(self._learnt) < TELLING:
            return np.ones(len(self.foresight))
        ranks = _ranks(self._times())
        found = [np.corrcoef(_ranks(column), ranks)[0, 1] for column in self._own_ahead.T]
        return np.where(np.array(found) > LEAST_AGREEMENT, found, 0.0)

    def score(self, pending: Sequence[Config]) -> Array:
        """The logarithm of the expected improvement that each of the pool promises."""
        assert self._posterior is not None
        rows = np.array([self._pool.encode(config) for config in pending], dtype=np.intp)
        rows = rows.reshape(len(pending), self._pool.codes.shape[1])
        mean, deviation = self._posterior.expect(self._values(), rows, self.foresight.of(rows))
        bound = float(self._times().min()) - LEAST_GAIN * self._process.unit
        return log_expected_improvement(mean + self._mean_of(self._ahead), BOLDNESS * deviation, bound)


def _ranks(values: Array) -> Array:
    return np.argsort(np.argsort(values))

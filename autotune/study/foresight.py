"""What is known of a configuration's time before it is tried: a model's estimate, its times elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.columns import Array
from autotune.config import Config
from autotune.study.pool import Pool
from autotune.study.posterior import Posterior
from autotune.study.process import Process

Estimates = Callable[[Sequence[Config]], Sequence[float]]
"""Times in ms of legal configurations, as a model estimates them."""

TAIL = 0.5
"""How much of what lies just above the median, on a logarithmic scale, counts: the fast end has to be known well."""
CEILING = 0.7
"""The most that counts of it, as a share of the way from the fastest to the median: how slow a slow one is misleads."""
LEAST_WAY = 0.02
"""That way, on a logarithmic scale, where it is shorter."""
LEAST_ERROR = 1.0
"""What foretells is taken to be off by at least this share of its own deviation."""
LEARNT_FROM = 300
"""How many trials of another source are learnt from at most, where it does not know a configuration itself."""


@dataclass(frozen=True)
class Prior:
    """What the same kernel came to elsewhere: at another size, or on another GPU."""

    source: str
    """E.g. `a6000, 4096x4096x4096`."""
    times_ms: Mapping[Config, float]
    """Configurations may be others than those of the space that is searched."""


def shortened(log_times: Array, middle: float | None = None) -> Array:
    """Logarithms of times with the slow end pressed together; failures count as the slowest."""
    finite = np.isfinite(log_times)
    if middle is None:
        middle = float(np.median(log_times[finite]))
    known = np.where(finite, log_times, log_times[finite].max())
    ceiling = CEILING * max(middle - float(known.min()), LEAST_WAY)
    above = np.maximum(known - middle, 0.0)
    return np.where(above > 0, middle + ceiling * (1 - np.exp(-TAIL * above / ceiling)), known)


class Foresight:
    """A column for each source; rows are remembered, since estimates cost time."""

    def __init__(self, pool: Pool, priors: Sequence[Prior] = (), model: Estimates | None = None) -> None:
        self._pool = pool
        self._columns: list[_Learnt | _Estimated] = []
        for prior in priors:
            learnt = _Learnt(pool, prior)
            if learnt.enough:
                self._columns.append(learnt)
        self.measured = len(self._columns)
        """How many columns come from measurements."""
        if model is not None:
            estimated = _Estimated(pool, model)
            if estimated.tells_apart:
                self._columns.append(estimated)
        self._known: dict[bytes, Array] = {}
        self._pooled: tuple[Array, Array] | None = None
        self.gap = float(np.mean([column.gap for column in self._columns])) if self._columns else None
        """How far, on a logarithmic scale, a usual time lies from the fastest; None where nothing is foretold."""
        self.usual_error = 0.0
        """How far off the columns have to be taken to be at least, on a logarithmic scale."""
        if self._columns:
            self.usual_error = LEAST_ERROR * float(self.of(pool.codes).mean(axis=1).std())

    def __len__(self) -> int:
        return len(self._columns)

    def processes(self) -> list[Process]:
        """What the times of each measured source were learnt with."""
        return [column.process() for column in self._columns if isinstance(column, _Learnt)]

    def of(self, codes: Array) -> Array:
        """[rows, sources]: logarithms of times, in the sources' own units less their mean."""
        result = np.zeros((len(codes), len(self)))
        if not len(self):
            return result
        keys = [row.tobytes() for row in codes]
        new = [place for place, key in enumerate(keys) if key not in self._known]
        if new:
            columns = np.column_stack([column(codes[new]) for column in self._columns])
            self._known.update(zip((keys[place] for place in new), columns, strict=True))
        for place, key in enumerate(keys):
            result[place] = self._known[key]
        return result

    def of_pool(self) -> Array:
        """The same of the candidates that the pool holds now."""
        codes = self._pool.codes
        if self._pooled is None or self._pooled[0] is not codes:
            self._pooled = codes, self.of(codes)
        return self._pooled[1]


class _Estimated:
    """A model's estimates."""

    def __init__(self, pool: Pool, model: Estimates) -> None:
        self._pool = pool
        self._model = model
        logs = self._logs(pool.codes)
        self._middle = float(np.median(logs))
        self.gap = self._middle - float(logs.min())
        self._mean = float(shortened(logs).mean())
        self.tells_apart = bool(np.ptp(logs) > 1e-6)

    def _logs(self, codes: Array) -> Array:
        times = np.array(self._model([self._pool.config(row) for row in codes]), dtype=float)
        logs: Array = np.log(np.maximum(times, 1e-9))
        return logs

    def __call__(self, codes: Array) -> Array:
        return shortened(self._logs(codes), self._middle) - self._mean


class _Learnt:
    """Times of a prior; a Gaussian process of its own stands in where it lacks a configuration."""

    def __init__(self, pool: Pool, prior: Prior) -> None:
        self._pool = pool
        self._logs: dict[bytes, float] = {}
        rows, logs = [], []
        for config, time_ms in prior.times_ms.items():
            row = pool.encode_any(config)
            if row is not None and time_ms > 0:
                rows.append(row)
                logs.append(np.log(time_ms))
        self.enough = len(rows) > 1
        if not self.enough:
            return
        short = shortened(np.array(logs))
        self.gap = float(np.median(logs)) - min(logs)
        self._mean = float(short.mean())
        self._logs = {row.tobytes(): float(log) for row, log in zip(rows, short, strict=True)}
        self._codes, self._values = np.array(rows, dtype=np.intp), short
        self._process: Process | None = None

    def __call__(self, codes: Array) -> Array:
        found = np.array([self._logs.get(row.tobytes(), np.nan) for row in codes])
        unknown = np.isnan(found)
        if unknown.any():
            found[unknown] = self._expected(codes[unknown])
        return found - self._mean

    def process(self) -> Process:
        """Fitted to the fastest, and evenly to the rest."""
        if self._process is None:
            order = np.argsort(self._values, kind="stable")
            head, tail = order[: LEARNT_FROM // 3], order[LEARNT_FROM // 3 :]
            step = max(1, -(-len(tail) // (LEARNT_FROM - len(head))))
            chosen = np.concatenate([head, tail[::step]])
            self._codes, self._values = self._codes[chosen], self._values[chosen]
            self._process = Process(self._pool.axes)
            # A third of them is enough to begin with, and takes a tenth of the time.
            for part in (slice(None, None, 3), slice(None)):
                codes = self._codes[part]
                self._process.fit(codes, np.zeros((len(codes), 0)), self._values[part])
        return self._process

    def _expected(self, codes: Array) -> Array:
        process = self.process()
        nothing = np.zeros((len(codes), 0))
        none = np.zeros((len(self._codes), 0))
        posterior = Posterior(process, self._codes, none, codes, nothing)
        mean, _ = posterior.expect(self._values, codes[:0], nothing[:0])
        return mean

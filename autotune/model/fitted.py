"""The closed form with fitted constants, a regression on what it misses, and what is peculiar to each configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from autotune.columns import Array
from autotune.config import Config
from autotune.gpu import GpuSpec
from autotune.model.calibrate import calibrated
from autotune.model.closed_form import prepare, sustained_clock_mhz
from autotune.model.constants import Constants
from autotune.model.features import bounds, describe
from autotune.model.ground import Ground, Table, waves
from autotune.model.measurements import Place
from autotune.model.regression import Regression, fit_regression
from autotune.model.residuals import Shares, expected, settled
from autotune.model.terms import overlapped, taken
from autotune.problem import Problem
from autotune.records import Resources, TrialRecord
from autotune.spec.kernel_spec import KernelSpec

LEAST_TIMES = 20
"""From fewer times nothing is learnt."""
CALIBRATED_ON = 3000
"""Times that constants are fitted to; of more, as many evenly spaced ones."""
NEAREST_PLACES = 24
"""A configuration's own part comes from so many places."""
SETTLING_TIMES = 10.0
"""A place's level counts half where it rests on this many times."""
FADE = 3.0
"""Octaves from the nearest place over which what the regression says is halved."""
SPREAD_LIMIT = 1.5
"""The learnt parts together change a time by no more, as a logarithm."""
BOUND_SMOOTHING = 16.0
"""How sharply times stay above what the multiply-adds alone take: order is kept, and far above nothing changes."""


@dataclass(frozen=True)
class FittedModel:
    """Predicts times of a kernel on a GPU; without measurements it is the closed form."""

    ground: Ground
    constants: Constants
    regression: Regression | None = None
    """None where too little is recorded."""
    left: Array | None = None
    """[configs, places]: what is left of the logarithms, as a multiple of `unit`."""
    levels: Array | None = None
    """[places]: mean of what is left there."""
    unit: float = 1.0
    fill: Array | None = None
    shares: Shares = field(default_factory=Shares)

    @classmethod
    def fit(cls, records: Iterable[TrialRecord], spec: KernelSpec, gpu: GpuSpec) -> FittedModel:
        """A model from all that records tell of the kernel, on this GPU and on others."""
        return cls.on(Ground.of(records, spec, gpu))

    @classmethod
    def on(cls, ground: Ground) -> FittedModel:
        """A model from prepared measurements."""
        table = ground.table
        if table is None or ground.measured.count < LEAST_TIMES:
            return cls(ground, Constants())
        constants = _constants(ground, table)
        features = {**table.features, **bounds(table.terms, constants)}
        missed = table.log_ms - np.log(table.terms.time_ms(constants))
        # Numbered by name, since groups that are left out come by number, and no order of records is to change them.
        by_name = ranks([config.key for config in ground.measured.configs])
        places = ranks([place.problem.label for place in ground.measured.places])
        regression = fit_regression(features, missed, places[table.places], by_name[table.configs])
        over = missed - (regression.expect(features) if regression else 0.0)
        counts = np.bincount(table.places)
        levels = np.bincount(table.places, over) / (counts + SETTLING_TIMES)
        shape = ground.measured.log_ms.shape
        left, fill = np.full(shape, np.nan), np.zeros(shape)
        left[table.configs, table.places] = over - levels[table.places]
        fill[table.configs, table.places] = table.waves
        unit = float(np.nanstd(left)) + 1e-9
        left /= unit
        most = np.argsort(-np.isfinite(left).sum(axis=0), kind="stable")[:NEAREST_PLACES]
        around = [ground.measured.places[number] for number in most]
        apart = np.array([[one.apart(other) for other in around] for one in around])
        shares = settled(left[:, most], apart, fill[:, most])
        return cls(ground, constants, regression, left, levels, unit, fill, shares)

    @property
    def learnt(self) -> bool:
        """Whether there were measurements enough to learn from."""
        return self.left is not None

    @cached_property
    def _rows(self) -> dict[Config, int]:
        return {config: row for row, config in enumerate(self.ground.measured.configs)}

    def place(self, problem: Problem, protocol: str | None = None) -> Place:
        """Where a prediction is made: this GPU, the kernel as measured last, the usual protocol."""
        places = self.ground.measured.places
        if not places:
            return Place(self.ground.gpu, problem, "", protocol or "")
        usual = Counter(place.protocol for place in places).most_common(1)[0][0]
        return Place(self.ground.gpu, problem, places[-1].kernel_hash, protocol or usual)

    def predict(
        self,
        problem: Problem,
        configs: Sequence[Config],
        resources: Sequence[Resources | None] | None = None,
        protocol: str | None = None,
    ) -> list[float]:
        """Times in ms of legal configs; resources not given are those recorded for the config, else estimated."""
        if not configs:
            return []
        place = self.place(problem, protocol)
        known = self.ground.measured.resources_of(configs, place.gpu)
        given = resources or [None] * len(configs)
        filled = [one or other for one, other in zip(given, known, strict=True)]
        prepared = prepare(self.ground.spec, place.gpu, problem, configs, filled)
        base_ms = prepared.terms.time_ms(self.constants)
        if not self.learnt:
            return [float(one) for one in base_ms]
        features = describe(self.ground.spec, prepared, self.constants)
        learnt = self.regression.expect(features) if self.regression else np.zeros(len(configs))
        learnt = (
            learnt * 2 ** (-self.ground.apart(place).min() / FADE)
            + self._level(place)
            + self._own(place, configs, waves(prepared, place.gpu))
        )
        times_ms = base_ms * np.exp(np.clip(learnt, -SPREAD_LIMIT, SPREAD_LIMIT))
        # What is learnt knows no peak, and beyond the sizes measured it would exceed it.
        least_ms = prepared.terms.least_ms() * sustained_clock_mhz(place.gpu) / place.gpu.max_clock_mhz
        return [float(one) for one in overlapped(BOUND_SMOOTHING, times_ms, least_ms)]

    def _level(self, place: Place) -> float:
        """What is left at the places around."""
        assert self.levels is not None
        near = np.exp(-self.ground.apart(place))
        # One more place that says 0, an octave away.
        return float((near * self.levels).sum() / (near.sum() + np.exp(-1)))

    def _own(self, place: Place, configs: Sequence[Config], fill: Array) -> Array:
        """What is left of each configuration's times at its other places."""
        assert self.left is not None
        assert self.fill is not None
        measured = self.ground.measured
        order = self._rows
        result = np.zeros(len(configs))
        seen = np.array([at for at, config in enumerate(configs) if config in order], dtype=np.intp)
        if not len(seen):
            return result
        rows = np.array([order[configs[at]] for at in seen])
        away = self.ground.apart(place)
        near = np.argsort(away, kind="stable")[:NEAREST_PLACES]
        between = np.array(
            [[measured.places[one].apart(measured.places[other]) for other in near] for one in near]
        )
        left, filled = self.left[np.ix_(rows, near)], self.fill[np.ix_(rows, near)]
        result[seen] = self.unit * expected(left, between, filled, away[near], fill[seen], self.shares)
        return result


def ranks(names: Sequence[str]) -> Array:
    """The place of each in the order of names; those of equal names follow each other as they came."""
    found = np.empty(len(names), dtype=np.intp)
    found[np.argsort(np.array(names, dtype=object), kind="stable")] = np.arange(len(names))
    return found


def _constants(ground: Ground, table: Table) -> Constants:
    """Fitted on this GPU's times where there are enough, else on all."""
    own = [place.gpu.identity.key == ground.gpu.identity.key for place in ground.measured.places]
    rows = np.flatnonzero(np.array(own)[table.places])
    if len(rows) < LEAST_TIMES:
        rows = np.arange(len(table.places))
    rows = rows[:: max(1, -(-len(rows) // CALIBRATED_ON))]
    return calibrated(taken(table.terms, rows), table.log_ms[rows])

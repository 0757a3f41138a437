"""Ridge regression on features and on products of the most telling of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from autotune.columns import Array

PAIRED = 24
"""Products are made of this many features: those that by themselves explain most."""
HOLDS = tuple((strength, caution) for strength in (10.0, 100.0, 1e3, 1e4, 1e5) for caution in (3.0, 100.0))
"""How strongly weights are held towards zero, in rows that say "no effect", and how much more so those of products."""
FIRST_STRENGTH = 100.0
"""For choosing the features that are paired."""
FAR = 3.0
"""Features are cut off at this many standard deviations: nothing is known of what lies beyond."""


MOST_GROUPS = 8
"""Into how many groups places, and configurations, are put to choose the hold."""
CHOSEN_ON = 6000
"""Of more times, as many evenly spaced ones choose the hold."""


@dataclass(frozen=True)
class Regression:
    """A fitted one."""

    names: tuple[str, ...]
    """Of the features that vary."""
    middle: Array
    unit: Array
    paired: Array
    """Places of the paired features."""
    weights: Array
    """Of the features, then of the products."""
    offset: float
    """What the weights say on average."""
    hold: tuple[float, float]

    def expect(self, features: Mapping[str, Array]) -> Array:
        """What the features say, 0 on average over what was learnt from."""
        matrix = _matrix(_scaled(features, self.names, self.middle, self.unit), self.paired)
        return np.asarray(matrix @ self.weights - self.offset)


def fit_regression(
    features: Mapping[str, Array], values: Array, places: Array, configs: Array
) -> Regression | None:
    """What explains differences between values of one place best; None where no feature varies.

    `places` and `configs` are whole numbers. What a place has in common is left out, lest the regression take which
    configurations were tried at a size for an effect of them. The hold is the one with which configurations left out
    are explained best at places left out.
    """
    names = tuple(name for name, column in features.items() if np.ptp(column) > 1e-9)
    if not names:
        return None
    middle = np.array([features[name].mean() for name in names])
    unit = np.array([features[name].std() for name in names])
    scaled = _scaled(features, names, middle, unit)
    values = _centred(values[:, None], places)[:, 0]
    alone = _centred(scaled, places)
    first = _solve(alone.T @ alone, alone.T @ values, np.full(len(names), FIRST_STRENGTH))
    paired = np.sort(np.argsort(-np.abs(first), kind="stable")[:PAIRED])
    matrix = _matrix(scaled, paired)
    average = matrix.mean(axis=0)
    matrix = _centred(matrix, places)
    single = len(names)
    whole, pull = matrix.T @ matrix, matrix.T @ values
    hold = _best_hold(matrix, values, places % MOST_GROUPS, configs % MOST_GROUPS, single)
    weights = _solve(whole, pull, _held(hold, single, matrix.shape[1]))
    return Regression(names, middle, unit, paired, weights, float(average @ weights), hold)


def _best_hold(
    matrix: Array, values: Array, places: Array, configs: Array, single: int
) -> tuple[float, float]:
    """The one with which new configurations are explained best, at new places where there are several."""
    few = np.arange(0, len(values), -(-len(values) // CHOSEN_ON))
    matrix, values, places, configs = matrix[few], values[few], places[few], configs[few]
    errors = np.zeros(len(HOLDS))
    kinds, folds = np.unique(places), np.unique(configs)
    cells = {
        (fold, kind): np.flatnonzero((configs == fold) & (places == kind)) for fold in folds for kind in kinds
    }
    # What is left without some groups is a sum over cells, so that each row is multiplied only once.
    sums = {cell: _sums(matrix[rows], values[rows]) for cell, rows in cells.items()}
    of_fold = {fold: np.sum([sums[fold, kind] for kind in kinds], axis=0) for fold in folds}
    of_kind = {kind: np.sum([sums[fold, kind] for fold in folds], axis=0) for kind in kinds}
    whole = np.sum(list(of_fold.values()), axis=0)
    for fold in folds:
        kind = kinds[fold % len(kinds)]
        asked, known = cells[fold, kind], configs != fold
        rest = whole - of_fold[fold]
        if len(kinds) > 1:
            known &= places != kind
            rest = rest - of_kind[kind] + sums[fold, kind]
        if not len(asked) or not known.any():
            continue
        for number, hold in enumerate(HOLDS):
            weights = _solve(rest[:, :-1], rest[:, -1], _held(hold, single, matrix.shape[1]))
            errors[number] += float(np.square(values[asked] - matrix[asked] @ weights).sum())
    return HOLDS[int(np.argmin(errors))] if errors.any() else HOLDS[-1]


def _sums(matrix: Array, values: Array) -> Array:
    """What least squares needs of some rows: products of the columns, and in the last column those with the values."""
    return np.column_stack([matrix.T @ matrix, matrix.T @ values])


def _held(hold: tuple[float, float], single: int, count: int) -> Array:
    strength, caution = hold
    held = np.full(count, strength * caution)
    held[:single] = strength
    return held


def _centred(matrix: Array, places: Array) -> Array:
    """Less the mean of each place."""
    numbers, counts = np.unique(places, return_inverse=True, return_counts=True)[1:]
    means = (numbers == np.arange(len(counts))[:, None]) @ matrix / counts[:, None]
    return np.asarray(matrix - means[numbers])


def _solve(square: Array, pull: Array, hold: Array) -> Array:
    return np.asarray(np.linalg.solve(square + np.diag(hold), pull))


def _scaled(features: Mapping[str, Array], names: tuple[str, ...], middle: Array, unit: Array) -> Array:
    # What is not known here lies in the middle.
    rows = len(next(iter(features.values())))
    raw = np.column_stack(
        [features.get(name, np.full(rows, usual)) for name, usual in zip(names, middle, strict=True)]
    )
    return np.asarray(np.clip((raw - middle) / unit, -FAR, FAR))


def _matrix(scaled: Array, paired: Array) -> Array:
    """The features and the products of the paired ones."""
    chosen = scaled[:, paired]
    left, right = np.triu_indices(len(paired))
    return np.hstack([scaled, chosen[:, left] * chosen[:, right]])

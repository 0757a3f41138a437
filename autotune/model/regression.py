"""Ridge regression on features and on products of the most telling of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from autotune.columns import Array

PAIRED = 24
"""Products are made of this many features: those that by themselves explain most."""
PAIR_CAUTION = 4.0
"""How much more strongly the weights of products are held towards zero."""
STRENGTHS = (1.0, 10.0, 100.0, 1000.0, 10000.0)
"""Of the hold towards zero, in rows that say "no effect"; which one, held-out groups decide."""
FIRST_STRENGTH = 30.0
"""For choosing the features that are paired, and where there is a single group."""
FAR = 3.0
"""Features are cut off at this many standard deviations: nothing is known of what lies beyond."""


MOST_GROUPS = 12
"""Into how many groups places are put to choose the strength."""


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
    strength: float

    def expect(self, features: Mapping[str, Array]) -> Array:
        """What the features say, 0 on average over what was learnt from."""
        matrix = _matrix(_scaled(features, self.names, self.middle, self.unit), self.paired)
        return np.asarray(matrix @ self.weights - self.offset)


def fit_regression(features: Mapping[str, Array], values: Array, places: Array) -> Regression | None:
    """What explains differences between values of one place best; None where no feature varies.

    `places` are whole numbers. What a place has in common is left out, lest the regression take which configurations
    were tried at a size for an effect of them. The strength is the one with which places left out are explained best.
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
    caution = np.concatenate([np.ones(len(names)), np.full(matrix.shape[1] - len(names), PAIR_CAUTION)])
    whole, pull = matrix.T @ matrix, matrix.T @ values
    strength = _best_strength(matrix, values, places % MOST_GROUPS, caution, whole, pull)
    weights = _solve(whole, pull, strength * caution)
    return Regression(names, middle, unit, paired, weights, float(average @ weights), strength)


def _best_strength(
    matrix: Array, values: Array, groups: Array, caution: Array, whole: Array, pull: Array
) -> float:
    kinds = np.unique(groups).tolist()
    if len(kinds) < 2:
        return FIRST_STRENGTH
    errors = np.zeros(len(STRENGTHS))
    for kind in kinds:
        own, wanted = matrix[groups == kind], values[groups == kind]
        square, own_pull = whole - own.T @ own, pull - own.T @ wanted
        for place, strength in enumerate(STRENGTHS):
            miss = wanted - own @ _solve(square, own_pull, strength * caution)
            errors[place] += float(np.square(miss).sum())
    return STRENGTHS[int(np.argmin(errors))]


def _centred(matrix: Array, places: Array) -> Array:
    """Less the mean of each place."""
    centred = np.empty_like(matrix)
    for place in np.unique(places):
        rows = places == place
        centred[rows] = matrix[rows] - matrix[rows].mean(axis=0)
    return centred


def _solve(square: Array, pull: Array, hold: Array) -> Array:
    return np.asarray(np.linalg.solve(square + np.diag(hold), pull))


def _scaled(features: Mapping[str, Array], names: tuple[str, ...], middle: Array, unit: Array) -> Array:
    raw = np.column_stack([features[name] for name in names])
    return np.asarray(np.clip((raw - middle) / unit, -FAR, FAR))


def _matrix(scaled: Array, paired: Array) -> Array:
    """The features and the products of the paired ones."""
    chosen = scaled[:, paired]
    left, right = np.triu_indices(len(paired))
    return np.hstack([scaled, chosen[:, left] * chosen[:, right]])

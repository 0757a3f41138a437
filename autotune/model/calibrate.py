"""Fits the closed form's constants to measured times: damped least squares on the logarithm, outliers held back."""

from __future__ import annotations

import numpy as np

from autotune.columns import Array
from autotune.model.constants import CONSTANT_NAMES, Constants
from autotune.model.terms import RooflineTerms, StepTerms

PRIOR_WIDTH = 0.5
"""Standard deviation of the logarithm of a constant around its default."""
MISS = 0.2
"""Standard deviation of the logarithm of a time around the closed form's, that of one that fits well."""
COUNTED = 100.0
"""More times than this say no more about the constants: the closed form is wrong in the same way in all of them."""
FARTHEST = 1.2
"""No constant ends up farther from its default, as the logarithm of the ratio."""
ROUNDS = 12
STEP = 0.02
"""For slopes."""


def calibrated(terms: StepTerms | RooflineTerms, log_ms: Array) -> Constants:
    """The constants that explain the times best, held near their defaults where the times do not tell."""
    logs = np.zeros(len(CONSTANT_NAMES))
    share = min(1.0, COUNTED / max(1, len(log_ms)))

    def miss(at: Array) -> Array:
        return np.asarray(log_ms - np.log(np.maximum(terms.time_ms(Constants.scaled(at)), 1e-12)))

    def loss(missed: Array, at: Array) -> float:
        size = np.abs(missed) / MISS
        huber = np.where(size <= 1, size**2, 2 * size - 1)
        return float(share * huber.sum() + np.square(at / PRIOR_WIDTH).sum())

    missed = miss(logs)
    best = loss(missed, logs)
    damping = 1.0
    for _ in range(ROUNDS):
        slopes = np.column_stack([(missed - miss(logs + STEP * unit)) / STEP for unit in np.eye(len(logs))])
        weight = share / MISS**2 / np.maximum(1.0, np.abs(missed) / MISS)
        square = (slopes * weight[:, None]).T @ slopes + np.eye(len(logs)) / PRIOR_WIDTH**2
        pull = (slopes * weight[:, None]).T @ missed - logs / PRIOR_WIDTH**2
        for _ in range(4):
            step = np.linalg.solve(square + damping * np.diag(np.diag(square)), pull)
            tried = np.clip(logs + step, -FARTHEST, FARTHEST)
            missed_there = miss(tried)
            there = loss(missed_there, tried)
            if there < best:
                break
            damping *= 5
        else:
            break
        gained = best - there
        logs, missed, best, damping = tried, missed_there, there, damping / 5
        if gained < 1e-3 * best:
            break
    return Constants.scaled(logs)

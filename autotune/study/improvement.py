"""The expected improvement of a normally distributed value below a bound, on a logarithmic scale."""

from __future__ import annotations

import math

import numpy as np

from autotune.columns import Array

_GRID = np.linspace(-6.0, 6.0, 2401)
_BELOW = np.array([math.erfc(-z / math.sqrt(2)) / 2 for z in _GRID.tolist()])


def log_expected_improvement(mean: Array, deviation: Array, bound: float) -> Array:
    """log E[max(0, bound - x)]; far above the bound by its asymptote, so that even small chances keep an order."""
    z = (bound - mean) / deviation
    result: Array = -z * z / 2 - math.log(math.sqrt(2 * math.pi)) - 2 * np.log(np.maximum(-z, 1.0))
    near = np.flatnonzero(z > -4)
    z = z[near]
    density = np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    result[near] = np.log(np.maximum(density + z * np.interp(z, _GRID, _BELOW), 1e-12))
    result += np.log(deviation)
    return result

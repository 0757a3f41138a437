"""What is peculiar to a configuration, learnt from its other places.

What is left of the logarithm of its times is taken for a random function over places: a part that is the same
everywhere, a part that places share the more the nearer they are, and noise. The expectation at a new place
given the others (kriging: Krige, 1951; the same as a Gaussian process) weighs near ones more, and comes out
the smaller the fewer there are. Near means: in the sizes, and in how the configuration fills the GPU there.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from autotune.columns import Array

NOWHERE = 1e6
"""Variance of the noise where there is no time."""
SETTLE_ON = 400
"""Configurations that the shares are chosen on, those with most places."""
FIRST_ON = 80
"""All choices are tried on so many of these, and the best few of them on the rest, too."""
LAST_CHOICES = 6


@dataclass(frozen=True)
class Shares:
    """Variances, that of all residuals being 1, and reaches."""

    everywhere: float = 0.3
    nearby: float = 0.5
    reach: float = 2.0
    """Octaves of size after which nearness has fallen by e."""
    fill_reach: float = 1.5
    """Likewise of the number of waves."""
    noise: float = 0.1


CHOICES = tuple(
    Shares(everywhere, 1 - everywhere, reach, fill_reach, noise)
    for everywhere, reach, fill_reach, noise in product(
        (0.15, 0.4, 0.7), (1.0, 2.0, 4.0), (1.0, 3.0), (0.03, 0.15, 0.5)
    )
)


def expected(
    left: Array, apart: Array, fill: Array, new_apart: Array, new_fill: Array, shares: Shares
) -> Array:
    """[configs]: the expected residual at a new place.

    `left` [configs, places] with gaps as NaN, `apart` [places, places] and `new_apart` [places] in octaves, `fill`
    [configs, places] and `new_fill` [configs] as binary logarithms of waves.
    """
    covariance = _covariance(left, apart, fill, shares)
    near = np.exp(-new_apart / shares.reach - np.abs(fill - new_fill[:, None]) / shares.fill_reach)
    weights = np.linalg.solve(covariance, (shares.everywhere + shares.nearby * near)[..., None])[..., 0]
    return np.asarray((weights * np.nan_to_num(left)).sum(axis=1))


def settled(left: Array, apart: Array, fill: Array) -> Shares:
    """The shares by which each residual is expected best from the configuration's other places."""
    enough = np.isfinite(left).sum(axis=1)
    rows = np.argsort(-enough, kind="stable")[:SETTLE_ON]
    rows = rows[enough[rows] >= 2]
    if len(rows) < 2:
        return Shares()
    left, fill = left[rows], fill[rows]
    some = slice(None, None, max(1, len(left) // FIRST_ON))
    first = [_error(left[some], apart, fill[some], shares) for shares in CHOICES]
    promising: list[Shares] = [CHOICES[number] for number in np.argsort(first, kind="stable")[:LAST_CHOICES]]
    errors = [_error(left, apart, fill, shares) for shares in promising]
    return promising[int(np.argmin(errors))]


def _error(left: Array, apart: Array, fill: Array, shares: Shares) -> float:
    inverse = np.linalg.inv(_covariance(left, apart, fill, shares))
    pulled = (inverse @ np.nan_to_num(left)[..., None])[..., 0]
    # The error of each one left out (Dubrule, 1983).
    errors = pulled / np.diagonal(inverse, axis1=1, axis2=2)
    return float(np.square(errors[np.isfinite(left)]).mean())


def _covariance(left: Array, apart: Array, fill: Array, shares: Shares) -> Array:
    fill_apart = np.abs(fill[:, :, None] - fill[:, None, :])
    near = np.exp(-apart / shares.reach - fill_apart / shares.fill_reach)
    covariance = shares.everywhere + shares.nearby * near
    noise = np.where(np.isfinite(left), shares.noise, NOWHERE)
    places = np.arange(left.shape[1])
    covariance[:, places, places] += noise
    return np.asarray(covariance)

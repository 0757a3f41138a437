"""A Gaussian process over configurations whose similarity is a sum over single parameters, pairs and all together.

With z the similarity exp(-reach * distance) of two configurations along one parameter, their covariance is

    singles * sum(w_i z_i) + pairs * sum(w_i w_j z_i z_j) + whole * prod(z_i) + sum(trust_k f_k f'_k)

so that what a parameter does by itself is learnt from few trials, what two do together from more, and what is
peculiar to a configuration from its surroundings (additive Gaussian processes: Duvenaud, Nickisch and Rasmussen,
2011). Joint axes, e.g. the ratio of two sizes, take part in the sums but not in the product. f are columns that
foretell the time, such as a model's estimate or the times on another GPU. All factors are set to what explains the
trials best, held near their start by priors, in a few steps of gradient ascent each time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.columns import Array
from autotune.study.axes import Axes

REACH = 0.37
"""Start of `reach`: how quickly similarity ends, per doubling of a value."""
REACH_PRIOR, WEIGHT_PRIOR, SCALE_PRIOR = 0.5, 0.7, 1.5
"""Standard deviations of the logarithms of the factors around their start."""
JOINT = 0.5
"""Start of a joint axis' weight, that of a parameter being 1."""
WHOLE = 0.3
NOISE = 1e-3
"""Start of the noise's variance, that of all times being 1."""
TRUST = 0.5
"""Start of the trust in a column that foretells."""
LEAST_NOISE = 1e-5
FIRST_STEPS, STEPS = 40, 8
"""How many steps are taken at the first fit and at every later one."""
RATE = 0.1
"""Step size in the logarithms of the factors."""
GRADIENT_MEMORY, SQUARE_MEMORY = 0.8, 0.95
"""How much of the earlier gradients and of their squares each step keeps (Adam: Kingma and Ba, 2015)."""


class Process:
    """The factors, and how they are fitted."""

    def __init__(self, axes: Axes, columns: int = 0) -> None:
        self.axes = axes
        n = len(axes)
        self._n = n
        weights = np.where(np.arange(n) < axes.single, 1.0, JOINT)
        total = weights.sum()
        scales = [1 / total, 2 / total**2, WHOLE]
        self._start: Array = np.log(
            np.concatenate([np.full(n, REACH), weights, scales, np.full(columns, TRUST), [NOISE]])
        )
        self._width = np.concatenate(
            [np.full(n, REACH_PRIOR), np.full(n, WEIGHT_PRIOR), np.full(4 + columns, SCALE_PRIOR)]
        )
        self._logs = self._start.copy()
        self._gradient = np.zeros_like(self._logs)
        self._square = np.zeros_like(self._logs)
        self._steps = 0
        self.middle, self.unit = 0.0, 1.0
        """Mean and standard deviation of the values of the last fit."""
        self._unpack()

    def begin_like(self, others: Sequence[Process]) -> None:
        """Starts from how far similarity reaches and which parameters weigh in others of the same axes."""
        n = 2 * self._n + 3
        logs = np.mean([other._logs for other in others], axis=0)
        self._start[:n] = logs[:n]
        self._logs = self._start.copy()

    def _unpack(self) -> None:
        n = self._n
        factors = np.exp(self._logs)
        self._reach, self._weight = factors[:n], factors[n : 2 * n]
        self._singles, self._pairs, self._whole = factors[2 * n : 2 * n + 3]
        self.trust = factors[2 * n + 3 : -1]
        """Of each column that foretells."""
        self.noise = float(factors[-1]) + LEAST_NOISE

    def variance(self, foretold: Array) -> Array:
        """[rows]: of configurations before any trial."""
        total = self._weight.sum()
        pairs = (total**2 - (self._weight**2).sum()) / 2
        own: Array = self._singles * total + self._pairs * pairs + self._whole + foretold**2 @ self.trust
        return own

    def covariance(self, codes: Array, foretold: Array, one_hot: Array, others: Array) -> Array:
        """[rows, others]: between rows of codes and one-hot rows; float32, since it is large."""
        sums, exponents = [], []
        for place, (table, rows) in enumerate(zip(self.axes.apart, self.axes.places(codes), strict=True)):
            exponent = -self._reach[place] * table[rows]
            exponents.append(exponent)
            sums.append(self._weight[place] * np.exp(exponent))
        tables = np.hstack(sums).astype(np.float32)
        first = tables @ one_hot.T
        squares = (tables * tables) @ one_hot.T
        single = np.hstack(exponents[: self.axes.single]).astype(np.float32)
        result: Array = single @ one_hot[:, : self.axes.single_width].T
        np.exp(result, out=result)
        result *= np.float32(self._whole)
        squares -= first * first
        squares *= np.float32(-self._pairs / 2)
        result += squares
        first *= np.float32(self._singles)
        result += first
        if len(self.trust):
            result += ((foretold * self.trust) @ others.T).astype(np.float32)
        return result

    def fit(self, codes: Array, foretold: Array, values: Array, least_unit: float = 1e-9) -> None:
        """Moves the factors towards what explains the values best."""
        self.middle, self.unit = float(values.mean()), max(float(values.std()), least_unit)
        wanted = (values - self.middle) / self.unit
        distances = self.axes.distances(codes).astype(np.float32)
        for _ in range(STEPS if self._steps else FIRST_STEPS):
            self._climb(self._slope(distances, foretold, wanted))
        self._unpack()

    def _slope(self, distances: Array, foretold: Array, wanted: Array) -> Array:
        """The gradient of the log posterior with regard to the logarithms of the factors.

        What there is for each axis has the precision of `distances`: most of the time goes there.
        """
        self._unpack()
        n, single = self._n, self.axes.single
        exact = distances.dtype
        lengths = distances * self._reach.astype(exact)[:, None, None]
        parts = np.exp(-lengths)
        parts *= self._weight.astype(exact)[:, None, None]
        first = parts.sum(axis=0, dtype=np.float64)
        second = (first**2 - np.einsum("kij,kij->ij", parts, parts)) / 2
        whole = self._whole * np.exp(-lengths[:single].sum(axis=0, dtype=np.float64))
        matrix = self._singles * first + self._pairs * second + whole + (foretold * self.trust) @ foretold.T
        matrix[np.diag_indices_from(matrix)] += self.noise
        inverse = np.linalg.inv(matrix)
        pull = inverse @ wanted
        towards = (np.outer(pull, pull) - inverse) / 2
        slope: Array = np.empty_like(self._logs)
        base = towards * (self._singles + self._pairs * first)
        each = parts * (self._pairs * towards).astype(exact)
        np.subtract(base.astype(exact), each, out=each)
        each *= parts
        towards_whole = towards * whole
        slope[:n] = -np.einsum("kij,kij->k", lengths, each)
        slope[:single] -= np.einsum("kij,ij->k", lengths[:single], towards_whole)
        slope[n : 2 * n] = each.sum(axis=(1, 2))
        slope[2 * n] = self._singles * (towards * first).sum()
        slope[2 * n + 1] = self._pairs * (towards * second).sum()
        slope[2 * n + 2] = towards_whole.sum()
        slope[2 * n + 3 : -1] = self.trust * ((towards @ foretold) * foretold).sum(axis=0)
        slope[-1] = self.noise * np.trace(towards)
        slope -= (self._logs - self._start) / self._width**2
        return slope

    def _climb(self, slope: Array) -> None:
        self._steps += 1
        self._gradient += (1 - GRADIENT_MEMORY) * (slope - self._gradient)
        self._square += (1 - SQUARE_MEMORY) * (slope**2 - self._square)
        gradient = self._gradient / (1 - GRADIENT_MEMORY**self._steps)
        square = self._square / (1 - SQUARE_MEMORY**self._steps)
        self._logs = self._logs + RATE * gradient / (np.sqrt(square) + 1e-8)

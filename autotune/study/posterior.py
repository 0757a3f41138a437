"""What a Gaussian process expects of each candidate after the trials there are; grows by one trial at a time."""

from __future__ import annotations

import math

import numpy as np

from autotune.columns import Array
from autotune.study.process import Process

ROOM = 16
"""For how many further trials room is made at once."""


class Posterior:
    """Mean and deviation of every candidate, in the unit of the values."""

    def __init__(
        self, process: Process, codes: Array, foretold: Array, candidates: Array, their_foretold: Array
    ) -> None:
        """`codes` are the trials, `candidates` as well as theirs rows of codes."""
        self._process = process
        self._one_hot = process.axes.one_hot(candidates)
        self._foretold = their_foretold
        own = process.covariance(codes, foretold, process.axes.one_hot(codes), foretold).astype(np.float64)
        own = (own + own.T) / 2
        own[np.diag_indices_from(own)] += process.noise + 1e-5
        self._inverse = np.linalg.inv(np.linalg.cholesky(own))
        shared = process.covariance(codes, foretold, self._one_hot, their_foretold)
        self._rows = self._inverse.astype(np.float32) @ shared
        """[trials or more, candidates]: what each trial explains; there is room for further ones below."""
        self._codes, self._trial_foretold = codes, foretold
        variance = process.variance(their_foretold)
        self._variance = variance - np.einsum("ij,ij->j", self._rows, self._rows)

    @property
    def _explained(self) -> Array:
        return self._rows[: len(self._codes)]

    def __len__(self) -> int:
        return len(self._codes)

    def add(self, codes: Array, foretold: Array) -> None:
        """Takes in one more trial: a row of codes."""
        row, pivot, along = self._row(codes, foretold, self._codes, self._trial_foretold, self._explained)
        n = len(self._codes)
        inverse = np.zeros((n + 1, n + 1))
        inverse[:n, :n] = self._inverse
        inverse[n, :n] = -(along @ self._inverse) / pivot
        inverse[n, n] = 1 / pivot
        self._inverse = inverse
        if n == len(self._rows):
            self._rows = np.vstack([self._rows, np.empty((ROOM, len(row)), dtype=np.float32)])
        self._rows[n] = row
        self._variance = self._variance - row.astype(np.float64) ** 2
        self._codes = np.vstack([self._codes, codes])
        self._trial_foretold = np.vstack([self._trial_foretold, foretold])

    def _row(
        self, codes: Array, foretold: Array, trials: Array, theirs: Array, explained: Array
    ) -> tuple[Array, float, Array]:
        """What a further trial would explain of each candidate, its pivot, and its row of the triangle."""
        process = self._process
        one, ahead = codes[None, :], foretold[None, :]
        to_trials = process.covariance(one, ahead, process.axes.one_hot(trials), theirs)[0].astype(np.float64)
        along = self._inverse @ to_trials
        rest = float(process.variance(ahead)[0]) + process.noise + 1e-5 - along @ along
        pivot = math.sqrt(max(rest, 1e-6))
        to_candidates = process.covariance(one, ahead, self._one_hot, self._foretold)[0]
        row = (to_candidates - along.astype(np.float32) @ explained) / np.float32(pivot)
        return row, pivot, along

    def expect(self, values: Array, pending: Array, pending_foretold: Array) -> tuple[Array, Array]:
        """Mean and deviation of every candidate, given the trials' values and what runs already.

        Those that run are taken to end as expected: that leaves the mean as it is, and the deviation shrinks.
        """
        process = self._process
        weights = self._inverse @ ((values - process.middle) / process.unit)
        mean = (weights.astype(np.float32) @ self._explained).astype(np.float64)
        variance = self._variance
        if len(pending):
            grown = Posterior.__new__(Posterior)
            # Rows that it adds lie beyond those of this one, which overwrites them in its turn.
            grown.__dict__.update(self.__dict__)
            for codes, foretold in zip(pending, pending_foretold, strict=True):
                grown.add(codes, foretold)
            variance = grown._variance
        deviation = np.sqrt(np.maximum(variance, 1e-8))
        return process.middle + process.unit * mean, process.unit * deviation

"""The candidates that a surrogate chooses from: the whole legal space, or of a large one a sample and what is near."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from autotune.columns import Array
from autotune.config import Config, Value
from autotune.space.search_space import SearchSpace
from autotune.study.axes import Axes

WHOLE = 20_000
"""Spaces of up to this many configurations are looked at as a whole."""
SAMPLE = 3_000
"""How many of a larger one are drawn at random."""
REPLACED = 500
"""How many of them are drawn anew each time the pool follows the search."""
NEAR = 2_000
"""How many of those that differ from the best in one or two parameters are taken in at most."""
CENTRES = 4
"""Around how many of the fastest all single changes are taken in."""


class Pool:
    """Rows of codes, each a legal configuration and each once."""

    def __init__(self, space: SearchSpace, rng: np.random.Generator) -> None:
        self._space = space
        self._rng = rng
        self.whole = space.count <= WHOLE
        """Whether it holds every legal configuration."""
        if self.whole:
            self._sample = space.diagram.codes(np.arange(space.count))
        else:
            self._sample = _draw(space, rng, SAMPLE)
        self._names = [parameter.name for parameter in space.parameters]
        self._codes_of = [
            {repr(value): code for code, value in enumerate(parameter.values)}
            for parameter in space.parameters
        ]
        self.axes = Axes(space.parameters, self._sample)
        self._rows: dict[Config, Array] = {}
        self.codes = self._sample
        self._places: dict[bytes, int] = {}
        self._set(self._sample)

    def __len__(self) -> int:
        return len(self.codes)

    def encode(self, config: Config) -> Array:
        """The row of a configuration."""
        row = self._rows.get(config)
        if row is None:
            places = zip(self._names, self._codes_of, strict=True)
            row = np.array([codes[repr(config[name])] for name, codes in places], dtype=np.intp)
            row.flags.writeable = False
            self._rows[config] = row
        return row

    def encode_any(self, config: Mapping[str, Value]) -> Array | None:
        """The same for one that may have other names or values; None where it has."""
        codes = [
            known.get(repr(config[name])) if name in config else None
            for name, known in zip(self._names, self._codes_of, strict=True)
        ]
        if len(config) != len(codes) or None in codes:
            return None
        return np.array(codes, dtype=np.intp)

    def config(self, row: Array) -> Config:
        """The configuration of a row."""
        pairs = zip(self._space.parameters, row.tolist(), strict=True)
        return Config(tuple((parameter.name, parameter.values[code]) for parameter, code in pairs))

    def places(self, configs: Iterable[Config]) -> list[int]:
        """Where those of the configurations stand that are in the pool."""
        found = (self._places.get(_key(self.encode(config))) for config in configs)
        return [place for place in found if place is not None]

    def follow(self, fastest: Sequence[Config], always: Sequence[Config] = ()) -> None:
        """Draws part of the sample anew and takes in what is near the fastest; a whole space stays as it is.

        `fastest` are in order. What `always` holds is in the pool as well.
        """
        if self.whole:
            return
        self._sample[self._rng.integers(len(self._sample), size=REPLACED)] = _draw(
            self._space, self._rng, REPLACED
        )
        parts = [self._sample]
        parts += [self.encode(config)[None, :] for config in always]
        centres = [self.encode(config) for config in fastest[:CENTRES]]
        for place, centre in enumerate(centres):
            single = self._single_changes(centre)
            parts.append(self._legal(single))
            if place == 0 and len(single):
                parts.append(self._double_changes(centre, single))
        self._set(np.vstack(parts))

    def _set(self, codes: Array) -> None:
        self._places = {}
        kept: list[int] = []
        for place, row in enumerate(codes):
            if self._places.setdefault(_key(row), len(kept)) == len(kept):
                kept.append(place)
        self.codes = codes[kept]

    def _single_changes(self, centre: Array) -> Array:
        rows = []
        for column, codes in enumerate(self._codes_of):
            for code in range(len(codes)):
                if code != centre[column]:
                    row = centre.copy()
                    row[column] = code
                    rows.append(row)
        return np.array(rows, dtype=np.intp).reshape(len(rows), len(centre))

    def _double_changes(self, centre: Array, single: Array) -> Array:
        changed = (single != centre).argmax(axis=1)
        first, second = np.nonzero(changed[:, None] < changed[None, :])
        rows = single[first]
        rows[np.arange(len(rows)), changed[second]] = single[second, changed[second]]
        legal = self._legal(rows)
        return legal[self._rng.permutation(len(legal))[:NEAR]]

    def _legal(self, rows: Array) -> Array:
        if not len(rows):
            return rows
        legal, _ = self._space.diagram.indices(rows)
        return np.asarray(rows[legal])


def _draw(space: SearchSpace, rng: np.random.Generator, n: int) -> Array:
    """Rows drawn uniformly, perhaps some twice."""
    if space.count < 2**62:
        return space.diagram.codes(rng.integers(space.count, size=n))
    indices = [int(rng.integers(2**53)) * space.count >> 53 for _ in range(n)]
    return space.diagram.codes(np.array(indices, dtype=object))


def _key(row: Array) -> bytes:
    return row.astype(np.int16).tobytes()

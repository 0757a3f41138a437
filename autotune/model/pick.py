"""Which configuration to use for a size that nobody tuned: the best foretold of those that were good elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.config import Config
from autotune.model.fitted import FittedModel
from autotune.model.measurements import Place

GOOD = 0.15
"""A configuration is good at a place where it is at most this much slower than the best there.

Only such are picked from: of thousands, the model's first choice would be one that it overrates.
"""
FARTHEST = 3.0
"""Octaves from the nearest place, beyond which nothing is picked."""
PLACES = 12
"""Of how many places the good ones are taken, the nearest."""


@dataclass(frozen=True)
class Pick:
    """A choice, and what it rests on."""

    config: Config
    predicted_ms: float
    nearest: float
    """Octaves from the nearest place measured."""
    places: int
    """At how many places its rivals were measured."""
    times: int
    """How many times the model was fitted to."""


def pick(
    model: FittedModel,
    place: Place,
    usable: Callable[[Config], bool] = lambda config: True,
    starts: Sequence[Config] = (),
) -> Pick | None:
    """The configuration foretold to be fastest at a place; None where nothing measured is near enough to be sure.

    `starts` are taken into account though nobody measured them. A place counts only where GPU, kernel, classes and
    element type are the same.
    """
    near = places_like(model, place)
    if not model.learnt or not near or near[0][0] > FARTHEST:
        return None
    chosen = dict.fromkeys(good_at(model, [number for _, number in near]))
    candidates = [config for config in [*chosen, *starts] if usable(config)]
    candidates = list(dict.fromkeys(candidates))
    if not candidates:
        return None
    times = model.predict(place.problem, candidates, protocol=place.protocol)
    best = int(np.argmin(times))
    return Pick(candidates[best], times[best], near[0][0], len(near), model.ground.measured.count)


def good_at(model: FittedModel, places: Sequence[int]) -> list[Config]:
    """The good ones of each place, the fastest first; none that failed anywhere."""
    measured = model.ground.measured
    found: dict[Config, None] = {}
    for number in places:
        column = measured.log_ms[:, number]
        rows = np.flatnonzero(column <= np.nanmin(column) + np.log1p(GOOD))
        for row in rows[np.argsort(column[rows], kind="stable")]:
            if measured.configs[row] not in measured.failed:
                found[measured.configs[row]] = None
    return list(found)


def places_like(model: FittedModel, place: Place) -> list[tuple[float, int]]:
    """The nearest of the places that differ in sizes and protocol only: octaves and number."""
    found = [
        (place.apart(other), number)
        for number, other in enumerate(model.ground.measured.places)
        if other.gpu.identity.key == place.gpu.identity.key
        and other.kernel_hash == place.kernel_hash
        and other.problem.classes == place.problem.classes
        and other.problem.dtype == place.problem.dtype
    ]
    return sorted(found)[:PLACES]

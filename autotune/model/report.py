"""How good the model is at places it was not shown: rank correlation, and what its first choices lose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autotune.columns import Array
from autotune.config import Config
from autotune.gpu import GpuSpec
from autotune.model.fitted import FittedModel
from autotune.model.ground import Ground
from autotune.model.measurements import Place
from autotune.model.pick import good_at, pick, places_like

FIRST = (1, 10, 20)
"""Of how many first choices the best is looked at."""
LEAST_CONFIGS = 10
"""A place with fewer times is not held out: ranks among a few say nothing."""
MOST_FITS = 16
"""Into how many groups sizes are put, each of which is left out at once."""


@dataclass(frozen=True)
class HeldOut:
    """The model at one place, fitted without it."""

    gpu: str
    """Name of the GPU's table."""
    size: str
    classes: str
    configs: int
    """How many were ranked."""
    spearman: float
    loss: dict[int, float]
    """By number of first choices: how much slower the best of them is than the best of all, 0 for none."""
    error: float
    """Median of |log(predicted / measured)|."""
    picked: float | None = None
    """How much slower than the best of all the one is that `autotune.model.pick` picks; None where it picks none."""
    nearest: float | None = None
    """Likewise the best one of the nearest place; None where that was not measured here."""
    unseen: Unseen | None = None
    """None where no configuration was left out."""


@dataclass(frozen=True)
class Unseen:
    """The same for configurations that were left out of fitting at all sizes, ranked among themselves."""

    configs: int
    spearman: float
    loss: dict[int, float]
    error: float


@dataclass(frozen=True)
class Spread:
    """How much slower than the best of all a way of choosing is over places held out; 0 for none."""

    places: int
    """Where it chose something that was measured there."""
    median: float
    p90: float
    worst: float


@dataclass(frozen=True)
class Evaluation:
    """The model and its closed form on recorded data."""

    by_size: tuple[HeldOut, ...]
    """Fitted without any time at the sizes held out."""
    by_gpu: tuple[HeldOut, ...]
    """Fitted without any time of the GPU held out; empty where there is one GPU."""
    closed_form: tuple[HeldOut, ...]
    """The closed form with its default constants at the same places, which were never held from it."""


def evaluate(
    ground: Ground, on_progress: Callable[[int, int], None] = lambda done, total: None
) -> Evaluation:
    """Holds out every size in turn, then every GPU in turn; of more than `MOST_FITS` sizes several at once.

    Without each size also every second configuration is left out. `on_progress` hears how many are done, of how many.
    """
    places = ground.measured.places
    hidden = frozenset(ground.measured.configs[1::2])
    shown = Ground.on(ground.measured.without(hidden), ground.spec, ground.gpu)
    labels = list(dict.fromkeys(place.problem.label for place in places))
    left_out = {label: number % MOST_FITS for number, label in enumerate(labels)}
    by_size = [left_out[place.problem.label] for place in places]
    gpus = [place.gpu.table for place in places]
    by_gpu = gpus if len(set(gpus)) > 1 else []
    rounds, done = len(set(by_size)) + len(set(by_gpu)), 0
    on_progress(done, rounds)

    def held_out(groups: Sequence[object], with_unseen: bool = False) -> list[HeldOut]:
        nonlocal done
        found: dict[int, HeldOut] = {}
        for group in dict.fromkeys(groups):
            rest = [number for number, other in enumerate(groups) if other != group]
            asked = [number for number, other in enumerate(groups) if other == group]
            asked = [number for number in asked if len(ground.log_ms(number)) >= LEAST_CONFIGS]
            if rest and asked:
                model = _Without(ground, [places[number] for number in rest])
                unseen = _Without(shown, [places[number] for number in rest]) if with_unseen else None
                for number in asked:
                    held = _at(ground, number, model.on(places[number].gpu))
                    if unseen:
                        held = replace(held, unseen=_unseen(ground, number, unseen, hidden))
                    found[number] = held
            done += 1
            on_progress(done, rounds)
        return [found[number] for number in sorted(found)]

    sizes = held_out(by_size, with_unseen=True)
    nothing = _Without(ground, [])
    closed = [
        _at(ground, number, nothing.on(place.gpu))
        for number, place in enumerate(places)
        if len(ground.log_ms(number)) >= LEAST_CONFIGS
    ]
    return Evaluation(tuple(sizes), tuple(held_out(by_gpu)), tuple(closed))


class _Without:
    """Models fitted to some of the places alone, one for each GPU that is asked about."""

    def __init__(self, ground: Ground, rest: Sequence[Place]) -> None:
        kept = set(rest)
        numbers = [number for number, place in enumerate(ground.measured.places) if place in kept]
        self.anything = bool(numbers)
        self._ground = ground.keeping(numbers)
        self._models: dict[str, FittedModel] = {}

    def on(self, gpu: GpuSpec) -> FittedModel:
        """The model that is asked about this GPU."""
        key = gpu.identity.key
        if key not in self._models:
            self._models[key] = FittedModel.on(replace(self._ground, gpu=gpu))
        return self._models[key]


def spread(shares: Iterable[float | None]) -> Spread | None:
    """Over the places where there is one; None where there is none."""
    known = [share for share in shares if share is not None]
    if not known:
        return None
    return Spread(len(known), float(np.median(known)), float(np.percentile(known, 90)), max(known))


def spearman(one: Array, other: Array) -> float:
    """Rank correlation, equals sharing their mean rank; not a number where a side is constant."""
    a, b = _ranks(one), _ranks(other)
    a, b = a - a.mean(), b - b.mean()
    scale = np.sqrt((a**2).sum() * (b**2).sum())
    return float((a * b).sum() / scale) if scale else float("nan")


def losses(predicted: Array, measured: Array) -> dict[int, float]:
    """How much slower than the best of all the best of the first choices is, by their number."""
    order = np.argsort(predicted, kind="stable")
    best = measured.min()
    return {first: float(measured[order[:first]].min() / best - 1) for first in FIRST}


def _at(ground: Ground, number: int, model: FittedModel) -> HeldOut:
    place = ground.measured.places[number]
    configs = [ground.measured.configs[row] for row in ground.measured.rows(number)]
    resources = ground.measured.resources_of(configs, place.gpu)
    predicted = np.array(model.predict(place.problem, configs, resources, place.protocol))
    measured = np.exp(ground.log_ms(number))
    slowdown = dict(zip(configs, measured / measured.min() - 1, strict=True))
    picked = pick(model, place, slowdown.__contains__)
    around = good_at(model, [number for _, number in places_like(model, place)[:1]])
    return HeldOut(
        gpu=place.gpu.table,
        size=place.problem.label,
        classes=",".join(f"{name}={value}" for name, value in place.problem.classes),
        configs=len(configs),
        spearman=spearman(predicted, measured),
        loss=losses(predicted, measured),
        error=_error(predicted, measured),
        picked=float(slowdown[picked.config]) if picked else None,
        nearest=next((float(slowdown[config]) for config in around if config in slowdown), None),
    )


def _unseen(ground: Ground, number: int, shown: _Without, hidden: frozenset[Config]) -> Unseen | None:
    """At a place, by a model fitted without its size to what is shown; None where that is too little."""
    place = ground.measured.places[number]
    rows = [row for row in ground.measured.rows(number) if ground.measured.configs[row] in hidden]
    if len(rows) < LEAST_CONFIGS or not shown.anything:
        return None
    model = shown.on(place.gpu)
    configs = [ground.measured.configs[row] for row in rows]
    resources = ground.measured.resources_of(configs, place.gpu)
    predicted = np.array(model.predict(place.problem, configs, resources, place.protocol))
    measured = np.exp(ground.measured.log_ms[rows, number])
    return Unseen(
        len(rows), spearman(predicted, measured), losses(predicted, measured), _error(predicted, measured)
    )


def _error(predicted: Array, measured: Array) -> float:
    return float(np.median(np.abs(np.log(predicted / measured))))


def _ranks(values: Array) -> Array:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2)[inverse])

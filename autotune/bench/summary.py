"""Figures over a suite: geometric means of ratios, for all shapes and for each group."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.bench.result import AGAIN, DEFAULT, ShapeResult

RIVALS = ("cublas", "cublaslt", DEFAULT)
"""Whom the tuned kernel is compared with."""


@dataclass(frozen=True)
class Mean:
    """How much faster the tuned kernel is than another contestant over some shapes."""

    mean: float
    """Geometric mean of the other's time over the tuned kernel's: each shape counts the same."""
    shapes: int
    worst: float
    worst_shape: str


def mean_over(shapes: Sequence[ShapeResult], mode: str, rival: str) -> Mean | None:
    """The ratios to one contestant in one mode; None where no shape has both times."""
    ratios = {}
    for shape in shapes:
        measured = shape.mode(mode)
        ratio = measured.ratio(rival) if measured else None
        if ratio is not None:
            ratios[shape.name] = ratio
    if not ratios:
        return None
    worst = min(ratios, key=lambda name: ratios[name])
    return Mean(statistics.geometric_mean(ratios.values()), len(ratios), ratios[worst], worst)


def groups_of(shapes: Sequence[ShapeResult]) -> dict[str, list[ShapeResult]]:
    """All shapes under `all`, then those of each group, in the suite's order."""
    groups: dict[str, list[ShapeResult]] = {"all": list(shapes)}
    for shape in shapes:
        if shape.group:
            groups.setdefault(shape.group, []).append(shape)
    return groups


def modes_of(shapes: Sequence[ShapeResult]) -> list[str]:
    """The modes that were measured, in the order asked for."""
    return list(dict.fromkeys(mode.mode for shape in shapes for mode in shape.modes))


def same_twice(shapes: Sequence[ShapeResult], mode: str) -> tuple[float, float] | None:
    """The smallest and largest ratio of the same kernel against itself: what a ratio may mean nothing by."""
    ratios = [
        ratio
        for shape in shapes
        if (measured := shape.mode(mode)) and (ratio := measured.ratio(AGAIN)) is not None
    ]
    return (min(ratios), max(ratios)) if ratios else None


def summarise(shapes: Sequence[ShapeResult]) -> dict[str, object]:
    """Per mode: means over all and per group against each rival, and the range of the A/A ratios."""
    summary: dict[str, object] = {}
    for mode in modes_of(shapes):
        groups: dict[str, dict[str, object]] = {}
        for group, members in groups_of(shapes).items():
            means = {rival: mean_over(members, mode, rival) for rival in RIVALS}
            groups[group] = {
                rival: {
                    "mean": mean.mean,
                    "shapes": mean.shapes,
                    "worst": mean.worst,
                    "worst_shape": mean.worst_shape,
                }
                for rival, mean in means.items()
                if mean
            }
        again = same_twice(shapes, mode)
        summary[mode] = {"groups": groups, "same_kernel_twice": list(again) if again else None}
    return summary

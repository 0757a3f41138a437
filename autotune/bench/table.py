"""A bench as rows of a table, for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.bench.result import AGAIN, COPY, DEFAULT, TUNED, BenchResult, ModeResult, ShapeResult
from autotune.bench.summary import RIVALS, groups_of, mean_over
from autotune.device.messages import CUBLAS, CUBLASLT

COLUMNS = (
    "shape",
    "tuned us",
    "TFLOP/s",
    "x cublas",
    "x cublaslt",
    "x default",
    "A/A",
    "GB/s",
    "copy",
    "error",
    "cublas",
    "cublaslt",
    "how",
)
"""`error` and the two after it: the worst error against float64 of each, in one unit."""
MEAN_COLUMNS = ("group", "shapes", "x cublas", "x cublaslt", "x default", "worst x cublas", "at")


def rows(result: BenchResult, mode: str) -> list[tuple[object, ...]]:
    """One row per shape that was measured in a mode."""
    measured = [(shape, shape.mode(mode)) for shape in result.shapes]
    return [_row(shape, one) for shape, one in measured if one is not None]


def mean_rows(result: BenchResult, mode: str) -> list[tuple[object, ...]]:
    """One row per group: geometric means over its shapes."""
    listed: list[tuple[object, ...]] = []
    for group, shapes in groups_of(result.shapes).items():
        means = [mean_over(shapes, mode, rival) for rival in RIVALS]
        if not any(means):
            continue
        worst = means[0]
        listed.append(
            (
                group,
                max(mean.shapes for mean in means if mean),
                *(_times(mean.mean if mean else None) for mean in means),
                _times(worst.worst if worst else None),
                worst.worst_shape if worst else "-",
            )
        )
    return listed


def failures(result: BenchResult) -> list[str]:
    """One line for each contestant without a time."""
    return [
        f"{shape.name}, {mode.mode}: {failed.name}: {failed.reason}"
        for shape in result.shapes
        for mode in shape.modes
        for failed in mode.failed
    ]


def _row(shape: ShapeResult, mode: ModeResult) -> tuple[object, ...]:
    tuned, copy = mode.entry(TUNED), mode.entry(COPY)
    ratios: Sequence[float | None] = [mode.ratio(name) for name in (CUBLAS.name, CUBLASLT, DEFAULT, AGAIN)]
    errors = [entry.error if (entry := mode.entry(name)) else None for name in (TUNED, CUBLAS.name, CUBLASLT)]
    return (
        shape.name,
        f"{tuned.time_ms * 1e3:.2f}" if tuned else "-",
        f"{shape.flops / tuned.time_ms / 1e9:.2f}" if tuned else "-",
        *(_times(ratio) for ratio in ratios),
        # Rates of memory mean something where memory may be the limit.
        f"{tuned.gbps:.0f}" if tuned and copy else "-",
        f"{copy.gbps:.0f}" if copy else "-",
        *("-" if error is None else f"{error:.2f}" for error in errors),
        tuned.match if tuned else "failed",
    )


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.3f}"

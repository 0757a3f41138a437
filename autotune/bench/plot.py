"""A bench as a picture: how much faster the tuned kernel is than the libraries, shape by shape."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from autotune.bench.result import BenchResult, ShapeResult
from autotune.bench.summary import mean_over, modes_of
from autotune.errors import InputError

COLOURS = {"cublas": "#2a7d4f", "cublaslt": "#3b6ea8"}
NAMES = {"cublas": "cublasSgemm", "cublaslt": "best of cuBLASLt"}
ROW_INCHES = 0.22


def check_plot(path: Path) -> None:
    """Raises InputError where no picture could be written at the end: before anything is measured."""
    if find_spec("matplotlib") is None:
        raise InputError(
            "pictures need matplotlib", key="--plot", nearest="pip install 'cuda-autotune[plot]'"
        )
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise InputError(f"must end in .png, .svg or .pdf, got {str(path)!r}", key="--plot")
    if not path.resolve().parent.is_dir():
        raise InputError(f"no such folder: {path.parent}", key="--plot")


def plot(result: BenchResult, path: Path) -> None:
    """Writes the picture: a panel per mode, a pair of bars per shape, 1 where both take as long."""
    from matplotlib.figure import Figure

    modes = modes_of(result.shapes)
    height = 1.6 + ROW_INCHES * max(1, len(result.shapes))
    figure = Figure(figsize=(5.5 * max(1, len(modes)) + 2, height), layout="constrained")
    panels = figure.subplots(1, max(1, len(modes)), sharey=True, squeeze=False)[0]
    rows = list(result.shapes)[::-1]  # the first one on top
    for panel, mode in zip(panels, modes, strict=False):
        _draw(panel, rows, mode)
    where = result.provenance
    figure.suptitle(f"{where.kernel} on {where.gpu}: speed over the libraries in FP32 (suite {where.suite})")
    figure.savefig(path, dpi=150)


def _draw(panel: object, rows: Sequence[ShapeResult], mode: str) -> None:
    from matplotlib.axes import Axes

    assert isinstance(panel, Axes)
    for offset, rival in ((0.2, "cublas"), (-0.2, "cublaslt")):
        measured = [(number, shape.mode(mode)) for number, shape in enumerate(rows)]
        bars = [
            (number + offset, ratio)
            for number, one in measured
            if one is not None and (ratio := one.ratio(rival)) is not None
        ]
        mean = mean_over(rows, mode, rival)
        label = NAMES[rival] + (f": geometric mean {mean.mean:.2f}" if mean else "")
        panel.barh(
            [place for place, _ in bars],
            [ratio for _, ratio in bars],
            height=0.38,
            color=COLOURS[rival],
            label=label,
        )
    panel.axvline(1.0, color="#444444", linewidth=1)
    panel.set_yticks(range(len(rows)), [shape.name for shape in rows], fontsize=7)
    panel.set_xlabel(f"times as fast, {mode}")
    panel.legend(loc="lower right", fontsize=8)
    panel.margins(y=0.01)

"""A ladder as a picture: a bar for each step, the library's and the peak's rates as lines."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from autotune.errors import InputError
from autotune.ladder.result import LadderResult

SUFFIXES = (".png", ".svg", ".pdf")


def check_plot(path: Path) -> None:
    """Raises InputError where no picture could be written at the end: before anything is measured."""
    if find_spec("matplotlib") is None:
        cure = "pip install 'cuda-autotune[plot]'"
        raise InputError("pictures need matplotlib", key="--out", nearest=cure)
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"must end in {', '.join(SUFFIXES)}, got {str(path)!r}", key="--out")
    if not path.resolve().parent.is_dir():
        raise InputError(f"no such folder: {path.parent}", key="--out")


def plot(result: LadderResult, path: Path) -> None:
    """Writes the picture."""
    from matplotlib.figure import Figure

    entries = [entry for entry in result.entries if entry.gflops][::-1]  # the first on top
    figure = Figure(figsize=(9, 1.5 + 0.34 * len(entries)), layout="constrained")
    panel = figure.subplots()
    names = [entry.name for entry in entries]
    rates = [(entry.gflops or 0) / 1000 for entry in entries]
    steps = {entry.name for entry in result.steps}
    colours = ["#3b6ea8" if name in steps else "#2a7d4f" for name in names]
    drawn = panel.barh(names, rates, color=colours)
    panel.bar_label(drawn, labels=[f"{rate:.1f}" for rate in rates], padding=3, fontsize=8)
    panel.axvline(result.peak_gflops / 1000, color="#555555", linestyle=":", label="peak of multiply-adds")
    if result.vendor and result.vendor.gflops:
        panel.axvline(result.vendor.gflops / 1000, color="#2a7d4f", linestyle="--", label=result.vendor.name)
    panel.set_xlabel("TFLOP/s" + (", predicted" if result.origin == "predicted" else ""))
    panel.set_title(f"{result.ladder} {result.size} on {result.provenance.gpu}", fontsize=10)
    panel.legend(loc="lower right", fontsize=8)
    panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)

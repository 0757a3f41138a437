"""What a bench leaves behind: times and errors of each contestant at each shape, and their JSON."""

from __future__ import annotations

import dataclasses
import json
import statistics
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.errors import InputError
from autotune.records import ClockReading

TUNED, AGAIN, DEFAULT, COPY = "tuned", "tuned again", "default", "copy"
"""Contestants beside the libraries' `cublas` and `cublaslt`; the first two are the same kernel (A/A)."""
FORMAT = 1
"""Version of the JSON."""


@dataclass(frozen=True)
class Entry:
    """One contestant at one shape, measured in turn with the others."""

    name: str
    samples_ms: tuple[float, ...]
    calls_per_sample: int
    error: float | None
    """Worst error against float64, in the unit of `tolerance`."""
    tolerance: float | None
    config: str = ""
    """The configuration's key; empty for libraries."""
    match: str = ""
    """How the configuration was found (`autotune best`)."""
    bytes: float = 0.0
    """Compulsory traffic of one call."""
    notes: tuple[str, ...] = ()

    @property
    def time_ms(self) -> float:
        """Median of the samples."""
        return statistics.median(self.samples_ms)

    @property
    def gbps(self) -> float:
        """Compulsory traffic over time, 1e9 bytes per second."""
        return self.bytes / self.time_ms / 1e6


@dataclass(frozen=True)
class Failed:
    """A contestant that has no time, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class ModeResult:
    """One shape under one protocol: all contestants measured in turn."""

    mode: str
    protocol: str
    entries: tuple[Entry, ...]
    failed: tuple[Failed, ...] = ()
    default_is_tuned: bool = False
    """Whether the default configuration is the tuned one, so that it was not measured again."""
    clocks: ClockReading | None = None
    candidates: tuple[tuple[str, float | None], ...] = ()
    """What cuBLASLt's heuristic offered, with short times in ms; None for what failed."""

    def entry(self, name: str) -> Entry | None:
        """The contestant of that name; None where it did not run or failed."""
        if name == DEFAULT and self.default_is_tuned:
            name = TUNED
        return next((entry for entry in self.entries if entry.name == name), None)

    def ratio(self, name: str, over: str = TUNED) -> float | None:
        """How many times as long as another contestant one takes: above 1, the other is faster."""
        one, other = self.entry(name), self.entry(over)
        return one.time_ms / other.time_ms if one and other and other.time_ms else None


@dataclass(frozen=True)
class ShapeResult:
    """One shape of the suite in every mode, with what it was measured with."""

    name: str
    group: str
    sizes: tuple[int, ...]
    flops: float
    bytes: float
    modes: tuple[ModeResult, ...]
    session: str
    board: str
    created: str
    """UTC, ISO format."""

    def mode(self, name: str) -> ModeResult | None:
        """The result of a mode; None where it was not measured."""
        return next((mode for mode in self.modes if mode.mode == name), None)

    @property
    def complete(self) -> bool:
        """Whether every contestant has a time."""
        return not any(mode.failed for mode in self.modes)


@dataclass(frozen=True)
class Provenance:
    """What every shape of a result has in common; results of different ones are never mixed."""

    suite: str
    kernel: str
    kernel_hash: str
    commit: str
    gpu: str
    device: str
    """`DeviceIdentity.key`."""
    driver: str
    cuda: str
    nvrtc: str
    autotune: str


@dataclass(frozen=True)
class BenchResult:
    """All shapes so far."""

    provenance: Provenance
    copy_gbps: float | None
    """A large copy from cold memory, in this run."""
    shapes: tuple[ShapeResult, ...]
    left_out: tuple[str, ...] = ()
    """Shapes that time or Ctrl-C left out."""
    interrupted: bool = False


def to_document(result: BenchResult) -> dict[str, Any]:
    """The result as plain values, with each entry's median and rates, and the summary over the suite."""
    from autotune.bench.summary import summarise

    document: dict[str, Any] = {"format": FORMAT, **dataclasses.asdict(result)}
    for shape, told in zip(result.shapes, document["shapes"], strict=True):
        for mode, written in zip(shape.modes, told["modes"], strict=True):
            for entry, values in zip(mode.entries, written["entries"], strict=True):
                values["samples_ms"] = [float(f"{sample:.6g}") for sample in entry.samples_ms]
                values["time_ms"], values["gbps"] = entry.time_ms, entry.gbps
                values["gflops"] = shape.flops / entry.time_ms / 1e6 if entry.name != COPY else None
    document["summary"] = summarise(result.shapes)
    return document


def write_result(result: BenchResult, path: Path) -> None:
    """Writes the JSON so that a file of that name is always whole; raises InputError where that is impossible."""
    text = json.dumps(to_document(result), indent=1, allow_nan=False) + "\n"
    try:
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, prefix=path.name, delete=False, encoding="utf-8"
        ) as file:
            file.write(text)
        written = Path(file.name)
        written.chmod(0o644)
        written.replace(path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}", key="--out") from error


def read_result(path: Path) -> BenchResult:
    """The result in a file that `write_result` wrote; raises InputError for anything else."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["format"] != FORMAT:
            raise ValueError(f"format {document['format']}, and this program writes {FORMAT}")
        return BenchResult(
            provenance=Provenance(**document["provenance"]),
            copy_gbps=document["copy_gbps"],
            shapes=tuple(_shape(shape) for shape in document["shapes"]),
            left_out=tuple(document["left_out"]),
            interrupted=document["interrupted"],
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"is no result of `autotune bench`: {error}", where=str(path), key="--out") from None


def _shape(told: Mapping[str, Any]) -> ShapeResult:
    plain = {name: told[name] for name in ("name", "group", "flops", "bytes", "session", "board", "created")}
    return ShapeResult(
        **plain, sizes=tuple(told["sizes"]), modes=tuple(_mode(mode) for mode in told["modes"])
    )


def _mode(told: Mapping[str, Any]) -> ModeResult:
    return ModeResult(
        mode=told["mode"],
        protocol=told["protocol"],
        entries=tuple(_entry(entry) for entry in told["entries"]),
        failed=tuple(Failed(**failed) for failed in told["failed"]),
        default_is_tuned=told["default_is_tuned"],
        clocks=ClockReading(**told["clocks"]) if told["clocks"] else None,
        candidates=tuple((text, time_ms) for text, time_ms in told["candidates"]),
    )


def _entry(told: Mapping[str, Any]) -> Entry:
    names = {field.name for field in dataclasses.fields(Entry)}
    values = {name: value for name, value in told.items() if name in names}
    return Entry(**{**values, "samples_ms": tuple(told["samples_ms"]), "notes": tuple(told["notes"])})

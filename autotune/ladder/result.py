"""What a ladder leaves behind: a row for each step, comparisons, and where all of it was measured; and its JSON."""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from autotune.config import Value
from autotune.errors import InputError

FORMAT = 1


@dataclass(frozen=True)
class Trial:
    """One configuration that was tried for a step."""

    config: Mapping[str, Value]
    status: str
    time_ms: float | None
    reason: str = ""


@dataclass(frozen=True)
class Entry:
    """One kernel, or the vendor's library, with its time."""

    name: str
    kernel: str
    """Empty for a library."""
    config: Mapping[str, Value]
    time_ms: float | None
    """None where there is none; `note` says why."""
    gflops: float | None
    samples_ms: tuple[float, ...] = ()
    note: str = ""
    registers: int | None = None
    smem_bytes: int | None = None
    spill_bytes: int | None = None
    occupancy: float | None = None
    """Resident over possible warps."""
    occupancy_limiter: str = ""
    gbps: float | None = None
    """Counted bytes of global memory over the time."""
    global_bytes_per_flop: float | None = None
    shared_bytes_per_flop: float | None = None
    limiter: str = ""
    about: str = ""
    """What the kernel is for, where that is not the ladder's size."""
    seed: str = ""
    seed_gflops: float | None = None
    trials: tuple[Trial, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """Some kernels side by side, measured in turn."""

    title: str
    size: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Provenance:
    """Where and how the times were taken."""

    gpu: str
    table: str
    arch: str
    board: str
    driver: str
    cuda: str
    nvrtc: str
    autotune: str
    protocol: str
    date: str
    commit: str = ""


@dataclass(frozen=True)
class LadderResult:
    """One run."""

    ladder: str
    size: str
    origin: str
    """`measured` or `predicted`."""
    provenance: Provenance
    peak_gflops: float
    """Of multiply-adds: measured in the same run, or the table's where times are predicted."""
    steps: tuple[Entry, ...]
    vendor: Entry | None
    production: Entry
    seed_gpu: str
    seed_source: str
    seed_cublas_gflops: float
    comparisons: tuple[Comparison, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Steps, production kernel and library, as the table shows them."""
        return (*self.steps, self.production, *((self.vendor,) if self.vendor else ()))


def write_result(result: LadderResult, path: Path) -> None:
    """Writes the JSON, whole or not at all."""
    aside = path.with_name(f".{path.name}.part")
    text = json.dumps({"format": FORMAT, **dataclasses.asdict(result)}, indent=1, allow_nan=False)
    aside.write_text(text + "\n", encoding="utf-8")
    aside.rename(path)


def read_result(path: Path) -> LadderResult:
    """A ladder that was written before; raises InputError for anything else."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not JSON: {error}", where=str(path)) from None
    if not isinstance(document, dict) or document.pop("format", None) != FORMAT:
        raise InputError(f"is not a ladder of format {FORMAT}", where=str(path))
    try:
        made = _made(LadderResult, document)
    except (TypeError, KeyError, ValueError) as error:
        raise InputError(f"is not a whole ladder: {error}", where=str(path)) from None
    assert isinstance(made, LadderResult)
    if made.peak_gflops <= 0:
        raise InputError(
            f"must be greater than 0, got {made.peak_gflops}", where=str(path), key="peak_gflops"
        )
    return made


def _made(kind: object, value: object) -> object:
    """The value as the type says, nested dataclasses and tuples made anew; raises TypeError where it does not fit."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        if not isinstance(value, dict):
            raise TypeError(f"{kind.__name__} must be a mapping, got {value!r}")
        hints = typing.get_type_hints(kind)
        if unknown := value.keys() - hints.keys():
            raise TypeError(f"{kind.__name__} has no {sorted(unknown)[0]}")
        return kind(**{name: _made(hints[name], item) for name, item in value.items()})
    if origin is tuple:
        if not isinstance(value, list):
            raise TypeError(f"must be a list, got {value!r}")
        return tuple(_made(arguments[0], item) for item in value)
    if origin in (types.UnionType, typing.Union):
        return (
            None if value is None else _made(next(one for one in arguments if one is not type(None)), value)
        )
    if origin is not None:  # a mapping of names to values
        if not isinstance(value, dict):
            raise TypeError(f"must be a mapping, got {value!r}")
        return value
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise TypeError(f"must be a finite number, got {value!r}")
        return float(value)
    if isinstance(kind, type) and (
        not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)
    ):
        raise TypeError(f"must be of type {kind.__name__}, got {value!r}")
    return value

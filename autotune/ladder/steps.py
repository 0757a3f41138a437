"""What a ladder consists of, from its YAML: steps, the seed's times, comparisons beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotune.config import Value
from autotune.errors import nearest_name
from autotune.paths import find
from autotune.spec.yaml_file import YamlFile, read_yaml


@dataclass(frozen=True)
class Step:
    """One kernel of the ladder."""

    kernel: str
    title: str
    seed: str = ""
    """The name of the same step in the seed; empty where it has none."""
    seed_gflops: float | None = None
    about: str = ""
    """What it is for, where that is not the ladder's size."""


@dataclass(frozen=True)
class Row:
    """One contestant of a comparison."""

    name: str
    kernel: str
    like: str = ""
    """The step whose configuration it takes over; empty where it has its own."""
    fixed: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Contest:
    """Kernels that are held against each other beside the ladder."""

    title: str
    rows: tuple[Row, ...]
    size: str = ""
    """Empty for the ladder's own."""


@dataclass(frozen=True)
class Seed:
    """Where the times of the seed come from."""

    gpu: str
    source: str
    cublas_gflops: float


@dataclass(frozen=True)
class Ladder:
    """All that is measured in one run."""

    name: str
    steps: tuple[Step, ...]
    production: str
    """The kernel that the ladder leads to."""
    peak: str
    """The kernel that measures the highest rate of multiply-adds."""
    seed: Seed
    contests: tuple[Contest, ...] = ()


def load_ladder(name: str = "sgemm", folders: Sequence[Path] = ()) -> Ladder:
    """The ladder of that name from `configs/ladders`; raises InputError with file and line."""
    file = read_yaml(find("configs", f"ladders/{name}.yaml", folders))
    data = _mapping(file, (), file.data, ("name", "seed", "steps", "production", "peak", "comparisons"))
    seed = _mapping(file, ("seed",), data.get("seed"), ("gpu", "source", "cublas_gflops"))
    return Ladder(
        name=_text(file, ("name",), data.get("name")),
        steps=tuple(
            _step(file, ("steps", index), entry)
            for index, entry in enumerate(_list(file, ("steps",), data.get("steps")))
        ),
        production=_text(file, ("production",), data.get("production")),
        peak=_text(file, ("peak",), data.get("peak")),
        seed=Seed(
            _text(file, ("seed", "gpu"), seed.get("gpu")),
            _text(file, ("seed", "source"), seed.get("source")),
            _number(file, ("seed", "cublas_gflops"), seed.get("cublas_gflops")),
        ),
        contests=tuple(
            _contest(file, ("comparisons", index), entry)
            for index, entry in enumerate(data.get("comparisons") or ())
        ),
    )


Key = tuple[str | int, ...]


def _step(file: YamlFile, key: Key, entry: object) -> Step:
    data = _mapping(file, key, entry, ("kernel", "title", "seed", "seed_gflops", "about"))
    rate = data.get("seed_gflops")
    return Step(
        _text(file, (*key, "kernel"), data.get("kernel")),
        _text(file, (*key, "title"), data.get("title")),
        str(data.get("seed", "")),
        None if rate is None else _number(file, (*key, "seed_gflops"), rate),
        str(data.get("about", "")),
    )


def _contest(file: YamlFile, key: Key, entry: object) -> Contest:
    data = _mapping(file, key, entry, ("title", "size", "rows"))
    rows = []
    for index, each in enumerate(_list(file, (*key, "rows"), data.get("rows"))):
        place = (*key, "rows", index)
        row = _mapping(file, place, each, ("name", "kernel", "like", "fixed"))
        fixed = row.get("fixed") or {}
        if not isinstance(fixed, dict):
            raise file.error((*place, "fixed"), f"must map parameters to values, got {fixed!r}")
        rows.append(
            Row(
                _text(file, (*place, "name"), row.get("name")),
                _text(file, (*place, "kernel"), row.get("kernel")),
                str(row.get("like", "")),
                fixed,
            )
        )
    return Contest(_text(file, (*key, "title"), data.get("title")), tuple(rows), str(data.get("size", "")))


def _mapping(file: YamlFile, key: Key, value: object, names: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise file.error(key, f"must be a mapping, got {value!r}")
    for name in value:
        if name not in names:
            raise file.error((*key, name), f"no such key {name!r}", nearest_name(str(name), names))
    return value


def _list(file: YamlFile, key: Key, value: object) -> Sequence[object]:
    if not isinstance(value, list) or not value:
        raise file.error(key, f"must be a list that is not empty, got {value!r}")
    return value


def _text(file: YamlFile, key: Key, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise file.error(key, f"must be a text, got {value!r}")
    return value


def _number(file: YamlFile, key: Key, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise file.error(key, f"must be a number above zero, got {value!r}")
    return float(value)

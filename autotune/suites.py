"""Suites: named lists of problem sizes, so that a figure 'over the suite' always means the same shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from autotune.errors import InputError, nearest_name
from autotune.paths import find, shipped
from autotune.spec.kernel_spec import KernelSpec


@dataclass(frozen=True)
class Shape:
    """One problem of a suite."""

    name: str
    group: str
    sizes: tuple[int, ...]
    """In the order of the spec's sizes."""


@dataclass(frozen=True)
class Suite:
    """A named list of shapes."""

    name: str
    shapes: tuple[Shape, ...]


def load_suite(name_or_file: str, spec: KernelSpec, folders: Sequence[Path] = ()) -> Suite:
    """The suite of that name from `configs/suites`, or from a YAML file; raises InputError with the place."""
    path = Path(name_or_file)
    if path.suffix not in (".yaml", ".yml"):
        try:
            path = find("configs", f"suites/{name_or_file}.yaml", folders)
        except InputError:
            places = [*(Path(folder) / "configs" for folder in folders), shipped("configs")]
            known = sorted({file.stem for place in places for file in place.glob("suites/*.yaml")})
            raise InputError(
                f"no such suite {name_or_file!r}", key="--suite", nearest=nearest_name(name_or_file, known)
            ) from None
    if not path.is_file():
        raise InputError("no such file", where=str(path), key="--suite")
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise InputError(f"is not valid YAML: {error}", where=str(path)) from None
    if (
        not isinstance(document, dict)
        or not isinstance(document.get("shapes"), list)
        or not document["shapes"]
    ):
        raise InputError("must have a non-empty list `shapes`", where=str(path), key="shapes")
    shapes = tuple(_shape(entry, index, spec, path) for index, entry in enumerate(document["shapes"]))
    return Suite(str(document.get("name", path.stem)), shapes)


def _shape(entry: object, index: int, spec: KernelSpec, path: Path) -> Shape:
    key = f"shapes[{index}]"
    if not isinstance(entry, dict):
        raise InputError(f"must be a mapping, got {entry!r}", where=str(path), key=key)
    allowed = {"name", "group", *spec.problem.sizes}
    for name in entry:
        if name not in allowed:
            raise InputError(
                f"no such key {name!r}", where=str(path), key=key, nearest=nearest_name(str(name), allowed)
            )
    sizes = []
    for name in spec.problem.sizes:
        size = entry.get(name)
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise InputError(f"must be a size, got {size!r}", where=str(path), key=f"{key}.{name}")
        sizes.append(size)
    label = "x".join(str(size) for size in sizes)
    return Shape(str(entry.get("name", label)), str(entry.get("group", "")), tuple(sizes))

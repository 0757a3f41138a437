"""YAML with the line of every key, to report a mistake where it stands: `a6000.yaml:4: sm_count: ...`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from autotune.errors import InputError, nearest_name

KeyPath = tuple[str | int, ...]
Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class MarkedYaml:
    """The content of one YAML file and where each part of it stands."""

    file: Path
    content: object
    lines: Mapping[KeyPath, int]
    """Line of each key or list item, counted from 1, by its path from the top."""

    def where(self, path: KeyPath) -> str:
        """`file:line` of the deepest part of `path` that exists."""
        while path and path not in self.lines:
            path = path[:-1]
        return f"{self.file}:{self.lines.get(path, 1)}"


def load_marked(file: Path) -> MarkedYaml:
    """The file's content with its lines; raises InputError where it is no YAML or repeats a key."""
    try:
        text = file.read_text(encoding="utf-8")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{file}:{mark.line + 1}" if mark else str(file)
        raise InputError(f"must be YAML: {error.problem}", where) from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"cannot be read as YAML: {error}", str(file)) from None
    lines: dict[KeyPath, int] = {}
    if node is not None:
        _collect(file, node, (), lines)
    return MarkedYaml(file, yaml.safe_load(text), lines)


def checked(model: type[Model], marked: MarkedYaml, path: KeyPath = ()) -> Model:
    """The part of the file below `path` as a validated model; raises InputError with file, line and key."""
    part = marked.content
    for step in path:
        part = part[step]  # type: ignore[index]
    try:
        return model.model_validate(part)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = path + tuple(first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        nearest = ""
        if first["type"] == "extra_forbidden":
            message = f"unknown key {place[-1]!r}"
            nearest = nearest_name(str(place[-1]), model.model_fields) if len(place) == len(path) + 1 else ""
        elif first["type"] != "missing":
            message = f"{message[0].lower()}{message[1:]}, got {first['input']!r}"
        key = ".".join(str(step) for step in place)
        raise InputError(message, marked.where(place), key, nearest) from None


def _collect(file: Path, node: yaml.Node, path: KeyPath, lines: dict[KeyPath, int]) -> None:
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        for key_node, value_node in node.value:
            key = (*path, key_node.value)
            if key in lines:
                where = f"{file}:{key_node.start_mark.line + 1}"
                raise InputError(f"key stands twice, first in line {lines[key]}", where, str(key_node.value))
            lines[key] = key_node.start_mark.line + 1
            _collect(file, value_node, key, lines)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _collect(file, item, (*path, index), lines)

"""One YAML file as plain data that remembers the line of every key and value.

Stricter than YAML 1.1 where that silently means something else: `yes`, `no`, `on` and `off` are not booleans,
a key stands once, `010` and `1:30` and dates are not numbers.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from autotune.errors import InputError

Key = tuple[str | int, ...]
"""Where a value stands, e.g. `("constraints", 2, "rule")`."""

MAX_NODES = 100_000
"""Anchors may repeat values; what they unfold to stops here."""

_FAST_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's takes a tenth of the time; PyYAML may have been built without it."""

_WHOLE = re.compile("[-+]?(0|[1-9][0-9_]*|0x[0-9a-fA-F]+)")
_EXPONENT = re.compile(r"[-+]?[0-9]+(?:\.[0-9]*)?[eE][-+]?[0-9]+")


@dataclass(frozen=True)
class YamlFile:
    """What a file holds, and where."""

    path: Path
    data: Any
    lines: dict[Key, int]
    base: YamlFile | None = None
    """The file whose content stands here where this one says nothing else, see `autotune.spec.extends`."""

    def where(self, key: Key = ()) -> str:
        """`file:line` of the value, or of the closest one around it."""
        if self.base is not None and self.base._known_length(key) > self._own_length(key):
            return self.base.where(key)
        return f"{shown(self.path)}:{self.lines.get(key[: self._own_length(key)], 1)}"

    def _own_length(self, key: Key) -> int:
        """How much of the key is in this file itself."""
        return next((length for length in range(len(key), 0, -1) if key[:length] in self.lines), 0)

    def _known_length(self, key: Key) -> int:
        """How much of the key is in this file or in one below it."""
        return max(self._own_length(key), self.base._known_length(key) if self.base is not None else 0)

    def error(self, key: Key, rule: str, nearest: str = "") -> InputError:
        """The error to raise about this value."""
        return InputError(rule, self.where(key), ".".join(map(str, key)), nearest)


def shown(path: Path) -> str:
    """The path as users see it: relative where it lies below the working directory."""
    full = path.absolute()
    return str(full.relative_to(Path.cwd())) if full.is_relative_to(Path.cwd()) else str(path)


def read_yaml(path: Path) -> YamlFile:
    """The file's content; raises InputError with file and line where it is not plain YAML."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"cannot be read: {reason}", str(path)) from None
    return parse_yaml(text, path)


def parse_yaml(text: str, path: Path) -> YamlFile:
    """Like `read_yaml`, for text at hand; `path` is for messages."""
    reader = _Reader(path)
    try:
        node = _composed(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise InputError(f"is not valid YAML: {error.problem}", f"{shown(path)}{line}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise InputError(f"is not valid YAML: {' '.join(str(error).split())}", shown(path)) from None
    data = reader.plain(node, ()) if node is not None else None
    return YamlFile(path, data, reader.lines)


def _composed(text: str) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader=_FAST_LOADER)
    except (yaml.YAMLError, UnicodeError):
        # The slow reader says better what is wrong.
        return yaml.compose(text, Loader=yaml.SafeLoader)


class _Reader:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: dict[Key, int] = {}
        self.open: list[int] = []

    def plain(self, node: yaml.Node, key: Key) -> Any:
        self.lines[key] = node.start_mark.line + 1
        if len(self.lines) > MAX_NODES or id(node) in self.open or len(key) > 50:
            raise self.error(node, key, "anchors must not repeat without end")
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node, key)
        if node.tag not in ("tag:yaml.org,2002:seq", "tag:yaml.org,2002:map"):
            raise self.error(node, key, f"only plain lists and mappings are read, got {node.tag}")
        self.open.append(id(node))
        if isinstance(node, yaml.SequenceNode):
            data: Any = [self.plain(item, (*key, index)) for index, item in enumerate(node.value)]
        else:
            assert isinstance(node, yaml.MappingNode)
            data = self.mapping(node, key)
        self.open.pop()
        return data

    def mapping(self, node: yaml.MappingNode, key: Key) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            # A plain `NO` or `on` as a key would be a boolean, so the text itself is the name.
            plain = isinstance(key_node, yaml.ScalarNode) and key_node.value != "<<"
            if not plain or key_node.tag == "tag:yaml.org,2002:null":
                raise self.error(key_node, key, "keys must be plain names, got something else")
            name = str(key_node.value)
            if name in data:
                raise self.error(key_node, (*key, name), "a key stands once, got it a second time")
            data[name] = self.plain(value_node, (*key, name))
            self.lines[(*key, name)] = key_node.start_mark.line + 1
        return data

    def scalar(self, node: yaml.ScalarNode, key: Key) -> str | bool | int | float | None:
        text = str(node.value)
        match node.tag.rpartition(":")[2]:
            case "str" if not node.style and _EXPONENT.fullmatch(text):
                # YAML 1.1 wants a point and a sign in `1e-7`, which readers of any other language do not expect.
                return self.number(node, key, text)
            case "str":
                return text
            case "null":
                return None
            case "bool" if text.lower() in ("true", "false"):
                return text.lower() == "true"
            case "bool":
                meant = "true" if text.lower() in ("yes", "on") else "false"
                rule = f"a boolean is true or false and a word that YAML takes for one is quoted, got {text}"
                raise self.error(node, key, rule, f"{meant}, or '{text}'")
            case "int" if _WHOLE.fullmatch(text):
                return int(text.replace("_", ""), 0)
            case "int":
                raise self.error(node, key, f"a whole number is decimal without leading zeros, got {text}")
            case "float" if re.fullmatch("[-+.0-9eE_]+", text):
                return self.number(node, key, text.replace("_", ""))
            case kind:
                rule = f"a value is text, a number, true or false, got {text} ({kind})"
                raise self.error(node, key, rule, f"'{text}'")

    def number(self, node: yaml.Node, key: Key, text: str) -> float:
        if not math.isfinite(value := float(text)):
            raise self.error(node, key, f"a number must not be too large for a float, got {text}")
        return value

    def error(self, node: yaml.Node, key: Key, rule: str, nearest: str = "") -> InputError:
        where = f"{shown(self.path)}:{node.start_mark.line + 1}"
        return InputError(rule, where, ".".join(map(str, key)), nearest)


def shortened(value: object) -> str:
    """The value as it is quoted in messages."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."

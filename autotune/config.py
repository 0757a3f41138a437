"""One point of a search space: parameter names with their values, in the spec's order."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

Value = bool | int | float | str | tuple["Value", ...]
"""What a parameter may be; bool is kept apart from int everywhere."""


@dataclass(frozen=True)
class Config(Mapping[str, Value]):
    """An immutable mapping of parameter names to values; equal and hashable by type as well as value."""

    values_by_name: tuple[tuple[str, Value], ...]

    @classmethod
    def of(cls, values: Mapping[str, Value]) -> Config:
        """A config with the names in the order of the mapping."""
        return cls(tuple(values.items()))

    @classmethod
    def from_json(cls, text: str) -> Config:
        """The config that `to_json` wrote; lists become tuples again, types are kept."""
        return cls.of({name: _tupled(value) for name, value in json.loads(text).items()})

    def to_json(self) -> str:
        """Compact JSON with the names in order; 1, 1.0 and true stay different."""
        return json.dumps(dict(self.values_by_name), separators=(",", ":"))

    @cached_property
    def key(self) -> str:
        """Text that is equal exactly for equal configs, e.g. `BM=128,LOAD=cpasync,REGDB=true`."""
        return ",".join(f"{name}={value_text(value)}" for name, value in self.values_by_name)

    @cached_property
    def _by_name(self) -> dict[str, Value]:
        return dict(self.values_by_name)

    def replace(self, changes: Mapping[str, Value]) -> Config:
        """The same config with some values changed; names keep their order."""
        return Config(tuple((name, changes.get(name, value)) for name, value in self.values_by_name))

    def __getitem__(self, name: str) -> Value:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self.values_by_name)

    def __eq__(self, other: object) -> bool:
        # Python holds 1 == 1.0 == True, yet they render to different kernels.
        return isinstance(other, Config) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        return self.key


def value_text(value: Value) -> str:
    """How a value is written on the command line, in keys and in rendered source."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "(" + " ".join(value_text(item) for item in value) + ")"
    return str(value)


def _tupled(value: object) -> Value:
    if isinstance(value, list):
        return tuple(_tupled(item) for item in value)
    assert isinstance(value, bool | int | float | str)
    return value

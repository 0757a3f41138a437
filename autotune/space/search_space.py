"""The legal configurations of a kernel: counted, iterated, drawn and searched around, never as a raw product.

Configs keep the declared order of parameters. Their indices, 0 to count - 1, follow an order of their own
that depends on the parameters and rules alone.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from autotune.columns import Array
from autotune.config import Config, Value
from autotune.errors import InputError, NothingFound, nearest_name
from autotune.expressions import Expression
from autotune.space.diagram import Diagram, build_diagram
from autotune.space.nearness import fewest_changes, keep_in_order, next_up_and_down
from autotune.space.removals import is_estimated, removed_by, used_derived
from autotune.spec.kernel_spec import Parameter, Rule

CHUNK = 1 << 16
"""Configs that iteration decodes at once."""


class SearchSpace:
    """Parameters with their values, and the rules that legal configurations obey.

    Rules may use parameters, derived names and constants. A configuration for which a rule, or a derived name
    that a rule uses, has no value (division by zero) is illegal.
    """

    def __init__(
        self,
        parameters: Sequence[Parameter],
        rules: Sequence[Rule] = (),
        derived: Mapping[str, Expression] | None = None,
        constants: Mapping[str, Value] | None = None,
    ) -> None:
        """Raises InputError on an unknown name, or one that two parameters share."""
        self.parameters = tuple(parameters)
        self.rules = tuple(rules)
        self.derived = dict(derived or {})
        self.constants = dict(constants or {})
        self._codes_of = {parameter.name: _codes(parameter) for parameter in self.parameters}
        if len(self._codes_of) != len(self.parameters) or not self.parameters:
            raise InputError("needs parameters, each with its own name", key="parameters")
        self._check_names()

    def __repr__(self) -> str:
        return f"<SearchSpace of {len(self.parameters)} parameters, {len(self.rules)} rules>"

    # --- how many

    @cached_property
    def diagram(self) -> Diagram:
        """What all answers are read from; built on first use."""
        return build_diagram(
            {parameter.name: parameter.values for parameter in self.parameters},
            [rule.rule.tree for rule in self.rules],
            {name: expression.tree for name, expression in self.derived.items()},
            {name: value for name, value in self.constants.items() if name not in self._codes_of},
        )

    @property
    def count(self) -> int:
        """How many legal configs there are, exactly."""
        return self.diagram.count

    @property
    def raw_count(self) -> int:
        """How many combinations of values there are, legal or not."""
        return math.prod(len(parameter.values) for parameter in self.parameters)

    def __len__(self) -> int:
        return self.count

    def __bool__(self) -> bool:
        return self.count > 0

    # --- configs by index

    def at(self, index: int) -> Config:
        """The config with this index; raises IndexError outside 0 to count - 1."""
        if not 0 <= index < self.count:
            raise IndexError(f"index must be from 0 to {self.count - 1}, got {index}")
        return self._configs([index])[0]

    def index(self, config: Mapping[str, Value]) -> int:
        """The index of a legal config; raises InputError for any other."""
        codes = self._encode(config)
        if codes is not None:
            legal, index = self.diagram.indices(codes[None, :])
            if legal[0]:
                return int(index[0])
        raise InputError(f"is not a legal config of this space: {Config.of(config)}", key="config")

    def __contains__(self, config: object) -> bool:
        codes = self._encode(config) if isinstance(config, Mapping) else None
        return codes is not None and bool(self.diagram.indices(codes[None, :])[0][0])

    def __iter__(self) -> Iterator[Config]:
        names = [parameter.name for parameter in self.parameters]
        for row in self.rows():
            yield Config(tuple(zip(names, row, strict=True)))

    def rows(self) -> Iterator[tuple[Value, ...]]:
        """The values of every legal config, in the order of the parameters; quicker than whole configs."""
        for start in range(0, self.count, CHUNK):
            indices = np.arange(min(CHUNK, self.count - start), dtype=self._index_type) + start
            yield from self._rows(self.diagram.codes(indices))

    # --- drawing

    def sample(
        self, rng: np.random.Generator, n: int, exclude: Collection[Mapping[str, Value]] = frozenset()
    ) -> list[Config]:
        """`n` distinct legal configs, uniformly drawn from those not excluded; fewer where fewer are left."""
        taken = self._indices_of(exclude)
        n = min(n, self.count - len(taken))
        if n <= 0:
            return []
        if self.count <= 4 * (n + len(taken)) + 1000:
            left = np.setdiff1d(np.arange(self.count), np.fromiter(taken, dtype=np.int64, count=len(taken)))
            return self._configs(rng.choice(left, size=n, replace=False).tolist())
        drawn: dict[int, None] = {}
        while len(drawn) < n:
            index = _below(rng, self.count)
            if index not in taken:
                drawn[index] = None
        return self._configs(list(drawn))

    def feasible(self, prefix: Mapping[str, Value]) -> dict[str, tuple[Value, ...]]:
        """For every parameter, the values that some legal config has which agrees with `prefix`.

        `prefix` may fix any of the parameters. All are empty where no legal config agrees with it.
        """
        allowed = []
        for name in prefix:
            self._known(name)
        for parameter in self.parameters:
            mask = np.ones(len(parameter.values), dtype=bool)
            if parameter.name in prefix:
                mask[:] = False
                code = self._codes_of[parameter.name].get(repr(prefix[parameter.name]))
                if code is not None:
                    mask[code] = True
            allowed.append(mask)
        return {
            parameter.name: tuple(
                value for value, ok in zip(parameter.values, mask.tolist(), strict=True) if ok
            )
            for parameter, mask in zip(self.parameters, self.diagram.feasible(allowed), strict=True)
        }

    # --- near a point

    def repair(self, point: Mapping[str, Value], priority: Sequence[str] = ()) -> Config:
        """The legal config that keeps the values of `point` in order of priority.

        The first parameter gets the closest value that any legal config has, the second the closest that is
        left with it, and so on; parameters not named in `priority` follow in the declared order. Values not
        given are free. Raises NothingFound where no config is legal.
        """
        for name in [*priority, *point]:
            self._known(name)
        ranked = [*dict.fromkeys(priority), *(name for name in self._codes_of if name not in priority)]
        return self._config(keep_in_order(self._reachable(), self.parameters, point, ranked))

    def nearest(self, point: Mapping[str, Value]) -> Config:
        """The legal config that differs from `point` in the fewest parameters, and then by the fewest steps.

        A step is one position in a parameter's list of values. Raises NothingFound where no config is legal.
        """
        for name in point:
            self._known(name)
        return self._config(fewest_changes(self._reachable(), self.parameters, point))

    def neighbours(self, config: Mapping[str, Value], kind: str = "hamming") -> list[Config]:
        """The legal configs that differ from `config` in one parameter.

        `hamming`: by any value; `adjacent`: by the next value up and down that is legal beside the others.
        """
        codes = self._encode(config)
        if codes is None or kind not in ("hamming", "adjacent"):
            rule = "needs a value of each parameter" if codes is None else f"unknown kind {kind!r}"
            raise InputError(rule, key="neighbours", nearest="" if codes is None else "hamming, adjacent")
        changes = [
            (position, code)
            for position, parameter in enumerate(self.parameters)
            for code in range(len(parameter.values))
            if code != codes[position]
        ]
        if not changes:
            return []
        rows = np.repeat(codes[None, :], len(changes), axis=0)
        for row, (position, code) in zip(rows, changes, strict=True):
            row[position] = code
        legal, _ = self.diagram.indices(rows)
        chosen = [index for index, ok in enumerate(legal.tolist()) if ok]
        if kind == "adjacent":
            chosen = next_up_and_down(chosen, changes, codes)
        return [self._config(rows[index]) for index in chosen]

    # --- what rules remove

    def removed_by_rule(self) -> list[tuple[Rule, int]]:
        """How many of the raw combinations each rule by itself makes illegal.

        Exact where the rule's own parameters have few combinations; else estimated, see `estimated_rules`.
        """
        return [(rule, removed_by(self, rule)) for rule in self.rules]

    @property
    def estimated_rules(self) -> tuple[Rule, ...]:
        """The rules whose numbers in `removed_by_rule` are estimated on a random sample."""
        return tuple(rule for rule in self.rules if is_estimated(self, rule))

    # --- codes and configs

    @property
    def _index_type(self) -> np.dtype[np.generic]:
        return self.diagram.starts[0].dtype

    def _configs(self, indices: Sequence[int]) -> list[Config]:
        codes = self.diagram.codes(np.array(indices, dtype=self._index_type))
        return [self._config(row) for row in codes]

    def _config(self, codes: Array) -> Config:
        pairs = zip(self.parameters, codes.tolist(), strict=True)
        return Config(tuple((parameter.name, parameter.values[code]) for parameter, code in pairs))

    def _rows(self, codes: Array) -> Iterator[tuple[Value, ...]]:
        columns = []
        for position, parameter in enumerate(self.parameters):
            table = np.empty(len(parameter.values), dtype=object)
            table[:] = parameter.values
            columns.append(table[codes[:, position]].tolist())
        return zip(*columns, strict=True)

    def _encode(self, config: Mapping[str, Value]) -> Array | None:
        """Positions of the config's values; None where a name or value is not of this space."""
        if len(config) != len(self.parameters):
            return None
        codes = [
            self._codes_of[parameter.name].get(repr(config[parameter.name]))
            if parameter.name in config
            else None
            for parameter in self.parameters
        ]
        return None if None in codes else np.array(codes, dtype=np.intp)

    def _indices_of(self, configs: Collection[Mapping[str, Value]]) -> set[int]:
        """The indices of those configs that are legal here."""
        known = [codes for config in configs if (codes := self._encode(config)) is not None]
        if not known:
            return set()
        legal, indices = self.diagram.indices(np.stack(known))
        return set(indices[legal].tolist())

    def _reachable(self) -> Diagram:
        if not self.count:
            raise NothingFound("no configuration is legal: the rules exclude each other")
        return self.diagram

    def _known(self, name: str) -> None:
        if name not in self._codes_of:
            raise InputError(f"unknown parameter {name!r}", nearest=nearest_name(name, self._codes_of))

    def _check_names(self) -> None:
        known = {*self._codes_of, *self.constants}
        used = used_derived([rule.rule for rule in self.rules], self.derived)
        for name, expression in used.items():
            _check(expression, known, f"derived.{name}")
            known.add(name)
        for rule in self.rules:
            _check(rule.rule, known, "constraints")


def _check(expression: Expression, known: Collection[str], key: str) -> None:
    for name in sorted(expression.names - set(known)):
        rule = f"unknown name {name!r} in {expression.text!r}"
        raise InputError(rule, expression.where, key, nearest_name(name, known))


def _codes(parameter: Parameter) -> dict[str, int]:
    # In Python 1, 1.0 and True are equal; what they render to is not.
    return {repr(value): index for index, value in enumerate(parameter.values)}


def _below(rng: np.random.Generator, limit: int) -> int:
    """A uniform integer from 0 to limit - 1, of any size."""
    if limit < 2**62:
        return int(rng.integers(limit))
    bits = limit.bit_length()
    while True:
        value = int.from_bytes(rng.bytes(bits // 8 + 1), "little") >> (8 - bits % 8)
        if value < limit:
            return value

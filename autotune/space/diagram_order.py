"""In which order a diagram binds its parameters, so that its levels stay narrow.

Greedy: next comes the parameter after which the fewest states are expected. How many values a part of a rule
has, and which share of the rows a rule keeps, is seen on a small random sample.
"""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from autotune.columns import Array
from autotune.config import Value
from autotune.space.folding import every_row, parts_of, values_where_defined

SAMPLE = 1000
"""Random combinations that estimates are made on."""

STARTS = 4
"""Parameters that are tried as the first of the order."""


def variable_order(
    tables: Mapping[str, Array],
    rules: Sequence[ast.expr],
    definitions: Mapping[str, ast.expr],
    constants: Mapping[str, object],
) -> list[str]:
    """All parameters, those that no rule uses last."""
    estimate = _Estimate(tables, rules, definitions, constants)
    tied = [name for name in tables if estimate.rules_of(name)]
    starts = sorted(tied, key=lambda name: (-estimate.rules_of(name), len(tables[name])))[:STARTS]
    orders = [_greedy(estimate, tied, start) for start in starts]
    best = min(orders, key=lambda order: order[1])[0] if orders else []
    return best + [name for name in tables if name not in best]


def _greedy(estimate: _Estimate, names: Sequence[str], start: str) -> tuple[list[str], float]:
    """An order that begins with `start`, and the rows that building it is expected to take."""
    order: list[str] = []
    rows = 0.0
    while len(order) < len(names):
        bound = frozenset(order)
        open_names = [name for name in names if name not in bound]
        candidates = [start] if not order else estimate.tied_to(bound, open_names) or open_names
        following = min(candidates, key=lambda name: (estimate.states(bound | {name}), names.index(name)))
        rows += math.exp(min(estimate.states(bound) + math.log(len(estimate.tables[following])), 700))
        order.append(following)
    return order, rows


@dataclass
class _Part:
    """A node of a rule, with definitions written out."""

    names: frozenset[str]
    """Parameters it depends on."""
    size: float
    """Logarithm of how many values it is expected to have."""
    parts: list[_Part]
    key: str


@dataclass
class _Estimate:
    tables: Mapping[str, Array]
    rules: Sequence[ast.expr]
    definitions: Mapping[str, ast.expr]
    constants: Mapping[str, object]
    _parts: dict[str, _Part] = field(default_factory=dict)
    _states: dict[frozenset[str], float] = field(default_factory=dict)

    @cached_property
    def sample(self) -> dict[str, Array | Value]:
        """Columns of random combinations, definitions included."""
        rng = np.random.default_rng(1)
        columns: dict[str, Array | Value] = dict(self.constants)  # type: ignore[arg-type]
        for name, table in self.tables.items():
            columns[name] = table[rng.integers(len(table), size=SAMPLE)]
        for name, tree in self.definitions.items():
            columns[name] = every_row(values_where_defined(tree, columns, SAMPLE)[0], SAMPLE)
        return columns

    @cached_property
    def roots(self) -> list[tuple[_Part, float]]:
        """Each rule with the logarithm of the share of the sample that it keeps."""
        return [(self.part(tree), self.kept_share(tree)) for tree in self.rules]

    def kept_share(self, tree: ast.expr) -> float:
        column, defined = values_where_defined(tree, self.sample, SAMPLE)
        kept = sum(bool(value) for value in column[defined].tolist())
        return math.log(max(kept, 0.5) / SAMPLE)

    def part(self, tree: ast.expr) -> _Part:
        if isinstance(tree, ast.Name) and tree.id in self.definitions:
            return self.part(self.definitions[tree.id])
        key = ast.unparse(tree)
        if key not in self._parts:
            parts = [self.part(part) for part in parts_of(tree)]
            names = frozenset[str]().union(*(part.names for part in parts))
            if isinstance(tree, ast.Name) and tree.id in self.tables:
                names = frozenset((tree.id,))
            self._parts[key] = _Part(
                names, self.size(tree, names), [part for part in parts if part.names], key
            )
        return self._parts[key]

    def size(self, tree: ast.expr, names: frozenset[str]) -> float:
        most = sum(math.log(len(self.tables[name])) for name in names)
        if isinstance(tree, ast.Name | ast.Tuple | ast.List) or not names:
            return most
        column, defined = values_where_defined(tree, self.sample, SAMPLE)
        seen = Counter(map(repr, column[defined].tolist()))
        times = Counter(seen.values())
        # Chao's estimate of how many there are in all, from those seen once and those seen twice.
        unseen = times[1] ** 2 / (2 * (times[2] + 1))
        return min(most, math.log(max(len(seen) + unseen, 1)))

    def rules_of(self, name: str) -> int:
        return sum(name in root.names for root, _ in self.roots)

    def tied_to(self, bound: frozenset[str], names: Iterable[str]) -> list[str]:
        """Those of the names that stand in an open rule together with a bound one."""
        open_rules = [root.names for root, _ in self.roots if root.names & bound and not root.names <= bound]
        tied = frozenset[str]().union(*open_rules)
        return [name for name in names if name in tied]

    def states(self, bound: frozenset[str]) -> float:
        """Logarithm of the states expected once these names are bound."""
        if bound not in self._states:
            self._states[bound] = self._expected(bound)
        return self._states[bound]

    def _expected(self, bound: frozenset[str]) -> float:
        needed: dict[str, _Part] = {}
        for root, _ in self.roots:
            if root.names & bound and not root.names <= bound:
                self.largest_bound(root, bound, needed)
        frontier = frozenset[str]().union(*(part.names for part in needed.values()))
        product = sum(math.log(len(self.tables[name])) for name in frontier)
        size = min(sum(part.size for part in needed.values()), product)
        for root, share in self.roots:
            if root.names <= bound and root.names:
                size += share * len(root.names & frontier) / len(root.names)
        return max(size, 0.0)

    def largest_bound(self, part: _Part, bound: frozenset[str], found: dict[str, _Part]) -> None:
        for inner in part.parts:
            if inner.names <= bound:
                found[inner.key] = inner
            elif inner.names & bound:
                self.largest_bound(inner, bound, found)

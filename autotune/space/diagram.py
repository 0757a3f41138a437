"""All legal combinations of finite values as a decision diagram: counted and ranked without their product.

Parameters are bound one level after another. The nodes of a level are the distinct states of the rules that
are still open (see `autotune.space.folding`); an edge is one value of the next parameter. With the number of
completions below every node known, the i-th combination, the index of a combination and the values that still
have a completion are walks along the levels.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.columns import Array, as_column
from autotune.config import Value
from autotune.errors import InputError
from autotune.space.diagram_order import variable_order
from autotune.space.folding import (
    conjuncts,
    folded,
    holding,
    names_in,
    nested,
    values_of,
    values_where_defined,
)

MAX_ROWS = 30_000_000
"""Rows of one level while it is built; rules that tie more together are refused."""

_UNREACHABLE = 2**62


@dataclass(frozen=True)
class Diagram:
    """The levels in the order in which parameters are bound.

    A combination is a row of codes: the position of each parameter's value among its values.
    """

    order: tuple[int, ...]
    """Which parameter each level binds, as a position in the declared order."""
    children: tuple[Array, ...]
    """By level: [nodes, values], the node that a value leads to; -1 where no legal combination follows."""
    starts: tuple[Array, ...]
    """By level: [nodes, values], how many combinations below the node come before those of a value."""
    count: int

    def codes(self, indices: Array) -> Array:
        """The combinations with these indices, one per row, a column per parameter in the declared order."""
        result = np.empty((len(indices), len(self.order)), dtype=np.intp)
        node = np.zeros(len(indices), dtype=np.intp)
        rest = indices
        for level, parameter in enumerate(self.order):
            starts = self.starts[level][node]
            # Values without combinations have no width, so the last start not beyond is the right one.
            value = (starts <= rest[:, None]).sum(axis=1) - 1
            rest = rest - np.take_along_axis(starts, value[:, None], axis=1)[:, 0]
            result[:, parameter] = value
            node = self.children[level][node, value]
        return result

    def indices(self, codes: Array) -> tuple[Array, Array]:
        """For each row of codes whether it is legal, and its index where it is."""
        node = np.zeros(len(codes), dtype=np.intp)
        legal = np.full(len(codes), self.count > 0)
        index = np.zeros(len(codes), dtype=self.starts[0].dtype)
        for level, parameter in enumerate(self.order):
            if not self.count:
                break
            value = codes[:, parameter]
            index = index + self.starts[level][node, value]
            node = self.children[level][node, value]
            legal &= node >= 0
            node = np.where(legal, node, 0)
        return legal, index

    def feasible(self, allowed: Sequence[Array]) -> list[Array]:
        """By parameter, which of its values stand in a legal combination of allowed values; all are masks."""
        result = [np.zeros(len(mask), dtype=bool) for mask in allowed]
        if not self.count:
            return result
        alive: list[Array] = [np.ones(1, dtype=bool)]
        edges: list[Array] = []
        for level in reversed(range(len(self.order))):
            children = self.children[level]
            edges.append(np.asarray(allowed[self.order[level]] & (children >= 0) & alive[-1][children]))
            alive.append(np.asarray(edges[-1].any(axis=1)))
        reached = np.ones(1, dtype=bool)
        for level, parameter in enumerate(self.order):
            open_edges = edges[-1 - level] & reached[:, None]
            result[parameter] |= open_edges.any(axis=0)
            reached = np.zeros(len(alive[-2 - level]), dtype=bool)
            reached[self.children[level][open_edges]] = True
        return result

    def cheapest(self, costs: Sequence[Array]) -> Array:
        """The legal combination with the least sum of costs: int64, by parameter one for each value."""
        best: list[Array] = [np.zeros(1, dtype=np.int64)]
        for level in reversed(range(len(self.order))):
            children = self.children[level]
            sums = np.where(children < 0, _UNREACHABLE, costs[self.order[level]] + best[-1][children])
            best.append(np.minimum(sums.min(axis=1), _UNREACHABLE))
        codes = np.empty(len(self.order), dtype=np.intp)
        node = 0
        for level, parameter in enumerate(self.order):
            children = self.children[level][node]
            sums = np.where(children < 0, _UNREACHABLE, costs[parameter] + best[-2 - level][children])
            codes[parameter] = sums.argmin()
            node = children[codes[parameter]]
        return codes


def build_diagram(
    values: Mapping[str, Sequence[Value]],
    rules: Sequence[ast.expr],
    definitions: Mapping[str, ast.expr],
    constants: Mapping[str, Value],
) -> Diagram:
    """The diagram of all combinations of values in which every rule holds.

    Definitions name parts of rules, each over values, constants and earlier definitions. A rule or definition
    without a value (division by zero) does not hold.
    """
    names = list(values)
    tables = {name: as_column(list(entries)) for name, entries in values.items()}
    build = _Build(rules, definitions, constants)
    order = variable_order(tables, build.rules, build.definitions, build.constants)
    children: list[Array] = []
    for name in order:
        children.append(build.bind(name, tables[name]))
    return counted([names.index(name) for name in order], children, build.nodes)


def counted(order: Sequence[int], children: Sequence[Array], last_nodes: int) -> Diagram:
    """The diagram of these levels, without edges that lead nowhere, and with the combinations below each counted."""
    big = math.prod(edges.shape[1] for edges in children) >= 2**62
    below: Array = np.ones(last_nodes, dtype=object if big else np.int64)
    starts: list[Array] = []
    alive: list[Array] = []
    for edges in reversed(children):
        if not len(below):
            below = np.zeros(1, dtype=below.dtype)
        counts = np.where(edges >= 0, below[edges], 0)
        totals = np.cumsum(counts, axis=1)
        starts.append(totals - counts)
        alive.append(np.where(counts > 0, edges, -1).astype(np.intp))
        below = totals[:, -1]
    return Diagram(tuple(order), tuple(alive[::-1]), tuple(starts[::-1]), int(below[0]) if len(below) else 0)


@dataclass
class _Column:
    """One value per node or row, as positions in a table of distinct values."""

    codes: Array
    table: Array

    def at(self, rows: Array) -> _Column:
        return _Column(self.codes[rows], self.table)


class _Build:
    """The open rules and the states of the level that is being built."""

    def __init__(
        self, rules: Sequence[ast.expr], definitions: Mapping[str, ast.expr], constants: Mapping[str, Value]
    ) -> None:
        self.rules = [nested(part) for rule in rules for part in conjuncts(rule)]
        self.definitions = {name: nested(tree) for name, tree in definitions.items()}
        self.constants: dict[str, Value | Array] = dict(constants)
        self.state: dict[str, _Column] = {}
        self.nodes = 1
        self.close_constant()

    def close_constant(self) -> None:
        """Settles all that no parameter has a part in."""
        self.definitions = self.needed()
        for name, tree in list(self.definitions.items()):
            if names_in(tree) <= self.constants.keys():
                column, defined = values_where_defined(tree, self.constants, 1)
                self.constants[name] = column.tolist()[0]
                self.nodes *= int(defined[0])
                del self.definitions[name]
        for tree in list(self.rules):
            if names_in(tree) <= self.constants.keys():
                self.rules.remove(tree)
                self.nodes *= int(holding(tree, self.constants, 1)[0])

    def needed(self) -> dict[str, ast.expr]:
        """The definitions that open rules use, themselves or through others."""
        wanted = {name for tree in self.rules for name in names_in(tree)}
        found: dict[str, ast.expr] = {}
        for name, tree in reversed(self.definitions.items()):
            if name in wanted:
                found[name] = tree
                wanted |= names_in(tree)
        return dict(reversed(found.items()))

    def bind(self, parameter: str, table: Array) -> Array:
        """Takes the next parameter in and gives the edges from the nodes so far, as in `Diagram.children`."""
        width = len(table)
        if self.nodes * width > MAX_ROWS:
            raise InputError(
                f"the rules tie too many parameters together: over {MAX_ROWS} states at {parameter}",
                key="constraints",
                nearest="fewer values, or rules over fewer parameters",
            )
        rows = _Rows(self, parameter, table)
        self.close_bound(rows)
        kept = self.kept(rows)
        edges = np.full((self.nodes, width), -1, dtype=np.intp)
        states, first = _distinct(list(kept.values()), rows.count)
        edges[rows.node, rows.value] = states
        self.state = {name: column.at(first) for name, column in kept.items()}
        self.nodes = len(first)
        return edges

    def close_bound(self, rows: _Rows) -> None:
        """Settles definitions and rules whose names are all bound now, and drops the rows that break them."""
        for name, tree in list(self.definitions.items()):
            if names_in(tree) <= rows.bound:
                column, defined = values_where_defined(tree, rows, rows.count)
                rows.add(name, column)
                rows.keep(defined)
                del self.definitions[name]
        for tree in list(self.rules):
            if names_in(tree) <= rows.bound:
                self.rules.remove(tree)
                rows.keep(holding(tree, rows, rows.count))

    def kept(self, rows: _Rows) -> dict[str, _Column]:
        """The columns that open rules and definitions need, once they are folded as far as they are bound."""
        self.definitions = self.needed()

        def fold(tree: ast.expr) -> ast.expr:
            return folded(tree, rows.bound, self.constants, rows.compute)

        self.rules = [fold(tree) for tree in self.rules]
        self.definitions = {name: fold(tree) for name, tree in self.definitions.items()}
        trees = [*self.rules, *self.definitions.values()]
        used = {name for tree in trees for name in names_in(tree)} & rows.bound
        return {name: rows.column(name) for name in sorted(used - self.constants.keys())}


class _Rows(Mapping[str, "Array | Value"]):
    """Every node with every value of the next parameter, less the rows that rules have dropped."""

    def __init__(self, build: _Build, parameter: str, table: Array) -> None:
        self._build, self._parameter, self._table = build, parameter, table
        self.node = np.repeat(np.arange(build.nodes), len(table))
        self.value = np.tile(np.arange(len(table)), build.nodes)
        self.bound = {*build.constants, *build.state, parameter}
        self._computed: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array | Value:
        if name in self._computed:
            return self._computed[name]
        if name in self._build.constants:
            return self._build.constants[name]
        column = self.column(name)
        self._computed[name] = column.table[column.codes]
        return self._computed[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.bound)

    def __len__(self) -> int:
        return len(self.bound)

    @property
    def count(self) -> int:
        """How many rows are left."""
        return len(self.node)

    def add(self, name: str, column: Array) -> None:
        """A new column, computed from others."""
        self._computed[name] = column
        self.bound.add(name)

    def compute(self, name: str, tree: ast.expr) -> bool:
        """Adds the tree's values under this name; False where some row has none."""
        if name not in self.bound:
            try:
                column = values_of(tree, self)
            except InputError:
                return False
            self.add(name, np.broadcast_to(column, (self.count,)))
        return True

    def keep(self, mask: Array) -> None:
        """Drops the rows outside the mask."""
        if not mask.all():
            self.node, self.value = self.node[mask], self.value[mask]
            self._computed = {name: column[mask] for name, column in self._computed.items()}

    def column(self, name: str) -> _Column:
        """The values of one name as codes."""
        if name == self._parameter:
            return _Column(self.value, self._table)
        if name in self._build.state:
            return self._build.state[name].at(self.node)
        return _encoded(self._computed[name])


def _encoded(column: Array) -> _Column:
    if column.dtype == bool:
        return _Column(column.astype(np.intp), np.array([False, True]))
    if column.dtype == object:
        # As Python objects 1 and True are equal, yet rules may tell them apart.
        texts = {repr(item): item for item in column}
        position = {text: index for index, text in enumerate(texts)}
        codes = np.fromiter((position[repr(item)] for item in column), dtype=np.intp, count=len(column))
        table = np.empty(len(texts), dtype=object)
        table[:] = list(texts.values())
        return _Column(codes, table)
    if column.dtype == np.int64 and len(column):
        low, high = int(column.min()), int(column.max())
        if high - low < 4 * len(column):
            return _Column(column - low, np.arange(low, high + 1))
    table, codes = np.unique(column, return_inverse=True)
    return _Column(codes, table)


def _distinct(columns: Sequence[_Column], rows: int) -> tuple[Array, Array]:
    """For each row the number of its state, and for each state one row that has it."""
    key: Array = np.zeros(rows, dtype=np.int64)
    size = 1
    for column in columns:
        if size * len(column.table) > 2**62:
            distinct, key = np.unique(key, return_inverse=True)
            size = len(distinct)
        key = key * len(column.table) + column.codes
        size *= len(column.table)
    if size > 4 * rows + 1000:
        _, first, states = np.unique(key, return_index=True, return_inverse=True)
        return states, first
    seen = np.zeros(size, dtype=bool)
    seen[key] = True
    number = np.cumsum(seen) - 1
    states = number[key]
    first = np.zeros(int(seen.sum()), dtype=np.intp)
    first[states] = np.arange(rows)
    return states, first

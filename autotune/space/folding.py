"""Rules that are half known: what of an expression can be computed already, and what is still open.

While parameters are bound one after another, all that the open rules still need of the bound ones are the
values of their largest bound parts: of `a * b * c <= 100` with `a` and `b` bound, the product. Combinations
that agree in these values allow the same completions.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from autotune.columns import Array, Columns, as_column, evaluate_columns
from autotune.config import Value
from autotune.errors import InputError
from autotune.expressions import Evaluator, compiled

PART = "part:"
"""Begins the names of computed parts; no parameter can have such a name."""


def names_in(tree: ast.expr) -> frozenset[str]:
    """The free names of a tree."""
    if isinstance(tree, ast.Name):
        return frozenset((tree.id,))
    return frozenset[str]().union(*(names_in(part) for part in parts_of(tree)))


def parts_of(tree: ast.expr) -> Sequence[ast.expr]:
    """The direct operands of a node."""
    match tree:
        case ast.BinOp(left=left, right=right):
            return (left, right)
        case ast.UnaryOp(operand=operand):
            return (operand,)
        case (
            ast.BoolOp(values=values) | ast.Call(args=values) | ast.Tuple(elts=values) | ast.List(elts=values)
        ):
            return values
        case ast.Compare(left=left, comparators=others):
            return (left, *others)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return (test, body, orelse)
        case ast.Subscript(value=value, slice=index):
            return (value, index)
        case _:
            return ()


def with_parts(tree: ast.expr, parts: Sequence[ast.expr]) -> ast.expr:
    """The same node over other operands, in the order of `parts_of`."""
    new = copy.copy(tree)
    match new:
        case ast.BinOp():
            new.left, new.right = parts
        case ast.UnaryOp():
            (new.operand,) = parts
        case ast.BoolOp():
            new.values = list(parts)
        case ast.Call():
            new.args = list(parts)
        case ast.Tuple() | ast.List():
            new.elts = list(parts)
        case ast.Compare():
            new.left, new.comparators = parts[0], list(parts[1:])
        case ast.IfExp():
            new.test, new.body, new.orelse = parts
        case ast.Subscript():
            new.value, new.slice = parts
    return new


def conjuncts(tree: ast.expr) -> list[ast.expr]:
    """The conditions that `and` joins at the top: each may be asked as soon as its own names are bound."""
    if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And):
        return [part for value in tree.values for part in conjuncts(value)]
    return [tree]


def nested(tree: ast.expr) -> ast.expr:
    """The same tree with every `min`, `max`, `and` and `or` over two operands: `max(max(a, b), c)`.

    So a part of the operands folds as soon as it is bound.
    """
    parts = [nested(part) for part in parts_of(tree)]
    splits = isinstance(tree, ast.BoolOp) or (
        isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id in ("min", "max")
    )
    while splits and len(parts) > 2:
        parts[:2] = [with_parts(tree, parts[:2])]
    return with_parts(tree, parts) if parts else tree


def folded(
    tree: ast.expr,
    bound: Collection[str],
    constants: Collection[str],
    compute: Callable[[str, ast.expr], bool],
) -> ast.expr:
    """The tree with its largest bound parts replaced by names.

    `compute` is asked with a name and the part that it stands for, and answers whether the part has a value
    in every row; where it has none, smaller parts are tried.
    """
    names = names_in(tree)
    if (
        not isinstance(tree, ast.Name | ast.Tuple | ast.List)
        and names <= set(bound)
        and not names <= set(constants)
    ):
        name = PART + ast.unparse(tree)
        if compute(name, tree):
            return ast.Name(name)
    parts = parts_of(tree)
    if not parts:
        return tree
    return with_parts(tree, [folded(part, bound, constants, compute) for part in parts])


def values_of(tree: ast.expr, columns: Columns) -> Array:
    """The tree's value in each row; raises InputError where a row has none."""
    evaluator: list[Evaluator] = []

    def scalar(names: Mapping[str, Value]) -> Value:
        if not evaluator:
            evaluator.append(compiled(tree))
        try:
            return evaluator[0](names)
        except (ArithmeticError, ValueError, LookupError, TypeError) as error:
            raise InputError(f"{ast.unparse(tree)!r} has no value: {error}") from None

    return evaluate_columns(tree, names_in(tree), columns, scalar)


def values_where_defined(tree: ast.expr, columns: Columns, rows: int) -> tuple[Array, Array]:
    """The tree's value in each row, and which rows have one; elsewhere the value means nothing."""
    try:
        return every_row(values_of(tree, columns), rows), every_row(as_column([True]), rows)
    except InputError:
        pass
    names = sorted(names_in(tree))
    evaluator = compiled(tree)
    columns_used = [every_row(_as_array(columns[name]), rows).tolist() for name in names]
    values: list[Value | None] = []
    for row in zip(*columns_used, strict=True) if names else [()] * rows:
        try:
            values.append(evaluator(dict(zip(names, row, strict=True))))
        except (ArithmeticError, ValueError, LookupError, TypeError):
            values.append(None)
    defined = as_column([value is not None for value in values]) if rows else every_row(as_column([True]), 0)
    some = next((value for value in values if value is not None), False)
    return as_column([some if value is None else value for value in values]), defined


def holding(tree: ast.expr, columns: Columns, rows: int) -> Array:
    """In which rows the condition has a value and holds."""
    column, defined = values_where_defined(tree, columns, rows)
    if column.dtype == object:
        column = np.fromiter((bool(item) for item in column), dtype=bool, count=rows)
    return np.asarray(defined & (column != "" if column.dtype.kind == "U" else column.astype(bool)))


def _as_array(column: Array | Value) -> Array:
    return column if isinstance(column, np.ndarray) else as_column([column])


def every_row(column: Array, rows: int) -> Array:
    """The column with one element per row, where it had a single one for all."""
    return column if column.shape == (rows,) else np.broadcast_to(column.reshape(-1), (rows,))

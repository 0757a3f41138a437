"""Expressions over whole columns at once, with exactly the answers that row-by-row evaluation gives.

NumPy is used where it agrees with Python. Where it does not (int64 overflow, results of mixed types, tuples),
the rows are evaluated one by one. Operands that `and`, `or`, `if` and chained comparisons skip in a row are
not evaluated for that row.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from autotune.config import Value
from autotune.expressions import power

Array = np.ndarray[Any, np.dtype[Any]]
Columns = Mapping[str, Array | Value]
"""By name: one array with an element per row, or one value that all the rows share."""

_EXACT_FLOAT = 2**53
_INT64 = 2**63


class _Differs(Exception):
    """NumPy would not give Python's answer here."""


def evaluate_columns(
    tree: ast.expr, names: frozenset[str], columns: Columns, scalar: Callable[[Mapping[str, Value]], Value]
) -> Array:
    """What `scalar` gives in each row."""
    try:
        with np.errstate(all="ignore"):
            result = _evaluated(tree, columns)
    except (_Differs, KeyError, ZeroDivisionError, OverflowError, ValueError, TypeError):
        return _by_row(names, columns, scalar)
    rows = _row_count(names, columns)
    column = result if isinstance(result, np.ndarray) else as_column([result])
    if rows is None:
        return column.reshape(())
    return column if column.shape == (rows,) else np.repeat(column, rows)


def as_column(values: Sequence[Value]) -> Array:
    """The values as bool, int64, float64 or text; as Python objects where they are none of these alone."""
    kinds = {type(value) for value in values}
    if kinds == {bool}:
        return np.array(values, dtype=bool)
    if kinds == {int} and all(-_INT64 <= value < _INT64 for value in values):  # type: ignore[operator]
        return np.array(values, dtype=np.int64)
    if kinds == {float}:
        return np.array(values, dtype=np.float64)
    if kinds == {str} and not any(str(value).endswith("\0") for value in values):
        return np.array(values, dtype=np.str_)
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def _row_count(names: frozenset[str], columns: Columns) -> int | None:
    for name in names:
        column = columns[name]
        if isinstance(column, np.ndarray) and column.ndim:
            return len(column)
    return None


def _by_row(names: frozenset[str], columns: Columns, scalar: Callable[[Mapping[str, Value]], Value]) -> Array:
    used = {name: columns[name] for name in sorted(names) if name in columns}
    shared: dict[str, Value] = {
        name: column.item() if isinstance(column, np.ndarray) else column
        for name, column in used.items()
        if not isinstance(column, np.ndarray) or not column.ndim
    }
    varying = {name: column for name, column in used.items() if name not in shared}
    if not varying:
        return as_column([scalar(shared)]).reshape(())
    keys = [column.tolist() for column in varying.values() if isinstance(column, np.ndarray)]
    seen: dict[object, Value] = {}
    results = []
    mixed = any(isinstance(column, np.ndarray) and column.dtype == object for column in varying.values())
    for row in zip(*keys, strict=True):
        key = repr(row) if mixed else row  # as objects, 1 and True would be taken for the same
        if key not in seen:
            seen[key] = scalar({**shared, **dict(zip(varying, row, strict=True))})
        results.append(seen[key])
    return as_column(results)


class _Rows(Mapping[str, "Array | Value"]):
    """Some of the rows of other columns."""

    def __init__(self, columns: Columns, chosen: Array) -> None:
        self._columns, self._chosen = columns, chosen

    def __getitem__(self, name: str) -> Array | Value:
        column = self._columns[name]
        return column[self._chosen] if isinstance(column, np.ndarray) and column.ndim else column

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


# --- one node ---------------------------------------------------------------------------------------------


def _evaluated(node: ast.expr, columns: Columns) -> Array | Value:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() as value):
            return value
        case ast.Name(id=name):
            return _checked(columns[name])
        case ast.BinOp(left=left, op=op, right=right):
            return _binary(type(op), _evaluated(left, columns), _evaluated(right, columns))
        case ast.UnaryOp(op=op, operand=operand):
            return _unary(op, _evaluated(operand, columns))
        case ast.BoolOp(op=op, values=operands):
            return _early_stop(isinstance(op, ast.And), operands, columns)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _choice(_truth(_evaluated(test, columns)), body, orelse, columns)
        case ast.Compare():
            return _compared(node, columns)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _called(name, [_evaluated(argument, columns) for argument in arguments])
        case _:
            raise _Differs  # tuples: row by row


def _checked(column: Array | Value) -> Array | Value:
    if not isinstance(column, np.ndarray):
        return column
    if not column.ndim:
        return column.item()  # type: ignore[no-any-return]
    if column.dtype.kind in "bU" or column.dtype == np.int64:
        return column
    if column.dtype == np.float64:
        return _finite(column)
    if column.dtype.kind == "i" or (column.dtype.kind == "u" and column.dtype.itemsize < 8):
        return column.astype(np.int64)
    raise _Differs


def _finite(column: Array) -> Array:
    if not np.isfinite(column).all():
        raise _Differs
    return column


def _array(value: Array | Value) -> Array:
    if isinstance(value, np.ndarray):
        return value
    column = as_column([value])
    if column.dtype == object:
        raise _Differs
    return column


def _numbers(value: Array | Value) -> Array:
    column = _array(value)
    if column.dtype.kind == "b":
        return column.astype(np.int64)
    if column.dtype.kind not in "if":
        raise _Differs
    return column


def _span(column: Array) -> tuple[int, int]:
    return (int(column.min()), int(column.max())) if column.size else (0, 0)


def _fits(*values: int) -> None:
    if not all(-_INT64 <= value < _INT64 for value in values):
        raise _Differs


def _binary(op: type[ast.operator], left: Array | Value, right: Array | Value) -> Array | Value:
    a, b = _numbers(left), _numbers(right)
    whole = a.dtype.kind == b.dtype.kind == "i"
    if op in (ast.Div, ast.FloorDiv, ast.Mod) and not b.all():
        raise _Differs
    if op is ast.Pow or (not whole and op in (ast.FloorDiv, ast.Mod)):
        return _elementwise(_SCALAR[op], a, b)
    if op is ast.Div:
        if whole and max(map(abs, _span(a) + _span(b))) > _EXACT_FLOAT:
            raise _Differs
        return _finite(np.true_divide(a, b))
    if not whole:
        return _finite(_UFUNC[op](a, b))
    (a_low, a_high), (b_low, b_high) = _span(a), _span(b)
    if op is ast.Add:
        _fits(a_low + b_low, a_high + b_high)
    elif op is ast.Sub:
        _fits(a_low - b_high, a_high - b_low)
    elif op is ast.Mult:
        _fits(a_low * b_low, a_low * b_high, a_high * b_low, a_high * b_high)
    else:
        _fits(-a_low)
    return _UFUNC[op](a, b)


_UFUNC: dict[type[ast.operator], Callable[[Array, Array], Array]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.FloorDiv: np.floor_divide,
    ast.Mod: np.remainder,
}


_SCALAR: dict[type[ast.operator], Callable[..., Any]] = {
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
    ast.Pow: power,
}


def _elementwise(function: Callable[..., Any], *operands: Array) -> Array:
    """Python's own function, once for each distinct row."""
    rows = list(zip(*[operand.tolist() for operand in np.broadcast_arrays(*operands)], strict=True))
    answers = {row: function(*row) for row in set(rows)}
    column = as_column([answers[row] for row in rows])
    if column.dtype == object and len(column):
        raise _Differs
    return column


def _unary(op: ast.unaryop, operand: Array | Value) -> Array | Value:
    if isinstance(op, ast.Not):
        return ~_truth(operand)
    column = _numbers(operand)
    if isinstance(op, ast.UAdd):
        return column
    if column.dtype.kind == "i":
        _fits(*(-bound for bound in _span(column)))
    return np.negative(column)


def _truth(value: Array | Value) -> Array:
    column = _array(value)
    return column if column.dtype.kind == "b" else column != ("" if column.dtype.kind == "U" else 0)


def _joined(rows: Array, yes: Array | Value, no: Array | Value) -> Array:
    """`yes` in the chosen rows and `no` in the others."""
    a, b = _array(yes), _array(no)
    if a.dtype.kind != b.dtype.kind:
        raise _Differs
    result = np.empty(len(rows), dtype=np.result_type(a, b))
    result[rows] = a
    result[~rows] = b
    return result


def _choice(rows: Array, yes: ast.expr, no: ast.expr, columns: Columns) -> Array | Value:
    if rows.all():
        return _evaluated(yes, columns)
    if not rows.any():
        return _evaluated(no, columns)
    return _joined(rows, _evaluated(yes, _Rows(columns, rows)), _evaluated(no, _Rows(columns, ~rows)))


def _early_stop(stop_on_false: bool, operands: list[ast.expr], columns: Columns) -> Array | Value:
    value = _evaluated(operands[0], columns)
    if len(operands) == 1:
        return value
    going_on = _truth(value) if stop_on_false else ~_truth(value)
    if not going_on.any():
        return value
    if going_on.all():
        return _early_stop(stop_on_false, operands[1:], columns)
    rest = _early_stop(stop_on_false, operands[1:], _Rows(columns, going_on))
    return _joined(going_on, rest, _array(value)[~going_on])


def _compared(node: ast.Compare, columns: Columns) -> Array | Value:
    value = _evaluated(node.left, columns)
    return _links(value, list(zip(node.ops, node.comparators, strict=True)), columns)


def _links(left: Array | Value, links: list[tuple[ast.cmpop, ast.expr]], columns: Columns) -> Array | Value:
    (op, node), *others = links
    if isinstance(op, ast.In | ast.NotIn):
        if others or not isinstance(node, ast.Tuple | ast.List):
            raise _Differs
        found = np.zeros(1, dtype=bool)
        for item in [_evaluated(element, columns) for element in node.elts]:
            found = found | _compare(ast.Eq, left, item)
        found = np.broadcast_to(found, np.broadcast_shapes(found.shape, _array(left).shape))
        return ~found if isinstance(op, ast.NotIn) else found
    right = _evaluated(node, columns)
    holds = _compare(type(op), left, right)
    if not others or not holds.any():
        return holds
    if holds.all():
        return _links(right, others, columns)
    right_there = right[holds] if isinstance(right, np.ndarray) and len(right) == len(holds) else right
    return _joined(holds, _links(right_there, others, _Rows(columns, holds)), np.zeros(1, dtype=bool))


_COMPARE: dict[type[ast.cmpop], Callable[[Array, Array], Array]] = {
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
}


def _compare(op: type[ast.cmpop], left: Array | Value, right: Array | Value) -> Array:
    a, b = _array(left), _array(right)
    kinds = {"t" if column.dtype.kind == "U" else "n" for column in (a, b)}
    if len(kinds) == 2:
        if op not in (ast.Eq, ast.NotEq):
            raise _Differs
        return np.full(np.broadcast_shapes(a.shape, b.shape), op is ast.NotEq)
    if "f" in (a.dtype.kind, b.dtype.kind):
        for column in (a, b):
            if column.dtype.kind == "i" and max(map(abs, _span(column))) > _EXACT_FLOAT:
                raise _Differs
    return _COMPARE[op](a, b)


def _called(name: str, arguments: list[Array | Value]) -> Array | Value:
    if name in ("min", "max"):
        columns = [_array(argument) for argument in arguments]
        if len({column.dtype.kind for column in columns}) > 1 or columns[0].dtype.kind == "U":
            raise _Differs
        pick: Callable[[Array, Array], Array] = np.minimum if name == "min" else np.maximum
        result = columns[0]
        for column in columns[1:]:
            result = pick(result, column)
        return result
    if name == "abs":
        column = _numbers(arguments[0])
        if column.dtype.kind == "i":
            _fits(*(-bound for bound in _span(column)))
        return np.abs(column)
    if name in ("ceil", "floor", "log2"):
        column = _numbers(arguments[0])
        if name != "log2" and column.dtype.kind == "i":
            return column
        return _elementwise(getattr(math, name), column)
    a, b = _numbers(arguments[0]), _numbers(arguments[1])
    if name in ("xor", "bit_and"):
        if {a.dtype.kind, b.dtype.kind} != {"i"}:
            raise _Differs
        return np.bitwise_xor(a, b) if name == "xor" else np.bitwise_and(a, b)
    rounded = _unary(ast.USub(), _binary(ast.FloorDiv, _unary(ast.USub(), a), b))
    return rounded if name == "ceil_div" else _binary(ast.Mult, rounded, b)

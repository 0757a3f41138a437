"""The arithmetic that a kernel's YAML may use: a subset of Python, checked node by node and never `eval`-ed.

    literals (int, float, str, bool, tuple or list)   names   names[0]   + - * / // % **   unary - +
    not and or   == != < <= > >= in, not in (chained)   x if c else y
    min max abs ceil floor log2 ceil_div(a, b) round_up(a, b) xor(a, b) bit_and(a, b)

Integers are exact and operators mean what they mean in Python: `//` and `%` floor, `and` and `or` stop early.
`Expression.vector` gives the same answers for whole columns at once, see `autotune.columns`.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from autotune.config import Value
from autotune.errors import InputError, nearest_name

if TYPE_CHECKING:
    from autotune.columns import Array, Columns

MAX_LENGTH = 2000
"""Characters in one expression."""
MAX_DEPTH = 100
"""Levels of nesting; a sum of n terms is n levels deep."""
MAX_POWER_BITS = 1024
"""Size of the largest integer that `**` may give."""

Names = Mapping[str, Value]
Evaluator = Callable[[Names], Value]


class Undefined(InputError):
    """The arithmetic has no answer for these values: division by zero, log2 of zero, a result too large."""


@dataclass(frozen=True)
class Expression:
    """One parsed expression; equal when its text is equal."""

    text: str
    where: str = field(default="", compare=False)
    """`file:line`, for messages."""
    names: frozenset[str] = field(init=False, compare=False, repr=False)
    """The free names."""
    tree: ast.expr = field(init=False, compare=False, repr=False)
    _evaluator: Evaluator = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        try:
            tree = _parsed(self.text)
            evaluator = compiled(tree, 0)
        except _Refused as refused:
            raise InputError(f"{refused}, got {_shortened(self.text)!r}", self.where) from None
        object.__setattr__(self, "tree", tree)
        object.__setattr__(self, "_evaluator", evaluator)
        object.__setattr__(self, "names", _free_names(tree))

    @classmethod
    def parse(cls, text: str, where: str = "") -> Expression:
        """The expression in `text`; raises InputError where it is not in the subset."""
        return cls(text, where)

    def evaluate(self, names: Names) -> Value:
        """The value with these names; raises InputError on an unknown name or type, Undefined on x/0."""
        try:
            return self._evaluator(names)
        except KeyError as missing:
            name = str(missing.args[0])
            rule = f"unknown name {name!r} in {self.text!r}"
            raise InputError(rule, self.where, nearest=nearest_name(name, names)) from None
        except (ZeroDivisionError, OverflowError, ValueError, IndexError) as error:
            raise Undefined(f"{self.text!r} has no value: {error}{self._values(names)}", self.where) from None
        except TypeError as error:
            raise InputError(f"{self.text!r} mixes types: {error}{self._values(names)}", self.where) from None

    def vector(self, columns: Columns) -> Array:
        """What `evaluate` gives in each row; 0-dimensional where no column that is used is an array.

        Raises like `evaluate` where any row would.
        """
        from autotune.columns import evaluate_columns  # NumPy, which the command line's help can do without

        return evaluate_columns(self.tree, self.names, columns, self.evaluate)

    def _values(self, names: Names) -> str:
        known = ", ".join(f"{name}={names[name]!r}" for name in sorted(self.names) if name in names)
        return f" with {known}" if known else ""

    def __reduce__(self) -> tuple[type[Expression], tuple[str, str]]:
        return (Expression, (self.text, self.where))

    def __str__(self) -> str:
        return self.text


class _Refused(Exception):
    """The text is not in the subset."""


def _shortened(text: str) -> str:
    return text if len(text) <= 120 else text[:117] + "..."


def _parsed(text: str) -> ast.expr:
    if len(text) > MAX_LENGTH:
        raise _Refused(f"an expression has at most {MAX_LENGTH} characters")
    try:
        return ast.parse(text.replace("\n", " ").strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error) or type(error).__name__
        raise _Refused(f"must be an arithmetic expression ({reason})") from None


def _free_names(tree: ast.expr) -> frozenset[str]:
    functions = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    return frozenset(node.id for node in names if id(node) not in functions)


# --- operators and functions ------------------------------------------------------------------------------


def _number(value: Value) -> int | float:
    if isinstance(value, int | float):
        return value
    raise TypeError(f"arithmetic needs numbers, got {value!r}")


def _integer(value: Value) -> int:
    if isinstance(value, int):
        return int(value)
    raise TypeError(f"needs integers, got {value!r}")


def power(base: int | float, exponent: int | float) -> int | float:
    """`base ** exponent`, refused where the result is huge or not real."""
    if (
        isinstance(base, int)
        and isinstance(exponent, int)
        and exponent > 0
        and (max(base.bit_length(), 1) * exponent > MAX_POWER_BITS)
        and base not in (-1, 0, 1)
    ):
        raise OverflowError(f"{base} ** {exponent} is too large")
    result = base**exponent
    if isinstance(result, complex):
        raise ValueError(f"{base} ** {exponent} is not a real number")
    return result


def _ceil_div(a: Value, b: Value) -> int | float:
    return -(-_number(a) // _number(b))


def _round_up(a: Value, b: Value) -> int | float:
    return _ceil_div(a, b) * _number(b)


def _least(*values: Value) -> Value:
    return min(_comparable(values))


def _greatest(*values: Value) -> Value:
    return max(_comparable(values))


def _comparable(values: tuple[Value, ...]) -> tuple[Value, ...]:
    if all(isinstance(value, int | float) for value in values) or all(
        isinstance(value, str) for value in values
    ):
        return values
    raise TypeError(f"min and max need numbers alone or strings alone, got {values!r}")


FUNCTIONS: dict[str, tuple[Callable[..., Value], int, int]] = {
    "min": (_least, 2, 99),
    "max": (_greatest, 2, 99),
    "abs": (lambda a: abs(_number(a)), 1, 1),
    "ceil": (lambda a: math.ceil(_number(a)), 1, 1),
    "floor": (lambda a: math.floor(_number(a)), 1, 1),
    "log2": (lambda a: math.log2(_number(a)), 1, 1),
    "ceil_div": (_ceil_div, 2, 2),
    "round_up": (_round_up, 2, 2),
    "xor": (lambda a, b: _integer(a) ^ _integer(b), 2, 2),
    "bit_and": (lambda a, b: _integer(a) & _integer(b), 2, 2),
}
"""By name: what it computes, and the least and most arguments it takes."""

ARITHMETIC: dict[type[ast.operator], Callable[[int | float, int | float], int | float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: power,
}


def _contains(item: Value, items: Value) -> bool:
    if not isinstance(items, tuple):
        raise TypeError(f"`in` needs a list, got {items!r}")
    return item in items


COMPARISONS: dict[type[ast.cmpop], Callable[..., bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: _contains,
    ast.NotIn: lambda item, items: not _contains(item, items),
}


# --- from the tree to a closure ---------------------------------------------------------------------------


def compiled(node: ast.expr, depth: int = 0) -> Evaluator:
    """A function from names to the value of this node; raises _Refused on anything outside the subset."""
    if depth > MAX_DEPTH:
        raise _Refused(f"an expression nests at most {MAX_DEPTH} levels")
    part = depth + 1
    match node:
        case ast.Constant(value=bool() | int() | str() as literal):
            return lambda names: literal
        case ast.Constant(value=float() as literal) if math.isfinite(literal):
            return lambda names: literal
        case ast.Name(id=name):
            return lambda names: names[name]
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            items = [compiled(element, part) for element in elements]
            return lambda names: tuple(item(names) for item in items)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
            return _arithmetic(ARITHMETIC[type(op)], compiled(left, part), compiled(right, part))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = compiled(operand, part)
            return lambda names: -_number(inner(names))
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            inner = compiled(operand, part)
            return lambda names: +_number(inner(names))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = compiled(operand, part)
            return lambda names: not inner(names)
        case ast.BoolOp(op=op, values=operands):
            return _early_stop(isinstance(op, ast.And), [compiled(operand, part) for operand in operands])
        case ast.IfExp(test=test, body=body, orelse=orelse):
            condition, yes, no = compiled(test, part), compiled(body, part), compiled(orelse, part)
            return lambda names: yes(names) if condition(names) else no(names)
        case ast.Compare(left=left, ops=ops, comparators=others) if all(
            type(op) in COMPARISONS for op in ops
        ):
            operations = [COMPARISONS[type(op)] for op in ops]
            return _chain(compiled(left, part), operations, [compiled(other, part) for other in others])
        case ast.Subscript(value=value, slice=index):
            whole, position = compiled(value, part), compiled(index, part)
            return lambda names: _item(whole(names), position(names))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return _call(name, [compiled(argument, part) for argument in arguments])
        case _:
            what = repr(ast.unparse(node)) if depth else "this"
            raise _Refused(f"{what} is not part of the arithmetic allowed here")


def _arithmetic(
    operation: Callable[[int | float, int | float], int | float], left: Evaluator, right: Evaluator
) -> Evaluator:
    return lambda names: operation(_number(left(names)), _number(right(names)))


def _early_stop(stop_on_false: bool, operands: list[Evaluator]) -> Evaluator:
    def evaluate(names: Names) -> Value:
        value: Value = stop_on_false
        for operand in operands:
            value = operand(names)
            if bool(value) is not stop_on_false:
                break
        return value

    return evaluate


def _chain(first: Evaluator, operations: list[Callable[..., bool]], others: list[Evaluator]) -> Evaluator:
    if len(others) == 1:
        operation, other = operations[0], others[0]
        return lambda names: operation(first(names), other(names))

    def evaluate(names: Names) -> Value:
        left = first(names)
        for operation, other in zip(operations, others, strict=True):
            right = other(names)
            if not operation(left, right):
                return False
            left = right
        return True

    return evaluate


def _item(whole: Value, position: Value) -> Value:
    if not isinstance(whole, tuple):
        raise TypeError(f"only a tuple has items, got {whole!r}")
    return whole[_integer(position)]


def _call(name: str, arguments: list[Evaluator]) -> Evaluator:
    if name not in FUNCTIONS:
        raise _Refused(f"unknown function {name!r} (nearest: {nearest_name(name, FUNCTIONS)})")
    function, least, most = FUNCTIONS[name]
    if not least <= len(arguments) <= most:
        expected = str(least) if least == most else f"at least {least}"
        raise _Refused(f"{name} takes {expected} arguments, got {len(arguments)}")
    return lambda names: function(*[argument(names) for argument in arguments])

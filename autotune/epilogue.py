"""What may follow a matrix product, element by element, and what should come of it.

    x = alpha * A @ B + beta * C
    x += bias            row: one value for each column of C, as in a linear layer; column: one for each row
    x = activation(x)    relu, or gelu in its exact form x * (1 + erf(x / sqrt(2))) / 2
    x = EPILOGUE         an expression over x in C++, by default x itself

The expression is C++ in the kernel. Here it is read as Python, which for arithmetic, comparisons and the functions
of `FUNCTIONS` means the same; anything else needs a reference of its own.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from autotune.config import Value
from autotune.errors import InputError

Array: TypeAlias = npt.NDArray[Any]

ACTIVATIONS = ("none", "relu", "gelu")
MAX_NODES = 1000
"""Names, numbers, operators and calls of an expression, which is evaluated recursively."""
ROUNDINGS = 1.0
"""Roundings of the result that an epilogue may add, in units of eps and of the tolerance."""

_NUMBER = re.compile(r"(?<![\w.])((?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)[fF]\b")
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.USub, ast.UAdd)
_MATHS = {
    "fabsf": "abs",
    "expf": "exp",
    "exp2f": "exp2",
    "logf": "log",
    "log2f": "log2",
    "log1pf": "log1p",
    "sqrtf": "sqrt",
    "tanhf": "tanh",
    "sinf": "sin",
    "cosf": "cos",
    "floorf": "floor",
    "ceilf": "ceil",
    "fmaxf": "maximum",
    "fminf": "minimum",
    "powf": "power",
}
_OF_TWO = ("fmaxf", "fminf", "powf")
FUNCTIONS = (*_MATHS, "erff", "rsqrtf")
"""What an expression may call and still be checked by the built-in reference."""


def expected_epilogue(
    values: Array, scale: Array, bias: Array | None, facts: Mapping[str, Value], eps: float, xp: ModuleType
) -> tuple[Array, Array]:
    """The values after the epilogue and the scale of their errors; `facts` hold `bias`, `activation`, `EPILOGUE`.

    An error of the product's size before the epilogue may become what it makes of it. Raises InputError for an
    expression that cannot be read.
    """
    side = facts.get("bias", "none")
    if bias is not None and side in ("row", "column"):
        added = bias.astype(xp.float64)
        added = added if side == "row" else added[:, None]
        values = values + added
        scale = scale + eps * (xp.abs(values) + xp.abs(added))
    function = _function(str(facts.get("activation", "none")), str(facts.get("EPILOGUE", "x")))
    if function is None:
        return values, scale
    with np.errstate(all="ignore"):
        result = function(values, xp)
        # A tenth of the error, so that what bends at once is not taken for what it is far away.
        step = scale / 10
        moved = [xp.abs(function(values + side * step, xp) - result) * 10 for side in (1, -1)]
        spread = xp.where(xp.isfinite(moved[0]) & xp.isfinite(moved[1]), xp.maximum(*moved), 0.0)
        # What is added on the way, as in 1 + erf(x), may be as large as x.
        return result, spread + ROUNDINGS * eps * (xp.abs(result) + xp.abs(values))


def _function(activation: str, expression: str) -> Callable[[Array, ModuleType], Array] | None:
    if activation not in ACTIVATIONS:
        raise InputError(f"must be one of {', '.join(ACTIVATIONS)}, got {activation!r}", key="activation")
    if activation == "none" and expression.strip() == "x":
        return None
    tree = _parsed(expression)

    def function(x: Array, xp: ModuleType) -> Array:
        if activation == "relu":
            x = xp.maximum(x, 0.0)
        elif activation == "gelu":
            x = 0.5 * x * (1.0 + _erf(x / math.sqrt(2), xp))
        result: Array = xp.asarray(_evaluate(tree, x, xp), dtype=xp.float64)
        shaped: Array = xp.broadcast_to(result, x.shape)
        return shaped

    return function


def _parsed(text: str) -> ast.expr:
    try:
        tree = ast.parse(_NUMBER.sub(r"\1", text).strip(), mode="eval").body
    except (SyntaxError, RecursionError, MemoryError):
        raise _unreadable(text) from None
    nodes = list(ast.walk(tree))
    if len(nodes) > MAX_NODES:
        raise _unreadable(text)
    called = [node.func for node in nodes if isinstance(node, ast.Call)]
    for node in nodes:
        if isinstance(node, ast.BinOp | ast.UnaryOp):
            # C++ drops the remainder where it divides whole numbers.
            halves = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and _is_whole(node)
            known = isinstance(node.op, _OPERATORS) and not halves
        elif isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            takes = 2 if name in _OF_TWO else 1
            known = name in FUNCTIONS and len(node.args) == takes and not node.keywords
        elif isinstance(node, ast.Name):
            known = node.id == "x" or node in called
        else:
            number = isinstance(node, ast.Constant) and type(node.value) in (int, float)
            known = number or isinstance(node, ast.operator | ast.unaryop | ast.Load)
        if not known:
            raise _unreadable(text)
    return tree


def _is_whole(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int)
        case ast.UnaryOp(operand=operand):
            return _is_whole(operand)
        case ast.BinOp(left=left, right=right):
            return _is_whole(left) and _is_whole(right)
    return False


def _evaluate(node: ast.expr, x: Array, xp: ModuleType) -> Any:
    match node:
        case ast.Name():
            return x
        case ast.Constant(value=value):
            return float(str(value))
        case ast.UnaryOp(op=op, operand=operand):
            value = _evaluate(operand, x, xp)
            return -value if isinstance(op, ast.USub) else value
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _evaluate(left, x, xp), _evaluate(right, x, xp)
            match op:
                case ast.Add():
                    return a + b
                case ast.Sub():
                    return a - b
                case ast.Mult():
                    return a * b
                case _:
                    return xp.divide(a, b)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            parts = [xp.asarray(_evaluate(argument, x, xp)) for argument in arguments]
            if name == "erff":
                return _erf(parts[0], xp)
            if name == "rsqrtf":
                return 1.0 / xp.sqrt(*parts)
            return getattr(xp, _MATHS[name])(*parts)
    raise AssertionError(ast.dump(node))


def _erf(x: Array, xp: ModuleType) -> Array:
    """The error function in float64, to about 1e-12: neither NumPy nor CuPy's base has it.

    Near zero by its Taylor series; from 3 on by the continued fraction of its complement (Abramowitz and Stegun,
    7.1.5 and 7.1.14).
    """
    size = xp.abs(x)
    near = xp.minimum(size, 3.0)
    term, total = near, near
    for n in range(1, 60):
        term = term * (-near * near / n)
        total = total + term / (2 * n + 1)
    far = xp.maximum(xp.minimum(size, 30.0), 3.0)
    fraction = far
    for n in range(60, 0, -1):
        fraction = far + (n / 2) / fraction
    tail = 1.0 - xp.exp(-far * far) / (fraction * math.sqrt(math.pi))
    signed = xp.copysign(xp.where(size < 3.0, 2 / math.sqrt(math.pi) * total, tail), x)
    result: Array = xp.where(xp.isnan(x), x, signed)
    return result


def _unreadable(text: str) -> InputError:
    rule = f"the built-in reference reads arithmetic over x and the functions {', '.join(FUNCTIONS)}, got {text!r}"
    return InputError(
        rule, key="constants.EPILOGUE", nearest="name a reference of your own: `reference: module:function`"
    )

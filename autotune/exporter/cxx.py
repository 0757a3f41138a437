"""Expressions of a spec as C++: what the exported header evaluates at run time, with Python's meaning.

Names whose value is known are folded away first; the rest become `long long` (integers and booleans),
`double` or the number of a string in `Strings`. `//` and `%` floor as in Python, with the helper functions
of `HELPERS`. A division by zero, which Python refuses, gives 0. Integers beyond 64 bits are outside what
the header reckons with.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autotune.config import Value
from autotune.errors import InputError
from autotune.expressions import Expression, Undefined

HELPERS = """\
struct autotune_math {
    static long long floor_div(long long a, long long b) {
        if (b == 0) return 0;
        const long long quotient = a / b;
        return (a % b != 0 && (a < 0) != (b < 0)) ? quotient - 1 : quotient;
    }
    static long long floor_mod(long long a, long long b) {
        if (b == 0) return 0;
        const long long rest = a % b;
        return (rest != 0 && (rest < 0) != (b < 0)) ? rest + b : rest;
    }
    static double floor_mod(double a, double b) {
        if (b == 0) return 0;
        const double rest = std::fmod(a, b);
        return (rest != 0 && (rest < 0) != (b < 0)) ? rest + b : rest;
    }
    static double floor_div(double a, double b) {
        if (b == 0) return 0;
        const double quotient = (a - floor_mod(a, b)) / b;
        const double whole = std::floor(quotient);
        return quotient - whole > 0.5 ? whole + 1 : whole;
    }
    static double divide(double a, double b) { return b == 0 ? 0 : a / b; }
    static long long ceil_div(long long a, long long b) { return -floor_div(-a, b); }
    static double ceil_div(double a, double b) { return -floor_div(-a, b); }
    static long long power(long long base, int exponent) {
        long long result = 1;
        for (; exponent > 0; --exponent) result *= base;
        return result;
    }
    template <class T> static T least(T a, T b) { return b < a ? b : a; }
    template <class T> static T greatest(T a, T b) { return b > a ? b : a; }
    template <class T> static T magnitude(T a) { return a < 0 ? -a : a; }
};
"""
"""Needs `<cmath>`; goes into the header once, in its own namespace."""

_INT64 = 2**63
_COMPARISONS: Mapping[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}


@dataclass(frozen=True)
class Code:
    """A C++ expression, in brackets where it needs them."""

    text: str
    kind: str
    """`int` (long long), `float` (double), `bool` or `string` (its number, an int)."""


@dataclass
class Strings:
    """Numbers for the strings that are compared at run time; the same string, the same number."""

    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, text: str) -> int:
        """The number of a string, new for a new one."""
        return self.numbers.setdefault(text, len(self.numbers))


@dataclass(frozen=True)
class Translator:
    """Turns expressions into C++ where some names are known now and others when the header is called."""

    known: Mapping[str, Value]
    runtime: Mapping[str, Code]
    """Wins over `known` for a name in both."""
    strings: Strings = field(default_factory=Strings)

    def translate(self, expression: Expression) -> Code:
        """The expression as C++; raises InputError where it has no C++ form."""
        return self.fold(expression.tree, expression.where)[0]

    def fold(self, node: ast.expr, where: str = "") -> tuple[Code, Value | None]:
        """The C++ of a node, and its value where that is known now."""
        value = self._value(node, where)
        if value is not None:
            return self._literal(value, node, where), value
        return self._code(node, where), None

    def _value(self, node: ast.expr, where: str) -> Value | None:
        expression = Expression.parse(ast.unparse(node), where)
        if expression.names & self.runtime.keys():
            return None
        try:
            return expression.evaluate(self.known)
        except Undefined:
            return None  # may stand in a branch that is never taken

    def _literal(self, value: Value, node: ast.expr, where: str) -> Code:
        match value:
            case bool():
                return Code("true" if value else "false", "bool")
            case int() if -_INT64 < value < _INT64:
                return Code(f"{value}LL" if value >= 0 else f"({value}LL)", "int")
            case float() if math.isfinite(value):
                return Code(repr(value) if value >= 0 else f"({value!r})", "float")
            case str():
                return Code(f"{self.strings.number(value)}LL /* {_comment(value)} */", "string")
            case _:
                raise _refused(node, f"the value {value!r} has no C++ form", where)

    def _code(self, node: ast.expr, where: str) -> Code:
        match node:
            case ast.Name(id=name):
                return self.runtime[name]
            case ast.BinOp(left=left, op=op, right=right):
                return self._arithmetic(node, op, left, right, where)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return Code(f"!{self._truth(operand, where)}", "bool")
            case ast.UnaryOp(op=op, operand=operand):
                inner = self._number(operand, where)
                kind = "int" if inner.kind == "bool" else inner.kind
                return Code(f"({'-' if isinstance(op, ast.USub) else '+'}{inner.text})", kind)
            case ast.BoolOp(op=op, values=operands):
                return self._early_stop(isinstance(op, ast.And), operands, where)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._choice(test, body, orelse, where)
            case ast.Compare(left=left, ops=ops, comparators=others):
                return self._chain(left, ops, others, where)
            case ast.Call(func=ast.Name(id=name), args=arguments):
                return self._call(node, name, arguments, where)
            case _:
                raise _refused(node, "this has no C++ form at run time", where)

    def _arithmetic(
        self, node: ast.expr, op: ast.operator, left: ast.expr, right: ast.expr, where: str
    ) -> Code:
        if isinstance(op, ast.Pow):
            return self._power(node, left, right, where)
        a, b = self._number(left, where), self._number(right, where)
        kind = _joined(a, b)
        match op:
            case ast.Add() | ast.Sub() | ast.Mult():
                sign = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}[type(op)]
                return Code(f"({_as(a, kind)} {sign} {_as(b, kind)})", kind)
            case ast.Div():
                return Code(f"autotune_math::divide({_as(a, 'float')}, {_as(b, 'float')})", "float")
            case ast.FloorDiv():
                return Code(f"autotune_math::floor_div({_as(a, kind)}, {_as(b, kind)})", kind)
            case _:
                return Code(f"autotune_math::floor_mod({_as(a, kind)}, {_as(b, kind)})", kind)

    def _power(self, node: ast.expr, left: ast.expr, right: ast.expr, where: str) -> Code:
        base, (exponent, value) = self._number(left, where), self.fold(right, where)
        if base.kind != "float" and isinstance(value, int) and 0 <= value < 64:
            return Code(f"autotune_math::power({_as(base, 'int')}, {int(value)})", "int")
        if value is None and base.kind != "float":
            raise _refused(node, "the exponent of ** must be known when the header is written", where)
        return Code(f"std::pow({_as(base, 'float')}, {_as(exponent, 'float')})", "float")

    def _number(self, node: ast.expr, where: str) -> Code:
        code = self.fold(node, where)[0]
        if code.kind == "string":
            raise _refused(node, "arithmetic needs numbers", where)
        return code

    def _truth(self, node: ast.expr, where: str) -> str:
        code = self.fold(node, where)[0]
        if code.kind == "string":
            raise _refused(node, "a string is no condition at run time", where)
        return f"({code.text})" if code.kind == "bool" else f"({code.text} != 0)"

    def _early_stop(self, stop_on_false: bool, operands: Sequence[ast.expr], where: str) -> Code:
        first, *rest = operands
        value = self._value(first, where)
        if not rest:
            return self.fold(first, where)[0]
        if value is not None:
            if bool(value) is not stop_on_false:
                return self.fold(first, where)[0]
            return self._early_stop(stop_on_false, rest, where)
        one, other = self.fold(first, where)[0], self._early_stop(stop_on_false, rest, where)
        if one.kind == other.kind == "bool":
            return Code(f"({one.text} {'&&' if stop_on_false else '||'} {other.text})", "bool")
        kind = self._same_kind(first, one, other, where)
        yes, no = (other, one) if stop_on_false else (one, other)
        return Code(f"({self._truth(first, where)} ? {_as(yes, kind)} : {_as(no, kind)})", kind)

    def _choice(self, test: ast.expr, body: ast.expr, orelse: ast.expr, where: str) -> Code:
        value = self._value(test, where)
        if value is not None:
            return self.fold(body if value else orelse, where)[0]
        yes, no = self.fold(body, where)[0], self.fold(orelse, where)[0]
        kind = self._same_kind(body, yes, no, where)
        return Code(f"({self._truth(test, where)} ? {_as(yes, kind)} : {_as(no, kind)})", kind)

    def _same_kind(self, node: ast.expr, one: Code, other: Code, where: str) -> str:
        if one.kind == other.kind:
            return one.kind
        if "string" in (one.kind, other.kind):
            raise _refused(node, "a value that is a string or a number by turns has no C++ form", where)
        return _joined(one, other)

    def _chain(
        self, left: ast.expr, ops: Sequence[ast.cmpop], others: Sequence[ast.expr], where: str
    ) -> Code:
        parts = []
        for op, other in zip(ops, others, strict=True):
            parts.append(self._comparison(left, op, other, where))
            left = other
        return Code(parts[0] if len(parts) == 1 else "(" + " && ".join(parts) + ")", "bool")

    def _comparison(self, left: ast.expr, op: ast.cmpop, right: ast.expr, where: str) -> str:
        if isinstance(op, ast.In | ast.NotIn):
            return self._membership(left, isinstance(op, ast.In), right, where)
        a, b = self.fold(left, where)[0], self.fold(right, where)[0]
        if (a.kind == "string") != (b.kind == "string"):
            raise _refused(left, "a string is compared with a number", where)
        if a.kind == "string" and not isinstance(op, ast.Eq | ast.NotEq):
            raise _refused(left, "strings have no order at run time", where)
        kind = "string" if a.kind == "string" else _joined(a, b)
        return f"({_as(a, kind)} {_COMPARISONS[type(op)]} {_as(b, kind)})"

    def _membership(self, left: ast.expr, inside: bool, right: ast.expr, where: str) -> str:
        if not isinstance(right, ast.List | ast.Tuple):
            raise _refused(right, "`in` needs a list written out", where)
        equal = [self._comparison(left, ast.Eq(), item, where) for item in right.elts]
        found = "(" + " || ".join(equal) + ")" if equal else "false"
        return found if inside else f"!{found}"

    def _call(self, node: ast.expr, name: str, arguments: Sequence[ast.expr], where: str) -> Code:
        codes = [self._number(argument, where) for argument in arguments]
        kind = _joined(*codes)
        texts = [_as(code, kind) for code in codes]
        match name:
            case "min" | "max":
                function = "least" if name == "min" else "greatest"
                folded = texts[0]
                for text in texts[1:]:
                    folded = f"autotune_math::{function}({folded}, {text})"
                return Code(folded, kind)
            case "abs":
                return Code(f"autotune_math::magnitude({texts[0]})", kind)
            case "ceil" | "floor":
                if kind == "int":
                    return Code(texts[0], kind)
                return Code(f"static_cast<long long>(std::{name}({texts[0]}))", "int")
            case "log2":
                return Code(f"std::log2({_as(codes[0], 'float')})", "float")
            case "ceil_div":
                return Code(f"autotune_math::ceil_div({texts[0]}, {texts[1]})", kind)
            case "round_up":
                return Code(f"(autotune_math::ceil_div({texts[0]}, {texts[1]}) * {texts[1]})", kind)
            case "xor" | "bit_and" if kind == "int":
                return Code(f"({texts[0]} {'^' if name == 'xor' else '&'} {texts[1]})", kind)
            case _:
                raise _refused(node, f"{name} has no C++ form here", where)


def _joined(*codes: Code) -> str:
    return "float" if any(code.kind == "float" for code in codes) else "int"


def _as(code: Code, kind: str) -> str:
    if code.kind == kind or (code.kind, kind) == ("bool", "bool"):
        return code.text
    return f"static_cast<{'double' if kind == 'float' else 'long long'}>({code.text})"


def _comment(text: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "_-" else "?" for letter in text)


def _refused(node: ast.expr, rule: str, where: str) -> InputError:
    return InputError(f"{rule}: {ast.unparse(node)!r} cannot be exported", where)

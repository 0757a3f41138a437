from __future__ import annotations

import math
import random
import subprocess
from pathlib import Path

import pytest
from fakes.exported import host_program

from autotune.config import Value
from autotune.errors import InputError
from autotune.exporter.cxx import HELPERS, Code, Strings, Translator
from autotune.expressions import Expression, Undefined

RUNTIME = {"M": "int", "N": "int", "x": "float", "flag": "bool", "mode": "string"}
KNOWN: dict[str, Value] = {"BM": 128, "BK": 16, "pad": True, "half": 0.5, "LOAD": "cpasync"}
MODES = ("zero", "general")


def translator() -> Translator:
    runtime = {name: Code(f"call.{name}", kind) for name, kind in RUNTIME.items()}
    return Translator(KNOWN, runtime, Strings({mode: i for i, mode in enumerate(MODES)}))


def random_expression(rng: random.Random, depth: int) -> str:
    """A numeric expression over the names, of every form that the arithmetic has."""
    if depth == 0:
        return rng.choice(["M", "N", "x", "flag", "BM", "BK", "pad", "half", "0", "1", "3", "-2", "2.5"])
    a, b = (random_expression(rng, depth - 1) for _ in range(2))
    condition = random_condition(rng, depth - 1)
    return rng.choice(
        [
            f"({a} + {b})",
            f"({a} - {b})",
            f"({a} * {b})",
            f"({a} / {b})",
            f"({a} // {b})",
            f"({a} % {b})",
            f"({a}) ** {rng.choice(['2', '0', '3', '-1'])}",
            f"(-{a})",
            f"({a} if {condition} else {b})",
            f"({a} and {b})",
            f"({a} or {b})",
            f"min({a}, {b}, M)",
            f"max({a}, {b})",
            f"abs({a})",
            f"ceil({a})",
            f"floor({a})",
            f"log2(abs({a}) + 1)",
            f"ceil_div({a}, {b})",
            f"round_up({a}, {b})",
            "xor(M, N)",
            "bit_and(M, BK)",
            f"({condition})",
        ]
    )


def random_condition(rng: random.Random, depth: int) -> str:
    a, b = (random_expression(rng, depth) for _ in range(2))
    return rng.choice(
        [
            f"{a} < {b} <= M",
            f"{a} == {b}",
            f"not {a} >= {b}",
            f"{a} in [1, {b}, 3]",
            f"M % 4 not in (1, {b})",
            "mode == 'zero'",
            "LOAD == 'cpasync' and mode != 'general'",
            "LOAD in ['sync', 'cpasync']",
            f"(flag and {a} > 0 or pad and {b} > 0)",
        ]
    )


def test_cxx_gives_what_python_gives(tmp_path: Path) -> None:
    rng = random.Random(7)
    points = [
        {
            "M": rng.choice([0, 1, -7, 12, 4096, 4095]),
            "N": rng.choice([1, 3, -4, 128]),
            "x": rng.choice([0.0, 0.25, -1.5, 7.75]),
            "flag": rng.random() < 0.5,
            "mode": rng.choice(MODES),
        }
        for _ in range(12)
    ]
    lines, expected = [], []
    for _ in range(500):
        expression = Expression.parse(random_expression(rng, rng.choice([1, 2, 3])))
        try:
            code = translator().translate(expression)
        except InputError:
            continue
        results: list[float | None] = []
        for point in points:
            try:
                value = expression.evaluate({**KNOWN, **point})
                small = isinstance(value, int | float) and abs(value) < 2**40
                results.append(float(value) if small else None)  # type: ignore[arg-type]
            except Undefined:
                results.append(None)
        expected.append((expression, results))
        lines.append(f"  print(static_cast<double>({code.text}));")
    assert len(expected) > 400

    cases = ", ".join(
        f"{{{p['M']}, {p['N']}, {p['x']}, {int(bool(p['flag']))}, {MODES.index(str(p['mode']))}}}"
        for p in points
    )
    source = tmp_path / "cases.cpp"
    source.write_text(
        "#include <cmath>\n#include <cstdio>\nnamespace {\n" + HELPERS + "}\n"
        "struct Call { long long M, N; double x; bool flag; int mode; };\n"
        'static void print(double value) { std::printf("%.17g\\n", value); }\n'
        "static void all(const Call& call) {\n" + "\n".join(lines) + "\n}\n"
        f"const Call calls[] = {{{cases}}};\n"
        "int main() {\n  for (const Call& call : calls) all(call);\n}\n"
    )
    program = host_program(tmp_path, [source], "-O0", "-Wno-error", "-w")
    numbers = [float(line) for line in subprocess.check_output([program], text=True).split()]
    assert len(numbers) == len(points) * len(expected)

    compared = 0
    for i in range(len(points)):
        for j, (expression, results) in enumerate(expected):
            want, got = results[i], numbers[i * len(expected) + j]
            if want is not None:
                compared += 1
                assert math.isclose(got, want, rel_tol=1e-9, abs_tol=1e-9), (expression.text, points[i])
    assert compared > 3000


def test_known_names_are_folded() -> None:
    assert translator().translate(Expression.parse("BM * 2 if LOAD == 'cpasync' else M // 0")).text == "256LL"
    assert translator().translate(Expression.parse("pad or M > 3")).text == "true"
    assert translator().translate(Expression.parse("pad and M > 3")).text == "(call.M > 3LL)"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("mode < 'a'", "no order"),
        ("mode == M", "compared with a number"),
        ("2 ** M", "exponent"),
        ("'a' if M > 1 else 2", "by turns"),
        ("M in mode", "written out"),
    ],
)
def test_what_has_no_cxx_form_is_refused_with_the_expression(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        translator().translate(Expression.parse(text))

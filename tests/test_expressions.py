"""Expressions: Python's meaning, refusals, and columns that agree with rows."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.columns import as_column
from autotune.errors import InputError
from autotune.expressions import MAX_DEPTH, MAX_LENGTH, Expression, Undefined

NAMES = {
    "BM": 128,
    "BK": 16,
    "threads": 100,
    "VA": 3,
    "LOAD": "cpasync",
    "REGDB": True,
    "tile": (8, 4),
    "x": 0.5,
}


@pytest.mark.parametrize(
    "text",
    [
        "-(-BM * BK // (threads * VA))",
        "-BM // VA",
        "-BM % VA",
        "2 ** 3 ** 2",
        "-2 ** 2",
        "BM / VA",
        "not REGDB or BM > 4",
        "REGDB + REGDB",
        "1 < VA <= 3 < BK",
        "BM in (64, 128) and LOAD not in ['sync']",
        "'a' if VA == 3 else 'b'",
        "min(BM, BK, VA) + max(x, VA)",
        "abs(-x) * 2",
        "0 and 1 // 0",
        "1 or 1 // 0",
        "3 if True else 1 // 0",
        "BM and BK",
        "tile[0] * tile[1]",
        "tile == (8, 4)",
        "2 ** -1",
        "10 ** 30 + 1",
        "\nBM +\n  BK\n",
    ],
)
def test_means_what_python_means(text):
    expected = eval(" ".join(text.split()), {}, dict(NAMES))  # noqa: S307
    got = Expression.parse(text).evaluate(NAMES)
    assert (type(got), got) == (type(expected), expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ceil_div(7, 2)", 4),
        ("ceil_div(-7, 2)", -3),
        ("round_up(7, 4)", 8),
        ("round_up(8, 4)", 8),
        ("xor(6, 3)", 5),
        ("bit_and(6, 3)", 2),
        ("ceil(1.2) + floor(1.8)", 3),
        ("log2(1024)", 10.0),
    ],
)
def test_functions(text, expected):
    assert Expression.parse(text).evaluate({}) == expected


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "a.b",
        "a.__class__",
        "lambda: 1",
        "[x for x in (1, 2)]",
        "f'{a}'",
        "a := 1",
        "a | b",
        "a << b",
        "~a",
        "a is b",
        "None",
        "1j",
        "b'x'",
        "1e999",
        "min(a, *b)",
        "min(a, key=b)",
        "min(a)",
        "ceil_div(a)",
        "print(a)",
        "(a)(b)",
        "a[0:1]",
        "{a}",
        "",
        "  ",
        "a b",
        "2 **",
        "a; b",
        "a = 1",
        "\0",
    ],
)
def test_refuses_what_is_not_arithmetic(text):
    with pytest.raises(InputError, match="got"):
        Expression.parse(text, "k.yaml:3")


def test_refuses_what_is_too_long_or_too_deep():
    with pytest.raises(InputError, match=str(MAX_LENGTH)):
        Expression.parse("1+" * MAX_LENGTH + "1")
    for text in ("-" * 1500 + "1", "(" * 900 + "1" + ")" * 900, "+".join("a" for _ in range(MAX_DEPTH + 5))):
        with pytest.raises(InputError):
            Expression.parse(text)


@pytest.mark.parametrize(
    "text", ["9 ** 9 ** 9", "(2 ** 1000) ** 2", "1 // 0", "1 % 0", "1.0 / 0", "log2(0)", "(-8) ** 0.5"]
)
def test_has_no_value(text):
    with pytest.raises(Undefined, match="has no value"):
        Expression.parse(text).evaluate({})


def test_errors_name_the_expression_the_place_and_the_values():
    with pytest.raises(InputError) as unknown:
        Expression.parse("BN * 2", "k.yaml:7").evaluate(NAMES)
    assert str(unknown.value) == "k.yaml:7: unknown name 'BN' in 'BN * 2' (nearest: BM)"
    with pytest.raises(InputError) as zero:
        Expression.parse("BM // (VA - 3)", "k.yaml:8").evaluate(NAMES)
    assert str(zero.value).startswith("k.yaml:8: 'BM // (VA - 3)' has no value")
    assert "BM=128, VA=3" in str(zero.value)
    with pytest.raises(InputError, match="mixes types"):
        Expression.parse("LOAD + 1").evaluate(NAMES)
    with pytest.raises(InputError, match="mixes types"):
        Expression.parse("LOAD % 2").evaluate(NAMES)
    with pytest.raises(InputError, match="nearest: ceil_div"):
        Expression.parse("ceildiv(a, 2)")


def test_is_a_value():
    one, two = Expression.parse("BM + 1", "a:1"), Expression.parse("BM + 1", "b:2")
    assert one == two
    assert len({one, two}) == 1
    assert pickle.loads(pickle.dumps(one)).evaluate({"BM": 1}) == 2
    assert Expression.parse("min(a, b) + c").names == {"a", "b", "c"}


# --- columns ---

INTEGERS = st.one_of(st.integers(-4, 4), st.sampled_from([2**31, 2**53 + 1, 2**62, -(2**63), 2**63 - 1]))
FLOATS = st.sampled_from([-1.5, -0.0, 0.0, 0.1, 0.5, 1.0, 3.0, 1e308])
WORDS = st.sampled_from(["sync", "cpasync", "", "z"])
COLUMNS = {
    "i": INTEGERS,
    "j": INTEGERS,
    "k": st.integers(1, 64),
    "f": FLOATS,
    "b": st.booleans(),
    "s": WORDS,
    "m": st.one_of(st.integers(0, 3), st.booleans(), st.just("auto"), st.just((1, 2))),
}


def texts() -> st.SearchStrategy[str]:
    leaf = st.one_of(
        st.sampled_from([*COLUMNS, "i", "j", "k", "i", "j"]),
        st.integers(-3, 9).map(str),
        st.sampled_from(["True", "0.5", "'sync'", "(1, 2)", "4611686018427387904"]),
    )

    def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        arithmetic = ["+", "-", "*", "/", "//", "%", "**"]
        binary = st.sampled_from([*arithmetic, "==", "!=", "<", "<=", ">", ">=", "and", "or"])
        return st.one_of(
            st.tuples(inner, binary, inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
            st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} else {t[2]})"),
            st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} < {t[1]} != {t[2]})"),
            st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} in ({t[1]}, {t[2]}))"),
            st.tuples(
                st.sampled_from(["min", "max", "ceil_div", "round_up", "xor", "bit_and"]), inner, inner
            ).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
            st.tuples(st.sampled_from(["-", "not ", "abs", "ceil", "floor", "log2"]), inner).map(
                lambda t: f"({t[0]}({t[1]}))"
            ),
        )

    return st.recursive(leaf, grown, max_leaves=8)


def outcome(expression, row):
    try:
        value = expression.evaluate(row)
    except InputError as error:
        return type(error)
    return value


@settings(max_examples=250, deadline=None)
@given(texts(), st.lists(st.fixed_dictionaries(COLUMNS), min_size=1, max_size=6))
def test_columns_agree_with_rows(text, rows):
    expression = Expression.parse(text)
    columns = {name: as_column([row[name] for row in rows]) for name in COLUMNS}
    expected = [outcome(expression, row) for row in rows]
    errors = {item for item in expected if isinstance(item, type)}
    if errors:
        with pytest.raises(InputError) as raised:
            expression.vector(columns)
        assert type(raised.value) in errors
        return
    got = np.broadcast_to(expression.vector(columns), (len(rows),)).tolist()
    # Where rows differ in type, or are equal without being identical, Python's own comparison decides.
    assert [repr(value) for value in got] == [repr(value) for value in expected]


def test_columns_evaluate_skipped_operands_only_where_they_are_needed():
    columns = {"a": np.array([0, 2, 4]), "b": np.array([0, 1, 3])}
    assert Expression.parse("b != 0 and a % b == 1").vector(columns).tolist() == [False, False, True]
    assert Expression.parse("a // b if b else -1").vector(columns).tolist() == [-1, 2, 1]
    with pytest.raises(Undefined):
        Expression.parse("a % b == 0").vector(columns)


def test_columns_of_large_integers_stay_exact():
    column = np.array([2**40, 2**41])
    assert Expression.parse("a * a").vector({"a": column}).tolist() == [2**80, 2**82]
    assert Expression.parse("a * a % 1000").vector({"a": column}).tolist() == [2**80 % 1000, 2**82 % 1000]


def test_constant_columns():
    assert Expression.parse("a + 1").vector({"a": 3}).shape == ()
    assert Expression.parse("3").vector({}).item() == 3
    assert Expression.parse("a * 0 + 1").vector({"a": np.arange(3)}).tolist() == [1, 1, 1]

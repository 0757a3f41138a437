"""What follows a product: the reference's own arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.comparison import accuracy, passes
from autotune.config import Value
from autotune.cpu import check_on_cpu
from autotune.cpu.build import Sanitize
from autotune.epilogue import FUNCTIONS, expected_epilogue
from autotune.errors import InputError, StageFailure
from autotune.gpu_tables import find_gpu
from autotune.problems import make_problem
from autotune.references import get_reference
from autotune.spec.load import load_spec, read_spec

H200 = find_gpu("h200")
EPS = float(np.finfo(np.float32).eps)
SMALL: dict[str, Value] = {"LOAD": "sync", "STAGES": 1, "BM": 32, "BN": 32, "BK": 8, "WM": 32, "WN": 32}
SMALL |= {"TM": 8, "TN": 4, "MINB": 0}


@pytest.fixture(autouse=True, scope="module")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOTUNE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def result(x: object, **facts: Value) -> np.ndarray:
    values = np.atleast_2d(np.asarray(x, np.float64))
    return expected_epilogue(values, np.full(values.shape, 1e-7), None, facts, EPS, np)[0]


@given(st.floats(-30, 30))
def test_gelu_is_the_exact_form(x: float) -> None:
    expected = 0.5 * x * (1 + math.erf(x / math.sqrt(2)))
    assert result(x, activation="gelu")[0, 0] == pytest.approx(expected, rel=1e-11, abs=1e-13)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x", 0.5),
        ("x * x", 0.25),
        ("-x + 2.5f / (x - 1.0f)", -5.5),
        ("fmaxf(x, 0.f) + fminf(x, -1e0f)", -0.5),
        ("erff(x)", math.erf(0.5)),
        ("rsqrtf(x)", 0.5**-0.5),
        ("tanhf(expf(x))", math.tanh(math.exp(0.5))),
        ("1.0f", 1.0),
        ("1 / 3.0f", 1 / 3),
    ],
)
def test_expressions_mean_what_they_mean_in_cuda(text: str, expected: float) -> None:
    assert result(0.5, EPILOGUE=text)[0, 0] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    "text",
    [
        *("x > 0 ? x : 0", "y", "x if x else 0", "x.real", "foo(x)", "x ** 2", "x[0]", "'x'"),
        *("expf", "expf + x", "fmaxf(x)", "expf(x, 1.f)", "fmaxf(x, 1.f, x)", "erff()", "erff(x, x)"),
        *("1/2 * x", "x * (-(1 + 2) / 4)"),  # 0 * x in C++
        *("x" + "+x" * 900, "x" + "+x" * 3000, "-" * 3000 + "x"),
    ],
)
def test_what_cannot_be_read_asks_for_a_reference(text: str) -> None:
    with pytest.raises(
        InputError, match=r"constants.EPILOGUE: .*reads arithmetic over x.*reference of your own"
    ):
        result(1.0, EPILOGUE=text)
    assert "erff" in FUNCTIONS


def test_activations_and_what_they_do_to_odd_values() -> None:
    odd = [np.nan, np.inf, -np.inf, -0.5]
    np.testing.assert_array_equal(result(odd, activation="relu")[0], [np.nan, np.inf, 0, 0])
    np.testing.assert_array_equal(result([np.inf, np.nan], activation="gelu")[0], [np.inf, np.nan])
    with pytest.raises(InputError, match="must be one of none, relu, gelu, got 'selu'"):
        result(1.0, activation="selu")


def arrays(bias: np.ndarray) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((5, 9), (9, 7)))
    return {"A": a, "B": b, "C": np.full((5, 7), np.nan, np.float32), "bias": bias}


@pytest.mark.parametrize(("side", "length"), [("row", 7), ("column", 5)])
def test_bias_by_columns_or_by_rows(side: str, length: int) -> None:
    bias = np.arange(length, dtype=np.float32)
    given_arrays = arrays(bias)
    expected = get_reference("matmul_epilogue").expected(given_arrays, {"bias": side, "EPILOGUE": "x * x"})
    product = given_arrays["A"].astype(float) @ given_arrays["B"]
    right = (product + (bias if side == "row" else bias[:, None])) ** 2
    np.testing.assert_allclose(expected.values["C"], right, rtol=1e-12)
    single = given_arrays["A"] @ given_arrays["B"] + (bias if side == "row" else bias[:, None])
    assert passes(accuracy({"C": single * single}, expected))
    spoilt = single.copy()
    spoilt[2, 3] *= 1 + 1e-4
    assert not passes(accuracy({"C": spoilt * spoilt}, expected))


def slow(*case: object) -> object:
    return pytest.param(*case, marks=pytest.mark.slow)


CASES = [
    ("sgemm_epilogue", {"bias": "row", "activation": "gelu"}, {}, None),
    slow("sgemm_epilogue", {"bias": "column", "activation": "relu", "beta": "general"}, {}, "address"),
    slow("sgemm_epilogue", {"bias": "none", "trans_a": "t"}, {}, "address"),
    ("sgemm_batched", {"trans_b": "t"}, {"BATCH": 3}, None),
    slow(
        "sgemm_batched",
        {"align_a": 1, "align_b": 1, "align_c": 1, "beta": "general"},
        {"BATCH": 2},
        "address",
    ),
]


@pytest.mark.parametrize(("name", "classes", "sizes", "sanitize"), CASES)
def test_the_shipped_kernels_on_the_cpu(
    name: str, classes: dict[str, Value], sizes: dict[str, int], sanitize: Sanitize
) -> None:
    spec = load_spec(name)
    problem = make_problem(spec, {"M": 37, "N": 45, "K": 19, **sizes}, classes=classes)
    config = spec.default_config("h200").replace(SMALL)
    assert check_on_cpu(spec, H200, problem, config, sanitize).worst_error < 2


def test_an_expression_of_ones_own(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "square.yaml"
    path.write_text(
        'kernel: square\nextends: sgemm_epilogue\nconstants: {EPILOGUE: "0.5f * x * x + fabsf(x)"}\n'
    )
    spec = read_spec(path)
    config = spec.default_config("h200").replace(SMALL)
    problem = make_problem(spec, {"M": 33, "N": 40, "K": 19})
    assert check_on_cpu(spec, H200, problem, config).worst_error < 2
    # The same kernel held against another expression is wrong.
    other = tmp_path / "other.yaml"
    other.write_text(path.read_text().replace("square", "other").replace("0.5f", "0.5001f"))
    from autotune.cpu.check import check_launch
    from autotune.launch import plan_launch
    from autotune.render import render

    launch = plan_launch(read_spec(other), problem, config, H200)
    with pytest.raises(StageFailure, match="expected"):
        check_launch(render(spec, H200, problem, config), launch, "matmul_epilogue")

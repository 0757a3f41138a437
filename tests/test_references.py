import numpy as np
import pytest

from autotune import comparison, references
from autotune.comparison import accuracy, in_range, passes, quick_error, worst_element
from autotune.errors import InputError
from autotune.references import Expected, get_reference


def gemm_arrays(m, n, k, seed=1, kind="normal"):
    rng = np.random.default_rng(seed)
    draw = rng.standard_normal if kind == "normal" else rng.random
    make = lambda *shape: draw(shape).astype(np.float32)  # noqa: E731
    return {"A": make(m, k), "B": make(k, n), "C": make(m, n)}


def sequential(a, b):
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        total += np.outer(a[:, k], b[k]).astype(np.float32)
    return total


def sliced(a, b, slices):
    """Partial sums of K-slices, added up afterwards, as split-K kernels do."""
    parts = [
        sequential(p, q)
        for p, q in zip(np.array_split(a, slices, 1), np.array_split(b, slices, 0), strict=True)
    ]
    return np.sum(parts, axis=0, dtype=np.float32)


ORDERS = {
    "sequential": sequential,
    "backwards": lambda a, b: sequential(a[:, ::-1], b[::-1]),
    "split-K 16": lambda a, b: sliced(a, b, 16),
    "strided": lambda a, b: sequential(
        np.concatenate([a[:, i::8] for i in range(8)], 1), np.concatenate([b[i::8] for i in range(8)], 0)
    ),
    "library": lambda a, b: a @ b,
}


@pytest.mark.parametrize("depth", [64, 4096, 32768])
@pytest.mark.parametrize("kind", ["normal", "uniform"])
def test_T06_every_order_passes_and_a_lost_slice_fails(depth, kind):
    arrays = gemm_arrays(24, 16, depth, kind=kind)
    a, b = arrays["A"], arrays["B"]
    expected = get_reference("matmul").expected(arrays, {"alpha": 1.0, "beta": 0.0})
    for name, multiply in ORDERS.items():
        result = accuracy({"C": multiply(a, b)}, expected)
        assert passes(result), (name, result)
    for start in (0, depth // 2, depth - 8):
        kept = np.r_[0:start, start + 8 : depth]
        result = accuracy({"C": sequential(a[:, kept], b[kept])}, expected)
        assert not passes(result), (start, result)
        assert result.worst_error > 2 * result.tolerance


def test_matmul_value_with_alpha_and_beta():
    arrays = gemm_arrays(5, 7, 3)
    expected = get_reference("matmul").expected(arrays, {"alpha": 2.0, "beta": 0.5, "M": 5, "lda": 3})
    a, b, c = (array.astype(np.float64) for array in arrays.values())
    np.testing.assert_allclose(expected.values["C"], 2 * a @ b + 0.5 * c, rtol=1e-14)
    assert expected.values["C"].dtype == np.float64
    assert passes(accuracy({"C": (2 * a @ b + 0.5 * c).astype(np.float32)}, expected))


def test_matmul_in_blocks_equals_matmul_at_once(monkeypatch):
    arrays = gemm_arrays(13, 11, 9)
    whole = get_reference("matmul").expected(arrays, {"beta": 0.5})
    monkeypatch.setattr(references, "BLOCK_BYTES", 8 * 9 * 4)
    monkeypatch.setattr(references, "BLOCK_FLOPS", 2 * 9 * 4 * 3)
    parts = get_reference("matmul").expected(arrays, {"beta": 0.5})
    np.testing.assert_allclose(parts.values["C"], whole.values["C"], rtol=1e-14)
    np.testing.assert_allclose(parts.scale["C"], whole.scale["C"], rtol=1e-12)


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_T03_zero_depth_and_zero_alpha_scale_c(beta):
    arrays = gemm_arrays(4, 6, 0)
    expected = get_reference("matmul").expected(arrays, {"alpha": 1.0, "beta": beta})
    np.testing.assert_array_equal(expected.values["C"], beta * arrays["C"].astype(np.float64))
    arrays = gemm_arrays(4, 6, 5)
    arrays["A"][:] = np.nan
    arrays["B"][:] = np.nan
    expected = get_reference("matmul").expected(arrays, {"alpha": 0.0, "beta": beta})
    np.testing.assert_array_equal(expected.values["C"], beta * arrays["C"].astype(np.float64))


def test_T02_zero_beta_ignores_c_and_nan_never_passes():
    arrays = gemm_arrays(4, 6, 5)
    arrays["C"][:] = np.nan
    expected = get_reference("matmul").expected(arrays, {"alpha": 1.0, "beta": 0.0})
    right = arrays["A"] @ arrays["B"]
    assert passes(accuracy({"C": right}, expected))
    assert not passes(accuracy({"C": arrays["C"]}, expected))
    for poison in (np.nan, np.inf, -np.inf):
        wrong = right.copy()
        wrong[3, 5] = poison
        worst = worst_element({"C": wrong}, expected)
        assert worst.index == (3, 5)
        assert worst.error == np.inf


def test_nan_and_infinities_pass_where_expected():
    value = np.array([[np.nan, np.inf, -np.inf, 1e39, 1.0]])
    expected = Expected({"C": value}, {"C": np.ones(())}, 0.0)
    got = np.array([[np.nan, np.inf, -np.inf, np.inf, 1.0]], np.float32)
    assert accuracy({"C": got}, expected).worst_error == 0.0
    assert (
        accuracy({"C": np.array([[1, np.inf, -np.inf, np.inf, 1]], np.float32)}, expected).worst_error
        == np.inf
    )
    assert (
        accuracy({"C": np.array([[np.nan, -np.inf, -np.inf, np.inf, 1]], np.float32)}, expected).worst_error
        == np.inf
    )


def test_comparison_in_blocks_finds_the_worst_element(monkeypatch):
    monkeypatch.setattr(comparison, "BLOCK_BYTES", 8 * 6 * 2)
    value = np.zeros((9, 6))
    got = np.zeros((9, 6), np.float32)
    got[7, 2] = 3
    got[1, 1] = 2
    worst = worst_element({"C": got}, Expected({"C": value}, {"C": np.ones(())}, 0.0))
    assert (worst.index, worst.got, worst.expected, worst.error) == ((7, 2), 3.0, 0.0, 3.0)


def test_copy_and_transpose_are_exact():
    x = gemm_arrays(3, 4, 5)["A"]
    for name, right in (("copy", x), ("transpose", x.T)):
        expected = get_reference(name).expected({"X": x, "Y": np.empty_like(right)}, {})
        assert passes(accuracy({"Y": right}, expected))
        wrong = right.copy()
        wrong[0, 0] = np.nextafter(wrong[0, 0], np.float32(9))
        assert not passes(accuracy({"Y": wrong}, expected))


def double(arrays, scalars, xp):
    return {"Y": 2 * arrays["X"].astype(xp.float64)}


def test_callables_and_import_paths():
    x = gemm_arrays(3, 4, 5)["A"]
    for reference in (double, f"{__name__}:double"):
        expected = get_reference(reference).expected({"X": x, "Y": x}, {})
        assert passes(accuracy({"Y": 2 * x}, expected))
        assert not passes(accuracy({"Y": 2.001 * x}, expected))


def test_functions_that_another_process_cannot_import_are_refused():
    references.check_importable("matmul")
    references.check_importable(double)
    with pytest.raises(InputError, match="top level of a module"):
        references.check_importable(lambda arrays, scalars, xp: {})


def test_wrong_names_say_what_is_valid():
    with pytest.raises(InputError, match="nearest: matmul"):
        get_reference("matmull")
    with pytest.raises(InputError, match="cannot import"):
        get_reference("no_such_module:f")
    with pytest.raises(InputError, match="two inputs"):
        get_reference("matmul").expected({"A": np.ones((2, 2))}, {})


def test_empty_output_has_no_error():
    expected = get_reference("matmul").expected(gemm_arrays(0, 4, 5), {})
    assert worst_element({"C": np.empty((0, 4), np.float32)}, expected) is None
    assert passes(accuracy({"C": np.empty((0, 4), np.float32)}, expected))


def test_scale_add_and_softmax() -> None:
    x = np.array([[1.0, 2.0], [1000.0, -1000.0]], dtype=np.float32)
    out = np.full_like(x, np.nan)
    scaled = get_reference("scale").expected({"x": x, "y": out}, {"alpha": 3})
    assert np.array_equal(scaled.values["y"], 3 * x.astype(np.float64))
    added = get_reference("add").expected({"a": x, "b": x, "y": out}, {})
    assert np.array_equal(added.values["y"], 2 * x.astype(np.float64))
    normal = get_reference("softmax").expected({"x": x, "y": out}, {}).values["y"]
    assert np.allclose(normal, [[1 / (1 + np.e), np.e / (1 + np.e)], [1, 0]])
    empty = np.zeros((0, 4), dtype=np.float32)
    assert get_reference("softmax").expected({"x": empty, "y": empty}, {}).values["y"].shape == (0, 4)


def typed_gemm(depth, dtype, out):
    rng = np.random.default_rng(3)
    arrays = {
        "A": rng.standard_normal((24, depth)).astype(dtype),
        "B": rng.standard_normal((depth, 16)).astype(dtype),
    }
    return {**arrays, "C": np.zeros((24, 16), out)}


@pytest.mark.parametrize("depth", [8, 512, 4096])
@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_T06_other_types_are_held_to_their_own_precision(depth, dtype):
    arrays = typed_gemm(depth, dtype, dtype)
    a, b = arrays["A"], arrays["B"]
    expected = get_reference("matmul").expected(arrays, {})
    wide = np.float64 if dtype == "float64" else np.float32
    right = sequential_in(a, b, wide).astype(dtype)
    assert passes(accuracy({"C": right}, expected))
    lost = sequential_in(a[:, 8:], b[8:], wide).astype(dtype) if depth > 8 else np.zeros_like(right)
    assert not passes(accuracy({"C": lost}, expected))
    if dtype == "float64":  # one that was computed in float32
        assert not passes(accuracy({"C": sequential_in(a, b, np.float32).astype(dtype)}, expected))


def sequential_in(a, b, dtype):
    total = np.zeros((a.shape[0], b.shape[1]), dtype)
    for k in range(a.shape[1]):
        total += np.outer(a[:, k].astype(dtype), b[k].astype(dtype))
    return total


def test_integers_have_to_be_exact():
    rng = np.random.default_rng(5)
    arrays = {"A": rng.integers(0, 8, (9, 4096), np.int8), "B": rng.integers(0, 8, (4096, 7), np.int8)}
    right = arrays["A"].astype(np.int32) @ arrays["B"].astype(np.int32)
    expected = get_reference("matmul").expected({**arrays, "C": np.zeros((9, 7), np.int32)}, {})
    assert passes(accuracy({"C": right}, expected))
    assert not passes(accuracy({"C": right + (np.arange(63).reshape(9, 7) == 40)}, expected))


@pytest.mark.parametrize(
    ("dtype", "off"), [("float16", 0.1), ("float32", 1e-4), ("float64", 1e-10), ("int32", 0.5)]
)
def test_callables_are_held_to_the_type_of_the_output(dtype, off):
    x = np.arange(1, 13).reshape(3, 4).astype(dtype)
    expected = get_reference(double).expected({"X": x, "Y": x}, {})
    assert passes(accuracy({"Y": 2 * x}, expected))
    assert not passes(accuracy({"Y": 2 * x + np.array(2 * off).astype(dtype) + (dtype == "int32")}, expected))


def test_several_outputs_are_all_verified():
    x = gemm_arrays(3, 4, 5)["A"]

    def both(arrays, scalars, xp):
        return {"Y": 2 * arrays["X"], "Z": 3 * arrays["X"]}

    arrays = {"X": x, "Y": x, "Z": x}
    assert passes(accuracy({"Y": 2 * x, "Z": 3 * x}, get_reference(both).expected(arrays, {})))
    assert not passes(accuracy({"Y": 2 * x, "Z": 4 * x}, get_reference(both).expected(arrays, {})))
    with pytest.raises(InputError, match="must give all that the kernel writes"):
        accuracy({"Y": 2 * x, "Z": 3 * x}, get_reference(double).expected(arrays, {}))


def forgetful(arrays, scalars, xp):
    return {"Y": arrays["S"] * 2}


def test_a_callable_that_fails_is_told_with_its_line():
    x = gemm_arrays(3, 4, 5)["A"]
    line = forgetful.__code__.co_firstlineno + 1
    with pytest.raises(InputError, match=rf"forgetful failed at test_references\.py:{line}: KeyError: 'S'"):
        get_reference(forgetful).expected({"X": x, "Y": x}, {})
    with pytest.raises(InputError, match=r"outputs by name, .* got a ndarray"):
        get_reference(lambda arrays, scalars, xp: x).expected({"X": x, "Y": x}, {})


def test_callables_that_give_something_else_are_refused():
    x = gemm_arrays(3, 4, 5)["A"]
    for wrong, message in (({"Q": x}, "no array of the kernel"), ({"Y": x.T}, "with shape")):
        with pytest.raises(InputError, match=message):
            get_reference(lambda arrays, scalars, xp, wrong=wrong: wrong).expected({"X": x, "Y": x}, {})


def test_the_quick_error_is_the_worst_elements_and_odd_results_do_not_pass_it():
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal((33, 33)).astype(np.float32) for _ in range(2))
    arrays = {"A": a, "B": b, "C": a @ b}
    expected = get_reference("matmul").expected(arrays, {})
    assert in_range({"C": arrays["C"]}, expected)
    got = {"C": (a @ b).astype(np.float32)}
    assert quick_error(got, expected) == worst_element(got, expected).error
    for odd in (np.nan, np.inf, -np.inf):
        got["C"][5, 7] = odd
        assert not quick_error(got, expected) <= expected.tolerance
    assert not quick_error({}, expected) <= expected.tolerance  # an output that is not compared
    expected.values["C"][0, 0] = 1e39  # infinite in float32: a quick look could let a large number pass
    assert not in_range({"C": arrays["C"]}, expected)

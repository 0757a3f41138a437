from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from autotune import runtime
from autotune.candidate import ScalarPlan
from autotune.config import Config
from autotune.device.launcher import Packed
from autotune.errors import GpuUnavailable, InputError
from autotune.gpu_tables import find_gpu
from autotune.launch import plan_launch
from autotune.runtime import Tuned, load
from autotune.spec.load import load_spec
from autotune.views import View, view_of


class Device:
    def __init__(self, id=0):
        self.id = id

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class DeviceArray(np.ndarray):
    """A NumPy array that looks like CuPy's."""

    device = Device()

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)


def on_device(array):
    return array.view(DeviceArray)


def aligned(rows, columns, pitch=None, offset=0):
    """A float32 table that starts `offset` elements past a 256-byte boundary."""
    pitch = pitch or columns
    raw = np.zeros(rows * pitch * 4 + 512, np.uint8)
    start = -raw.ctypes.data % 256 + 4 * offset
    table = raw[start : start + rows * pitch * 4].view(np.float32).reshape(rows, pitch)[:, :columns]
    table[...] = np.random.default_rng(rows * columns).standard_normal((rows, columns))
    return on_device(table)


@pytest.fixture
def calls(monkeypatch):
    """Runs launches on the host and remembers what was tuned."""
    made = SimpleNamespace(problems=[], launches=[])
    fake = SimpleNamespace(
        ndarray=DeviceArray,
        empty=lambda shape, dtype: on_device(np.full(shape, np.nan, dtype)),
        from_dlpack=lambda value: on_device(np.from_dlpack(value)),
    )
    monkeypatch.setattr(runtime, "_cupy", lambda: fake)

    def tune(spec, problem, ordinal, *rest):
        made.problems.append(problem)
        gpu = find_gpu("h200")
        config = Config.of({name: spec.defaults[name] for name in spec.parameter_names})

        def start(launch, addresses):
            made.launches.append(launch)
            values = {plan.name: plan.value for plan in launch.arguments if isinstance(plan, ScalarPlan)}

            def table(name, rows, columns, pitch):
                import ctypes

                count = (rows - 1) * pitch + columns
                flat = np.ctypeslib.as_array((ctypes.c_float * count).from_address(addresses[name]))
                return np.lib.stride_tricks.as_strided(flat, (rows, columns), (4 * pitch, 4))

            m, n, k = (int(values[name]) for name in "MNK")
            classes = dict(problem.classes)
            a, b = (
                table(name, columns, rows, pitch).T
                if classes[trans] == "t"
                else table(name, rows, columns, pitch)
                for name, rows, columns, pitch, trans in (
                    ("A", m, k, values["lda"], "trans_a"),
                    ("B", k, n, values["ldb"], "trans_b"),
                )
            )
            c = table("C", m, n, values["ldc"])
            c[...] = values["alpha"] * (a @ b) + (values["beta"] * c if values["beta"] else 0)

        return Tuned(config, plan_launch(spec, problem, config, gpu), start)

    monkeypatch.setattr(runtime, "_tune", tune)
    return made


def test_product_with_alpha_beta_and_out(calls):
    sgemm = load("sgemm")
    a, b = aligned(8, 12), aligned(12, 20)
    np.testing.assert_allclose(sgemm(a, b), np.asarray(a) @ np.asarray(b), rtol=1e-5)
    c = aligned(8, 20)
    before = np.array(c)
    assert sgemm(a, b, out=c, alpha=2.0, beta=0.5) is c
    np.testing.assert_allclose(c, 2 * (np.asarray(a) @ np.asarray(b)) + 0.5 * before, rtol=1e-4, atol=1e-5)
    assert [dict(problem.classes)["beta"] for problem in calls.problems] == ["zero", "general"]


def test_tuned_once_per_shape_and_class(calls):
    sgemm = load("sgemm")
    a, b = aligned(8, 12), aligned(12, 20)
    for _ in range(3):
        sgemm(a, b)
    assert len(calls.problems) == 1
    sgemm(aligned(9, 12), b)
    assert len(calls.problems) == 2
    assert sgemm.config(a, b)["BM"] == 128
    assert len(calls.problems) == 2


def test_pitches_and_alignments_of_the_arrays_decide(calls):
    sgemm = load("sgemm")
    a, b = aligned(8, 12, pitch=15, offset=1), aligned(12, 20, pitch=22, offset=2)
    np.testing.assert_allclose(sgemm(a, b), np.asarray(a) @ np.asarray(b), rtol=1e-5)
    classes = dict(calls.problems[0].classes)
    assert (classes["align_a"], classes["align_b"], classes["align_c"]) == (1, 2, 4)
    values = {plan.name: plan.value for plan in calls.launches[0].arguments if isinstance(plan, ScalarPlan)}
    assert (values["lda"], values["ldb"], values["ldc"]) == (15, 22, 20)


def test_transposed_views_are_taken_as_they_lie(calls):
    sgemm = load("sgemm")
    a, b = aligned(12, 8, pitch=16), aligned(20, 12)
    np.testing.assert_allclose(sgemm(a.T, b.T), np.asarray(a).T @ np.asarray(b).T, rtol=1e-5)
    classes = dict(calls.problems[0].classes)
    assert (classes["trans_a"], classes["trans_b"], classes["align_a"]) == ("t", "t", 4)
    values = {plan.name: plan.value for plan in calls.launches[0].arguments if isinstance(plan, ScalarPlan)}
    assert (values["lda"], values["ldb"], values["ldc"]) == (16, 12, 20)
    np.testing.assert_allclose(sgemm(a.T, aligned(12, 20)).shape, (8, 20))
    assert dict(calls.problems[1].classes)["trans_b"] == "n"


def strided(shape, *, of):
    flat = on_device(np.zeros(4096, np.float32))
    return on_device(np.lib.stride_tricks.as_strided(flat, shape, [4 * step for step in of]))


def test_batches_may_lie_apart_or_be_the_same_matrix():
    spec = load_spec("sgemm_batched")
    a, _, c = spec.arrays
    shape = (3, 8, 12)
    apart = view_of(a, shape, strided(shape, of=(100, 12, 1)))
    assert (apart.pitch, apart.stride, apart.transposed) == (12, 100, False)
    same = view_of(a, shape, strided(shape, of=(0, 1, 9)))
    assert (same.pitch, same.stride, same.transposed) == (9, 0, True)
    assert apart.alignment(4, (4, 2, 1)) == max(v for v in (4, 2, 1) if apart.address % (4 * v) == 0)
    assert View(shape, 12, 256, stride=98).alignment(4, (4, 2, 1)) == 2
    with pytest.raises(InputError, match="C must have contiguous rows"):
        view_of(c, shape, strided(shape, of=(95, 12, 1)))
    with pytest.raises(InputError, match="A must have contiguous rows or columns"):
        view_of(a, shape, strided(shape, of=(100, 24, 2)))


def test_scratch_memory_is_made_once_for_a_stream(calls, monkeypatch):
    family = Path(__file__).parent / "data" / "family"
    matvec = load("matvec", folders=[family])
    fake, made, seen = runtime._cupy(), [], []
    stream = SimpleNamespace(ptr=7)
    fake.cuda = SimpleNamespace(get_current_stream=lambda: stream)
    fake.zeros = lambda count, dtype: made.append(count) or on_device(np.zeros(count, dtype))

    def tune(spec, problem, *rest):
        config = spec.default_config("h200").replace({"SPLIT": 2})
        launch = plan_launch(spec, problem, config, find_gpu("h200"))
        return Tuned(config, launch, lambda launch, addresses: seen.append(addresses["workspace"]))

    monkeypatch.setattr(runtime, "_tune", tune)
    x = aligned(8, 1)
    for rows in (4, 3, 4):
        matvec(aligned(rows, 8), x)
    assert (made, len(set(seen))) == ([32], 1)
    matvec(aligned(6, 8), x)
    stream.ptr = 8
    matvec(aligned(4, 8), x)
    assert made == [32, 48, 32]


def test_classes_that_arrays_do_not_show_are_given(calls):
    bias = on_device(np.zeros(20, np.float32))
    a, b = aligned(8, 12), aligned(12, 20)
    load("sgemm_epilogue", classes={"activation": "relu"})(a, b, bias)
    load("sgemm_epilogue", classes={"bias": "none"})(a, b)
    first, second = (dict(problem.classes) for problem in calls.problems)
    assert (first["bias"], first["activation"]) == ("row", "relu")
    assert (second["bias"], second["activation"]) == ("none", "none")
    with pytest.raises(InputError, match=r"bias must have shape \(20,\), got \(8,\)"):
        load("sgemm_epilogue")(a, b, bias[:8])
    with pytest.raises(InputError, match="takes A, B, bias, got 2 arrays"):
        load("sgemm_epilogue")(a, b)
    with pytest.raises(InputError, match="must be one of none, relu, gelu, got rely"):
        load("sgemm_epilogue", classes={"activation": "rely"})


def test_empty_result_launches_nothing(calls):
    assert load("sgemm")(aligned(4, 3)[:0], aligned(3, 5)).shape == (0, 5)
    assert calls.launches == []


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (lambda a, b: (a,), {}, "takes A, B, got 1"),
        (lambda a, b: (a, b.astype(np.float64)), {}, "B must be float32, got float64"),
        (lambda a, b: (a, b[:5]), {}, r"K is 12 in A \(8, 12\) and 5 in B \(5, 20\)"),
        (lambda a, b: (a, b[:, 0]), {}, "B has 2 dimensions"),
        (lambda a, b: (a[:, ::2], b[:6]), {}, "A must have contiguous rows or columns.*ascontiguousarray"),
        (
            lambda a, b: (a, b),
            {"out": on_device(np.asfortranarray(np.zeros((8, 20), np.float32)))},
            "C must have contiguous rows, got strides",
        ),
        (lambda a, b: (a, b), {"gamma": 1.0}, "no argument 'gamma'"),
        (lambda a, b: (a, b), {"beta": 1.0}, "needs one"),
        (
            lambda a, b: (a, b),
            {"out": on_device(np.zeros((3, 3), np.float32))},
            r"shape \(8, 20\), got \(3, 3\)",
        ),
        (lambda a, b: (np.asarray(a), b), {}, "on the GPU, got numpy.ndarray"),
        (lambda a, b: ([1.0], b), {}, "on the GPU, got builtins.list"),
    ],
)
def test_wrong_calls_say_what_is_wrong(calls, arguments, options, words):
    with pytest.raises(InputError, match=words):
        load("sgemm")(*arguments(aligned(8, 12), aligned(12, 20)), **options)
    assert calls.problems == []


def test_arrays_on_two_gpus_are_refused(calls):
    elsewhere = type("Elsewhere", (DeviceArray,), {"device": Device(1)})
    with pytest.raises(InputError, match="B is on 1, not 0"):
        load("sgemm")(aligned(8, 12), np.asarray(aligned(12, 20)).view(elsewhere))


def test_without_cupy(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    with pytest.raises(GpuUnavailable, match="CuPy"):
        load("sgemm")(1, 2)


def test_arguments_are_packed_in_order_with_their_types():
    import ctypes

    spec = load("sgemm").spec
    from autotune.problems import make_problem

    problem = make_problem(spec, (8, 20, 12))
    config = Config.of({name: spec.defaults[name] for name in spec.parameter_names})
    launch = plan_launch(spec, problem, config, find_gpu("h200"))
    packed = Packed.of(launch, {"A": 2**40, "B": 2**41, "C": 2**42})
    pointers = (ctypes.c_void_p * 11).from_address(packed.address)
    kinds = [ctypes.c_int32] * 3 + [ctypes.c_float, ctypes.c_uint64, ctypes.c_int32, ctypes.c_uint64]
    kinds += [ctypes.c_int32, ctypes.c_float, ctypes.c_uint64, ctypes.c_int32]
    got = [kind.from_address(pointer).value for kind, pointer in zip(kinds, pointers, strict=True)]
    assert got == [8, 20, 12, 1.0, 2**40, 12, 2**41, 20, 0.0, 2**42, 20]

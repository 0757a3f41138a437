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
            a, b = table("A", m, k, values["lda"]), table("B", k, n, values["ldb"])
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
        (lambda a, b: (a, on_device(np.asfortranarray(b))), {}, "row-major.*ascontiguousarray"),
        (lambda a, b: (a[:, ::2], b[:6]), {}, "row-major"),
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

import numpy as np
import pytest
from fakes.gpu import FakeGpu, buffer, gemm_launch, right, runnable

from autotune.buffers import PATTERN, fill, generate, lay_out
from autotune.device.messages import Workload
from autotune.device.verify import Trap, verify_run
from autotune.errors import InputError, StageFailure
from autotune.protocol import Protocol
from autotune.records import Status


def check(kernel, launch, data=""):
    gpu = FakeGpu({"kernel": kernel})
    run = runnable(launch, "kernel")
    return verify_run(gpu, run, Trap(gpu, Workload.of(run, Protocol(), data)))


def failure(kernel, launch):
    with pytest.raises(StageFailure) as caught:
        check(kernel, launch)
    assert caught.value.status is Status.WRONG_RESULT
    return caught.value


@pytest.mark.parametrize("beta", [0.0, 0.5])
@pytest.mark.parametrize(("m", "n", "k"), [(5, 7, 3), (16, 16, 16), (1, 1, 1), (4, 6, 0)])
def test_T05_right_kernel_passes_with_pitches_and_offsets(m, n, k, beta):
    for pad, offset in ((0, 0), (3, 1), (5, 2), (7, 3)):
        accuracy = check(right, gemm_launch(m, n, k, beta, pad, offset))
        assert accuracy.worst_error <= accuracy.tolerance
        assert accuracy.elements == m * n


def test_T03_empty_output_launches_nothing():
    def never(*_):
        raise AssertionError("launched")

    assert check(never, gemm_launch(0, 6, 4)).elements == 0


def test_T03_zero_alpha_does_not_read_the_inputs():
    assert check(right, gemm_launch(4, 6, 5, 0.5, alpha=0.0), "nan").worst_error <= 4

    def reads(gpu, launch, addresses):
        a, b, c = (gpu.array(launch, addresses, name) for name in "ABC")
        c[...] = 0.0 * (a @ b) + 0.5 * c

    with pytest.raises(StageFailure, match="nan"):
        check(reads, gemm_launch(4, 6, 5, 0.5, alpha=0.0), "nan")


def test_T02_zero_beta_kernel_that_reads_c_fails():
    def reads_c(gpu, launch, addresses):
        a, b, c = (gpu.array(launch, addresses, name) for name in "ABC")
        c[...] = a @ b + np.float32(0) * c

    caught = failure(reads_c, gemm_launch(5, 7, 3))
    assert "is nan" in str(caught)
    assert caught.accuracy.worst_error == np.inf


def test_T02_kernel_that_gives_nan_everywhere_or_nothing_fails():
    def all_nan(gpu, launch, addresses):
        gpu.array(launch, addresses, "C")[...] = np.nan

    assert failure(all_nan, gemm_launch(5, 7, 3)).accuracy.worst_error == np.inf
    assert failure(lambda *_: None, gemm_launch(5, 7, 3)).accuracy.worst_error == np.inf


def test_general_beta_seeds_c():
    def ignores_c(gpu, launch, addresses):
        a, b, c = (gpu.array(launch, addresses, name) for name in "ABC")
        c[...] = a @ b

    assert "exceeds" in failure(ignores_c, gemm_launch(5, 7, 3, 0.5)).reason


@pytest.mark.parametrize("depth", [64, 4096, 32768])
def test_T06_mutant_that_loses_a_slice_fails(depth):
    def loses(gpu, launch, addresses):
        a, b, c = (gpu.array(launch, addresses, name) for name in "ABC")
        c[...] = a[:, 8:] @ b[8:]

    assert check(right, gemm_launch(16, 16, depth)).worst_error < 1
    assert "C[" in failure(loses, gemm_launch(16, 16, depth)).reason


def poke(name, byte_from_end, value=1.0):
    """A right kernel that also writes one float relative to the end of an array."""

    def kernel(gpu, launch, addresses):
        right(gpu, launch, addresses)
        plan = next(plan for plan in launch.buffers if plan.name == name)
        end = addresses[name] + plan.shape[0] * plan.pitch * 4
        gpu.at(end + byte_from_end, 4).view(np.float32)[0] = value

    return kernel


@pytest.mark.parametrize(
    ("kernel", "where"),
    [
        (poke("C", 0), "0 bytes past the end of C"),
        (poke("C", 400), "400 bytes past the end of C"),
        (poke("A", 60_000), "60000 bytes past the end of A"),
        (poke("A", -4 * 2 * 6 - 4), r"the padding behind row 2 of A|element \[2"),
        (poke("C", -4), "the padding behind row 4 of C"),
        (poke("B", -16), r"element \[2, 6\] of B"),
    ],
)
def test_writes_outside_the_outputs_are_found(kernel, where):
    caught = failure(kernel, gemm_launch(5, 7, 3, pad=3))
    assert "bytes changed that are no output" in caught.reason
    import re

    assert re.search(where, caught.reason), caught.reason


def test_write_before_the_first_buffer_is_found():
    def before(gpu, launch, addresses):
        right(gpu, launch, addresses)
        gpu.at(addresses["A"] - 8, 4)[...] = 0

    assert "8 bytes before A" in failure(before, gemm_launch(5, 7, 3)).reason


def test_wrong_and_stray_are_both_told():
    def both(gpu, launch, addresses):
        poke("C", 8)(gpu, launch, addresses)
        gpu.array(launch, addresses, "C")[1, 2] += 1

    reason = failure(both, gemm_launch(5, 7, 3)).reason
    assert "8 bytes past the end of C" in reason
    assert "C[1, 2]" in reason


def test_padding_that_is_read_spoils_the_result():
    def reads_padding(gpu, launch, addresses):
        right(gpu, launch, addresses)
        plan = launch.buffers[0]
        flat = gpu.at(addresses["A"], plan.shape[0] * plan.pitch * 4).view(np.float32)
        gpu.array(launch, addresses, "C")[0, 0] += 0 * flat[plan.shape[1]]

    assert "is nan" in failure(reads_padding, gemm_launch(5, 7, 3, pad=1)).reason


def test_trap_serves_many_runs():
    gpu = FakeGpu({"right": right, "wrong": poke("C", 0)})
    run = runnable(gemm_launch(5, 7, 3))
    trap = Trap(gpu, Workload.of(run, Protocol()))
    first = verify_run(gpu, run, trap)
    with pytest.raises(StageFailure):
        verify_run(gpu, runnable(run.launch, "wrong"), trap)
    assert verify_run(gpu, run, trap) == first
    assert gpu.loaded_now == 0


def test_guards_are_as_long_as_a_tile_overhangs_and_read_as_nan():
    layout = lay_out((buffer("A", "in", (4, 1000)), buffer("C", "out", (4, 1000), offset=1)), guarded=True)
    a, c = layout.places
    assert a.start >= 256 * 4000
    assert c.start - a.start - a.nbytes >= 256 * 4000
    assert layout.nbytes - c.start - c.nbytes >= 256 * 4000
    assert c.start % 256 == 4
    word = np.array([PATTERN, PATTERN], np.uint32)
    assert np.isnan(word.view(np.float32)).all()
    assert np.isnan(word.view(np.float64)).all()
    assert np.isnan(word.view(np.float16)).all()


def test_generated_data_is_normal_and_the_same_in_any_blocks(monkeypatch):
    whole = generate("normal", 200_000, 0, 3, np.dtype("float32"), np)
    parts = [generate("normal", 1000, first, 3, np.dtype("float32"), np) for first in (0, 1000)]
    np.testing.assert_array_equal(np.concatenate(parts), whole[:2000])
    assert abs(whole.mean()) < 0.01
    assert abs(whole.std() - 1) < 0.01
    assert np.isfinite(whole).all()
    assert not np.array_equal(whole, generate("normal", 200_000, 0, 4, np.dtype("float32"), np))
    uniform = generate("uniform", 100_000, 0, 3, np.dtype("float32"), np)
    assert uniform.min() >= 0
    assert uniform.max() < 1
    assert abs(uniform.mean() - 0.5) < 0.01
    # Low mantissa bits are used, else the chip draws less power than on real data.
    assert (whole.view(np.uint32) & 0xFF).mean() == pytest.approx(127.5, rel=0.05)
    with pytest.raises(InputError, match="normal, uniform"):
        generate("gaussian", 3, 0, 1, np.dtype("float32"), np)


def test_fill_in_blocks_equals_fill_at_once(monkeypatch):
    layout = lay_out((buffer("A", "in", (9, 6), 8),), guarded=True)
    arenas = []
    for block in (2**24, 13):
        monkeypatch.setattr("autotune.buffers.BLOCK", block)
        arenas.append(np.empty(layout.nbytes, np.uint8))
        fill(arenas[-1], layout, "normal", 1, frozenset(), np)
    np.testing.assert_array_equal(*arenas)
    assert layout.views(arenas[0])["A"].shape == (9, 6)

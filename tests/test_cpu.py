"""The CPU runner itself: what small kernels may use, and how each kind of failure is told."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from autotune.candidate import BufferPlan, LaunchPlan, ScalarPlan, Source
from autotune.config import Config
from autotune.cpu import check_on_cpu, run_on_cpu
from autotune.cpu.build import Sanitize, build
from autotune.errors import StageFailure
from autotune.gpu_tables import find_gpu
from autotune.problems import make_problem
from autotune.records import Status
from autotune.references import Array
from autotune.spec.load import load_spec


@pytest.fixture(autouse=True, scope="module")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOTUNE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def kernel(body: str) -> Source:
    text = f'extern "C" __global__ void own(const float* in, float* out, int n) {{\n{body}\n}}\n'
    return Source(text, "own", Path("own.cu.j2"))


def plan(
    count: int, block: tuple[int, int, int] = (64, 1, 1), grid: tuple[int, int, int] = (1, 1, 1)
) -> LaunchPlan:
    arguments = (
        BufferPlan("in", "in", (count,), "float32", count, 0),
        BufferPlan("out", "out", (count,), "float32", count, 0),
        ScalarPlan("n", "int32", count),
    )
    return LaunchPlan(grid, block, 256, arguments)


def run(
    body: str,
    count: int = 64,
    sanitize: Sanitize = None,
    limit_s: float = 60.0,
    **launch: tuple[int, int, int],
) -> Array:
    arrays = {"in": np.arange(count, dtype=np.float32), "out": np.full(count, np.nan, np.float32)}
    return run_on_cpu(kernel(body), plan(count, **launch), arrays, sanitize, limit_s)["out"]


REVERSE = (
    "__shared__ float all[64]; int t = threadIdx.x; all[t] = in[t]; __syncthreads(); out[t] = all[63 - t];"
)
WARP_SUM = """
float sum = in[threadIdx.x];
for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
out[threadIdx.x] = sum + __shfl_down_sync(~0u, sum, 1) + __shfl_sync(~0u, sum, 3);
"""


@pytest.mark.parametrize("sanitize", [None, "thread"])
def test_static_shared_memory_and_barriers(sanitize: Sanitize) -> None:
    assert run(REVERSE, sanitize=sanitize).tolist() == list(range(63, -1, -1))


def test_shuffles_within_each_warp() -> None:
    sums = np.arange(64).reshape(2, 32).sum(axis=1)
    assert run(WARP_SUM).tolist() == np.repeat(3.0 * sums, 32).tolist()


def test_grids_and_blocks_have_three_dimensions() -> None:
    body = """
    int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    out[block * 8 + thread] = 100 * block + 10 * threadIdx.z + threadIdx.x;
    """
    got = run(body, block=(2, 2, 2), grid=(2, 2, 2)).reshape(8, 2, 2, 2)
    assert got.tolist() == [[[[100 * b + 10 * z + x for x in (0, 1)]] * 2 for z in (0, 1)] for b in range(8)]


def test_threads_may_leave_before_a_barrier() -> None:
    assert (
        run("if (threadIdx.x > 9) return; __syncthreads(); out[threadIdx.x] = 1;")[:10].tolist() == [1] * 10
    )


def test_a_warp_that_waits_for_itself_alone_is_told() -> None:
    body = "if (threadIdx.x < 16) __syncwarp(); else __syncthreads(); out[threadIdx.x] = 1;"
    with pytest.raises(StageFailure, match="barriers that the others never reach") as caught:
        run(body)
    assert caught.value.status is Status.CRASHED


def test_an_endless_kernel_is_stopped() -> None:
    with pytest.raises(StageFailure) as caught:
        run("volatile int forever = 1; while (forever) {}", limit_s=0.5)
    assert caught.value.status is Status.TIMEOUT


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("out[threadIdx.x + 1] = 1;", "heap-buffer-overflow"),
        ("out[threadIdx.x] = dynamic[threadIdx.x + 1];", "heap-buffer-overflow"),
        ("*reinterpret_cast<float4*>(out + 1) = make_float4(0, 0, 0, 0);", "misaligned address"),
    ],
)
def test_stray_and_misaligned_accesses_are_found(body: str, says: str) -> None:
    with pytest.raises(StageFailure, match=says) as caught:
        run(f"float* dynamic = autotune_host::dynamic_shared();\n(void)dynamic;\n{body}", sanitize="address")
    assert caught.value.status is Status.CRASHED
    assert f"of the rendered kernel: {body}" in caught.value.reason
    assert "autotune_host::run" not in caught.value.reason


def test_a_kernel_that_does_not_compile_says_where() -> None:
    with pytest.raises(StageFailure, match=r"kernel\.cu:2.*undeclared_name") as caught:
        run("out[0] = undeclared_name;")
    assert caught.value.status is Status.COMPILE_ERROR


def test_a_missing_compiler_is_told_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(StageFailure, match=r"no-such-compiler.*set CXX"):
        run("out[0] = 1;")


def test_a_program_is_built_once() -> None:
    first = build(kernel("out[0] = 2;"))
    changed = first.stat().st_mtime_ns
    assert build(kernel("out[0] = 2;")) == first
    assert first.stat().st_mtime_ns == changed


def test_check_on_cpu_gives_the_accuracy_of_a_configuration() -> None:
    spec = load_spec("sgemm")
    accuracy = check_on_cpu(
        spec, find_gpu("a6000"), make_problem(spec, (20, 30, 40)), Config.of(spec.defaults)
    )
    assert accuracy.elements == 600
    assert 0 < accuracy.worst_error < 1


def test_half_precision_kernels_run(tmp_path: Path) -> None:
    text = """#include <cuda_fp16.h>
extern "C" __global__ void own(const __half* in, __half* out, int n) {
  int i = threadIdx.x;
  __half2 pair = __hfma2(__half2half2(in[i]), __float2half2_rn(2.0f), __floats2half2_rn(1.0f, 0.1f));
  if (i < n) out[i] = __low2half(pair) * in[i] + __float2half(__half2float(__high2half(pair)));
}
"""
    arguments = tuple(BufferPlan(name, name, (64,), "float16", 64, 0) for name in ("in", "out"))
    launch = LaunchPlan((1, 1, 1), (64, 1, 1), 0, (*arguments, ScalarPlan("n", "int32", 64)))
    x = np.linspace(-3, 3, 64).astype(np.float16)
    got = run_on_cpu(Source(text, "own", tmp_path / "own.cu.j2"), launch, {"in": x, "out": x})["out"]
    half = np.float16
    expected = (x * half(2) + half(1)) * x + (x * half(2) + half(0.1))
    np.testing.assert_allclose(got.astype(float), expected.astype(float), rtol=3e-3, atol=3e-3)
    assert got.dtype == np.float16


def test_a_changed_header_beside_the_template_is_seen(tmp_path: Path) -> None:
    source = Source(
        '#include "own.cuh"\nextern "C" __global__ void own(const float* in, float* out, int n) { out[0] = OWN; }\n',
        "own",
        tmp_path / "own.cu.j2",
    )
    arrays = {"in": np.zeros(1, np.float32), "out": np.zeros(1, np.float32)}
    for value in (1, 2):
        (tmp_path / "own.cuh").write_text(f"#define OWN {value}\n")
        assert run_on_cpu(source, plan(1, block=(1, 1, 1)), arrays)["out"][0] == value


def test_a_host_compiler_that_hangs_is_ended_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "slow-compiler"
    compiler.write_text(f"#!/bin/sh\nsleep 600 & echo $! > {tmp_path}/pid\nwait\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setattr("autotune.cpu.build.COMPILE_LIMIT_S", 1.0)
    began = time.monotonic()
    with pytest.raises(StageFailure) as caught:
        build(kernel("// hangs"))
    assert caught.value.status is Status.COMPILE_TIMEOUT
    assert time.monotonic() - began < 10
    pid = int((tmp_path / "pid").read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_sums_that_nobody_set_to_zero_are_wrong() -> None:
    """Such a kernel is right wherever memory happens to hold zeros, and wrong on the GPU."""
    got = run(
        "float sum[4]; for (int i = 0; i < 4; ++i) sum[i] += in[threadIdx.x]; out[threadIdx.x] = sum[3];"
    )
    assert not np.isclose(got, np.arange(64)).any()

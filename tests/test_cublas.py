import ctypes
import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from fakes.cublas import FakeCublasLibrary, FakeCublasLtLibrary
from fakes.gpu import FakeGpu, buffer, gemm_launch, runnable

from autotune.buffers import Place
from autotune.device.cublas import WORKSPACE_BYTES, Cublas, matrices, version_text
from autotune.device.cublaslt import Algorithm, CublasLt, HeuristicResult
from autotune.device.measure import BufferSets
from autotune.device.messages import Workload
from autotune.errors import InputError, StageFailure
from autotune.gpu_tables import find_gpu
from autotune.launch import plan_launch
from autotune.problems import make_problem
from autotune.protocol import Protocol
from autotune.spec.load import load_spec


@pytest.mark.parametrize("beta", [0.0, 0.5])
@pytest.mark.parametrize(("m", "n", "k"), [(5, 7, 3), (4, 4, 4), (1, 9, 6)])
def test_row_major_product_by_swapped_operands(m, n, k, beta):
    gpu = FakeGpu()
    launch = gemm_launch(m, n, k, beta, pad=3, alpha=2.0)
    workload = Workload.of(runnable(launch), Protocol())
    addresses = BufferSets(gpu, workload).addresses(0)
    a, b, c = (gpu.array(launch, addresses, name) for name in "ABC")
    expected = 2 * a.astype(np.float64) @ b + beta * c
    Cublas(7, gpu.allocate(64), gpu.address, FakeCublasLibrary(gpu)).bind(workload, addresses)()
    np.testing.assert_allclose(c, expected, rtol=1e-5, atol=1e-5)


def test_stream_is_set_before_the_workspace_and_maths_is_fp32():
    library = FakeCublasLibrary(FakeGpu())
    gpu = library.gpu
    Cublas(7, gpu.allocate(64), gpu.address, library)
    assert library.calls == ["create", "stream", "workspace", ("math", 0), ("pointer", 0)]


def test_refusals_are_told():
    gpu = FakeGpu()
    library = FakeCublasLibrary(gpu)
    library.cublasSetMathMode = lambda *_: 7
    with pytest.raises(StageFailure, match="cublasSetMathMode returned status 7"):
        Cublas(7, gpu.allocate(64), gpu.address, library)
    with pytest.raises(InputError, match="three float32 matrices"):
        matrices([buffer("X", "in", (4, 4))])
    assert version_text(130002) == "13.0.2"
    assert version_text(120805) == "12.8.5"


def test_structures_are_those_of_the_header():
    """cublasLt.h: `cublasLtMatmulAlgo_t` is uint64_t data[8]; a result has it, size_t, status, float, int[4]."""
    assert ctypes.sizeof(Algorithm) == 64
    assert ctypes.sizeof(HeuristicResult) == 96
    offsets = {name: getattr(HeuristicResult, name).offset for name, _ in HeuristicResult._fields_}
    assert offsets == {"algo": 0, "workspace_bytes": 64, "state": 72, "waves": 76, "reserved": 80}


@pytest.mark.parametrize(("offset", "expected"), [(0, 256), (1, 4), (2, 8), (4, 16)])
def test_the_heuristic_is_told_how_the_buffers_lie(offset, expected):
    gpu = FakeGpu()
    library = FakeCublasLtLibrary(gpu)
    workload = Workload.of(runnable(gemm_launch(8, 12, 4, offset=offset)), Protocol())
    lt = CublasLt(7, gpu.allocate(64), gpu.address, library)
    found = lt.candidates(workload, BufferSets(gpu, workload).addresses(0), 16)
    assert library.attributes == {1: WORKSPACE_BYTES, 5: expected, 6: expected, 7: expected, 8: expected}
    assert [candidate.workspace_bytes for candidate in found] == [0, 1000, 2000, 3000]
    assert found[3].text == "algorithm 3, tile 23"
    assert lt.version == "13.0.2"


@pytest.mark.parametrize("beta", [0.0, 0.5])
@pytest.mark.parametrize(("m", "n", "k"), [(5, 7, 3), (4, 4, 4), (1, 9, 6)])
def test_lt_computes_the_row_major_product(m, n, k, beta):
    gpu = FakeGpu()
    launch = gemm_launch(m, n, k, beta, pad=3, alpha=2.0)
    workload = Workload.of(runnable(launch), Protocol())
    addresses = BufferSets(gpu, workload).addresses(0)
    a, b, c = (gpu.array(launch, addresses, name) for name in "ABC")
    expected = 2 * a.astype(np.float64) @ b + beta * c
    lt = CublasLt(7, gpu.allocate(64), gpu.address, FakeCublasLtLibrary(gpu))
    candidate = lt.candidates(workload, addresses, 1)[0]
    lt.bind(workload, candidate.algorithm, addresses)()
    np.testing.assert_allclose(c, expected, rtol=1e-5, atol=1e-5)


def test_no_candidate_is_told():
    gpu = FakeGpu()
    library = FakeCublasLtLibrary(gpu)
    library.cublasLtMatmulAlgoGetHeuristic = lambda *_: 15
    workload = Workload.of(runnable(gemm_launch(8, 12, 4)), Protocol())
    lt = CublasLt(7, gpu.allocate(64), gpu.address, library)
    with pytest.raises(StageFailure, match="GetHeuristic returned status 15"):
        lt.candidates(workload, BufferSets(gpu, workload).addresses(0), 16)
    library.cublasLtMatmulAlgoGetHeuristic = lambda *_: 0
    with pytest.raises(StageFailure, match="no algorithm"):
        lt.candidates(workload, BufferSets(gpu, workload).addresses(0), 16)


def test_memory_that_a_kernel_asks_for_is_no_matrix():
    launch = gemm_launch(8, 12, 4)
    plans = [*launch.buffers, dataclasses.replace(launch.buffers[0], name="workspace", role="scratch")]
    assert [plan.name for plan in matrices(plans)] == ["A", "B", "C"]


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("library", ["cublas", "cublaslt"])
def test_operands_that_lie_transposed(library, turned):
    gpu = FakeGpu()
    workload, addresses, expected = product_of("sgemm", {"M": 5, "N": 7, "K": 3}, turned, gpu)
    if library == "cublas":
        call = Cublas(7, gpu.allocate(64), gpu.address, FakeCublasLibrary(gpu)).bind(workload, addresses)
    else:
        lt = CublasLt(7, gpu.allocate(64), gpu.address, FakeCublasLtLibrary(gpu))
        algorithm = lt.candidates(workload, addresses, 1)[0].algorithm
        call = lt.bind(workload, algorithm, addresses)
    call()
    np.testing.assert_allclose(expected.got(), expected.right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("turned", [(False, False), (True, True)])
def test_batches_go_to_the_strided_routine(turned):
    gpu = FakeGpu()
    workload, addresses, expected = product_of(
        "sgemm_batched", {"BATCH": 3, "M": 5, "N": 7, "K": 4}, turned, gpu
    )
    Cublas(7, gpu.allocate(64), gpu.address, FakeCublasLibrary(gpu)).bind(workload, addresses)()
    np.testing.assert_allclose(expected.got(), expected.right, rtol=1e-5, atol=1e-5)
    with pytest.raises(InputError, match="three float32 matrices"):
        matrices(workload.buffers)


def product_of(kernel, sizes, turned, gpu):
    """Workload and buffers of a problem, with what the buffers hold and should hold."""
    spec = load_spec(kernel)
    flags = dict(zip(("trans_a", "trans_b"), ("t" if turn else "n" for turn in turned), strict=True))
    problem = make_problem(spec, sizes, classes={**flags, "align_a": 1, "align_b": 2})
    h200 = find_gpu("h200")
    launch = plan_launch(spec, problem, spec.default_config("h200"), h200)
    workload = Workload.of_launch(launch, spec.reference, Protocol())
    addresses = BufferSets(gpu, workload).addresses(0)

    def array(plan):
        place = Place(plan, 0, int(np.prod(plan.stored_shape[:-1])), plan.stored_shape[-1], 4)
        return place.view(gpu.at(addresses[plan.name], place.nbytes))

    a, b, c = map(array, launch.buffers)
    right = np.array(a, np.float64) @ np.array(b, np.float64)
    return workload, addresses, SimpleNamespace(right=right, got=lambda: np.array(c))

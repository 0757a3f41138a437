import numpy as np
import pytest
from fakes.cublas import FakeCublasLibrary
from fakes.gpu import FakeGpu, buffer, gemm_launch, runnable

from autotune.device.cublas import Cublas, version_text
from autotune.device.measure import BufferSets
from autotune.device.messages import Workload
from autotune.errors import InputError, StageFailure
from autotune.protocol import Protocol


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
    from autotune.device.cublas import matrices

    with pytest.raises(InputError, match="three float32 matrices"):
        matrices([buffer("X", "in", (4, 4))])
    assert version_text(130002) == "13.0.2"
    assert version_text(120805) == "12.8.5"

"""The raw CUDA calls, as far as that goes without a GPU: names in CuPy, order, and errors."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fakes.devices import facts
from fakes.gpu import gemm_launch

from autotune.candidate import CompiledKernel
from autotune.device.cuda_device import CudaDevice
from autotune.errors import GpuUnavailable, StageFailure
from autotune.records import Resources, Status

PACKAGE = Path(__file__).parents[1] / "autotune" / "device"


def test_every_name_used_exists_in_cupy_and_in_the_bindings():
    cupy = pytest.importorskip("cupy")
    from cuda.bindings import driver as bindings
    from cupy.cuda import driver, runtime

    text = "".join((PACKAGE / name).read_text() for name in ("cuda_device.py", "launcher.py"))
    names = {"driver": driver, "runtime": runtime}
    used = re.findall(r"\b_?(driver|runtime)\.([A-Za-z_]+)", text)
    assert len(used) > 15
    assert [f"{where}.{name}" for where, name in used if not hasattr(names[where], name)] == []
    for name in re.findall(r"cupy\.cuda\.([A-Za-z_]+)", text):
        assert hasattr(cupy.cuda, name), name
    text = (PACKAGE / "local.py").read_text()
    for name in re.findall(r"driver\.(cu[A-Za-z_]+)", text):
        assert hasattr(bindings, name), name
    attributes = re.findall(r'ask\("([A-Z_]+)"\)', text)
    assert len(attributes) > 15
    for name in attributes:
        assert hasattr(bindings.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}"), name


class CudaError(Exception):
    def __init__(self, status):
        super().__init__(f"CUDA_ERROR_{status}")
        self.status = status


class Recorder:
    """Stands for `cupy.cuda.driver` or `runtime`: remembers calls, fails where told to."""

    def __init__(self, log, error_name, **attributes):
        self.__dict__.update(attributes)
        self.log, self.fails, self.version = log, {}, 13050
        setattr(self, error_name, CudaError)

    def __getattr__(self, name):
        if name.startswith("CU_"):
            return name

        def call(*arguments):
            self.log.append((name, *arguments))
            if name in self.fails:
                raise CudaError(self.fails[name])
            return {"memGetInfo": (100, 200), "driverGetVersion": self.version}.get(name, len(self.log))

        return call


@pytest.fixture
def cuda(monkeypatch, tmp_path):
    log = []
    driver, runtime = Recorder(log, "CUDADriverError"), Recorder(log, "CUDARuntimeError")

    class Stream:
        ptr = 77

        def __init__(self, non_blocking):
            self.fails = None

        def use(self):
            log.append(("use",))

        def synchronize(self):
            log.append(("synchronize",))
            if "synchronize" in runtime.fails:
                raise CudaError(runtime.fails["synchronize"])

    cuda = SimpleNamespace(
        driver=driver, runtime=runtime, Stream=Stream, Device=lambda i: SimpleNamespace(use=lambda: None)
    )
    pool = SimpleNamespace(free_bytes=lambda: 5, free_all_blocks=lambda: log.append(("free",)))
    cupy = SimpleNamespace(
        cuda=cuda, zeros=np.zeros, empty=np.empty, uint8=np.uint8, get_default_memory_pool=lambda: pool
    )
    for name, module in {"cupy": cupy, "cupy.cuda": cuda}.items():
        monkeypatch.setitem(sys.modules, name, module)
    image = tmp_path / "kernel.cubin"
    image.write_bytes(b"not a cubin")
    kernel = CompiledKernel("key", image, "sgemm", "sm_90", Resources(32, 0, 0, 0, 0), "nvrtc 13.5", 0.1)
    device = CudaDevice(facts("0000:18:00"))
    log.clear()
    return SimpleNamespace(device=device, log=log, driver=driver, runtime=runtime, kernel=kernel)


def names(cuda):
    return [entry[0] for entry in cuda.log]


def test_module_is_unloaded_whatever_happens(cuda):
    with cuda.device.loaded(cuda.kernel):
        pass
    with pytest.raises(ZeroDivisionError), cuda.device.loaded(cuda.kernel):
        raise ZeroDivisionError
    assert names(cuda) == ["moduleLoadData", "moduleGetFunction", "moduleUnload"] * 2


def test_launch_in_order_of_the_driver_s_arguments(cuda):
    launch = gemm_launch(4, 4, 4)
    queue = cuda.device.bind(5, launch, {"A": 1, "B": 2, "C": 3})
    assert cuda.log == []
    queue()
    ((name, function, *shape, stream, pointers, extra),) = cuda.log
    assert (name, function, stream, extra) == ("launchKernel", 5, 77, 0)
    assert shape == [1, 1, 1, 32, 1, 1, 0]
    assert pointers != 0


def test_dynamic_shared_memory_is_asked_for(cuda):
    import dataclasses

    launch = dataclasses.replace(gemm_launch(4, 4, 4), dynamic_smem_bytes=100_000)
    cuda.device.bind(5, launch, {"A": 1, "B": 2, "C": 3})
    assert cuda.log == [("funcSetAttribute", 5, "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES", 100_000)]
    cuda.device.bind(5, launch, {"A": 4, "B": 2, "C": 3})
    assert len(cuda.log) == 1  # once per function
    cuda.driver.fails["funcSetAttribute"] = 1
    with pytest.raises(StageFailure, match="100000 B of dynamic shared memory") as caught:
        cuda.device.bind(6, launch, {"A": 1, "B": 2, "C": 3})
    assert caught.value.status is Status.LAUNCH_ERROR


@pytest.mark.parametrize(
    ("call", "code", "status"),
    [
        ("launchKernel", 701, Status.LAUNCH_ERROR),
        ("launchKernel", 1, Status.LAUNCH_ERROR),
        ("launchKernel", 700, Status.CRASHED),  # left by an earlier kernel
        ("synchronize", 700, Status.CRASHED),
        ("synchronize", 702, Status.TIMEOUT),
    ],
)
def test_T07_errors_end_the_trial_by_kind(cuda, call, code, status):
    (cuda.runtime if call == "synchronize" else cuda.driver).fails[call] = code
    queue = cuda.device.bind(5, gemm_launch(4, 4, 4), {"A": 1, "B": 2, "C": 3})

    def run():
        queue()
        cuda.device.synchronize()

    with pytest.raises(StageFailure, match=f"CUDA_ERROR_{code}") as caught:
        run()
    assert caught.value.status is status
    assert caught.value.__cause__ is None


def test_graph_is_captured_replayed_and_destroyed(cuda):
    with cuda.device.graph(lambda: cuda.log.append(("queued",))) as replay:
        replay()
    assert names(cuda) == [
        "streamBeginCapture",
        "queued",
        "streamEndCapture",
        "graphInstantiate",
        "graphDestroy",
        "graphLaunch",
        "graphExecDestroy",
    ]
    cuda.log.clear()

    def refused():
        raise StageFailure(Status.LAUNCH_ERROR, "no")

    with pytest.raises(StageFailure), cuda.device.graph(refused):
        pass
    assert names(cuda) == ["streamBeginCapture", "streamEndCapture", "graphDestroy"]


def test_T43_missing_entry_names_what_is_there(cuda, monkeypatch):
    cuda.driver.fails["moduleGetFunction"] = 500
    with pytest.raises(StageFailure, match="no kernel 'sgemm'"), cuda.device.loaded(cuda.kernel):
        pass
    monkeypatch.setattr("autotune.device.cuda_device.kernel_names", lambda image: ("_Z5sgemmi", "other"))
    with pytest.raises(StageFailure, match="it has: _Z5sgemmi, other"), cuda.device.loaded(cuda.kernel):
        pass
    assert names(cuda).count("moduleUnload") == 2


@pytest.mark.parametrize("code", [200, 209, 218, 222])
def test_T23_a_compiler_too_new_for_the_driver_stops_the_run_with_both_versions(cuda, code):
    cuda.driver.fails["moduleLoadData"] = code
    cuda.runtime.version = 13040
    with pytest.raises(GpuUnavailable, match=r"NVRTC 13\.5, and the driver supports CUDA 13\.4"):
        cuda.device.loaded(cuda.kernel).__enter__()
    # Anything else is one failed trial.
    cuda.driver.fails["moduleLoadData"] = 2
    with pytest.raises(StageFailure):
        cuda.device.loaded(cuda.kernel).__enter__()


def test_T23_refused_code_names_compiler_and_target(cuda):
    cuda.driver.fails["moduleLoadData"] = 209
    with (
        pytest.raises(StageFailure, match=r"nvrtc 13\.5 for sm_90 on NVIDIA H200.*209"),
        cuda.device.loaded(cuda.kernel),
    ):
        pass


def test_memory_counts_the_pool(cuda):
    assert cuda.device.free_bytes() == 105
    assert cuda.device.used_bytes() == 100
    assert cuda.device.memory_gbps == pytest.approx(4917, rel=0.01)


def test_without_cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(GpuUnavailable, match="CuPy"):
        CudaDevice(facts("0000:18:00"))

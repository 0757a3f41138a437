"""A bench on a GPU made of NumPy: the real stages and worker in one process, with planted times."""

from __future__ import annotations

import contextlib
import itertools
from concurrent.futures import Future
from pathlib import Path

from fakes.cublas import FakeCublasLibrary, FakeCublasLtLibrary
from fakes.devices import facts
from fakes.gpu import FakeGpu, right

from autotune.candidate import CompiledKernel
from autotune.device.cublas import Cublas
from autotune.device.cublaslt import CublasLt
from autotune.device.local import LocalGpu
from autotune.device.messages import Hello
from autotune.device.stages import GpuStages
from autotune.device.worker import Worker
from autotune.errors import StageFailure
from autotune.gpu_tables import find_gpu
from autotune.records import ClockReading, DeviceIdentity, Environment, Resources, Status

BOARD = "0000:18:00"


def local_gpu(driver="580.1"):
    spec = find_gpu("h200")
    identity = DeviceIdentity("h200", "NVIDIA H200", "9.0", 132, spec.memory_bytes)
    return LocalGpu(spec, identity, Environment(driver, "13.0", "13.0", "0.1.0"), "GPU-aa", BOARD, 0)


def copy(gpu, launch, addresses):
    gpu.array_of(launch, addresses, "to")[...] = gpu.array_of(launch, addresses, "from")


class BenchGpu(FakeGpu):
    def array_of(self, launch, addresses, name):
        plan = next(plan for plan in launch.buffers if plan.name == name)
        return self.at(addresses[name], plan.shape[0] * 4).view("float32")


class Pool:
    """Compiles nothing: each source becomes an entry of its own, `kernel 0` the first; some do not compile."""

    workers = 1

    def __init__(self, gpu, broken=()):
        self.gpu = gpu
        self.broken = broken
        self.sources = {}
        self.numbers = itertools.count()

    def submit(self, source, arch):
        future = Future()
        if source.text not in self.sources:
            entry = "copy" if source.entry == "copy" else f"kernel {next(self.numbers)}"
            self.gpu.kernels.setdefault(entry, copy if entry == "copy" else right)
            self.sources[source.text] = entry
        entry = self.sources[source.text]
        if entry in self.broken:
            future.set_exception(StageFailure(Status.COMPILE_ERROR, "no"))
            return future
        resources = Resources(32, 0, 0, 0, 0)
        future.set_result(CompiledKernel(entry, Path("none"), entry, arch, resources, "fake 1.0", 0.0))
        return future


class Child:
    """The worker in this process."""

    def __init__(self, gpu, lt=None):
        lt = lt or FakeCublasLtLibrary(gpu)
        self.worker = Worker(
            gpu,
            lambda: Cublas(7, gpu.allocate(64), gpu.address, FakeCublasLibrary(gpu)),
            lambda: ClockReading(1980, 1980, 40),
            lambda: CublasLt(7, gpu.allocate(64), gpu.address, lt),
        )

    def request(self, message, timeout_s):
        return facts(BOARD) if isinstance(message, Hello) else self.worker.handle(message)

    def kill(self):
        pass

    def close(self):
        pass


@contextlib.contextmanager
def bench_stages(tmp_path, times, *, broken=(), lt=None, kernels=None):
    """Stages, and the pool that says which entry a kernel became; `times` by entry in ms."""
    gpu = BenchGpu(dict(kernels or {}), time_ms=lambda entry, number: times.get(entry, 1.0))
    pool = Pool(gpu, broken)
    library = lt(gpu) if lt else None
    with GpuStages(
        local_gpu(), pool, start_child=lambda env: Child(gpu, library), lock_folder=tmp_path
    ) as stages:
        yield stages, pool

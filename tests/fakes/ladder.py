"""A ladder's stages without GPU and compiler, and with a GPU made of NumPy behind the real ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from fakes.cublas import FakeCublasLibrary, FakeCublasLtLibrary
from fakes.devices import facts
from fakes.gpu import FakeGpu, right
from fakes.stages import RESOURCES, measurement

from autotune.candidate import Candidate, CompiledKernel, Runnable, Source
from autotune.device.cublas import Cublas
from autotune.device.cublaslt import CublasLt
from autotune.device.local import LocalGpu
from autotune.device.messages import Hello
from autotune.device.stages import GpuStages
from autotune.device.worker import Worker
from autotune.errors import StageFailure
from autotune.gpu_tables import find_gpu
from autotune.protocol import Protocol
from autotune.records import Accuracy, DeviceIdentity, Environment, Origin, Status
from autotune.trial import Timed

BOARD = "0000:18:00"


@dataclass
class FakeLadderStages:
    """Times are planted by kernel; the vendor takes a millisecond."""

    time_of: Callable[[Candidate], float]
    wrong: Sequence[str] = ()
    """Kernels whose results are wrong."""
    origin: Origin = Origin.MEASURED
    compared: list[list[str]] = field(default_factory=list)
    tried: list[Candidate] = field(default_factory=list)

    def compile(self, candidate: Candidate, source: Source) -> CompiledKernel:
        key = f"{candidate.spec.name} {candidate.problem.label} {candidate.config.key}"
        return CompiledKernel(key, Path("/nowhere"), source.entry, candidate.gpu.arch, RESOURCES, "fake", 0.0)

    def verify(self, candidate: Candidate, run: Runnable) -> Accuracy | None:
        if candidate.spec.name in self.wrong:
            raise StageFailure(Status.WRONG_RESULT, "C[0, 0] is nan")
        return Accuracy(0.5, 1.0, 1)

    def measure(self, candidate: Candidate, run: Runnable, best_ms: float | None) -> Timed:
        self.tried.append(candidate)
        return Timed(measurement(self.time_of(candidate)))

    def compare_runs(self, runs: Sequence[Runnable], *, vendor: bool = False) -> list[Timed]:
        self.compared.append([run.kernel.key.split()[0] for run in runs])
        by_key = {self.compile(each, _source(each)).key: each for each in self.tried}
        times = [Timed(measurement(self.time_of(by_key[run.kernel.key]))) for run in runs]
        return times + [Timed(measurement(2.7), notes=("a library",))] * vendor


def _source(candidate: Candidate) -> Source:
    return Source("", candidate.spec.entry, Path())


def h200_board() -> LocalGpu:
    """A board of the table's kind that is not there."""
    gpu = find_gpu("h200")
    identity = DeviceIdentity("h200", gpu.name, "9.0", gpu.sm_count, gpu.memory_bytes)
    return LocalGpu(gpu, identity, Environment("580.1", "13.0", "13.0", "0.1.0"), "GPU-aa", BOARD, 0, False)


class _Pool:
    workers = 1

    def submit(self, source: Source, arch: str) -> Future[CompiledKernel]:
        future: Future[CompiledKernel] = Future()
        future.set_result(
            CompiledKernel(source.text, Path("/nowhere"), source.entry, arch, RESOURCES, "fake", 0.0)
        )
        return future


class _Child:
    def __init__(self, worker: Worker) -> None:
        self.worker = worker

    def request(self, message: object, timeout_s: float) -> object:
        return facts(BOARD) if isinstance(message, Hello) else self.worker.handle(message)

    def kill(self) -> None:
        pass

    close = kill


def _copy(gpu, launch, addresses):
    source, target = (gpu.at(addresses[plan.name], 4 * plan.shape[0]) for plan in launch.buffers)
    target[:] = source


def numpy_stages(entries: Sequence[str], lock_folder: Path, protocol: Protocol) -> GpuStages:
    """The real stages and worker on a GPU made of NumPy, where every kernel is right."""
    kernels = {**dict.fromkeys(entries, right), "ffma_peak": _copy}
    gpu = FakeGpu(kernels, time_ms=lambda entry, _: 5.0 if entry == "ffma_peak" else 3.0, memory_bytes=2**34)
    worker = Worker(
        gpu,
        lambda: Cublas(7, gpu.allocate(64), gpu.address, FakeCublasLibrary(gpu)),
        lambda: None,
        lambda: CublasLt(7, gpu.allocate(64), gpu.address, FakeCublasLtLibrary(gpu)),
    )
    assert gpu.xp is np
    return GpuStages(
        h200_board(), _Pool(), protocol, start_child=lambda env: _Child(worker), lock_folder=lock_folder
    )

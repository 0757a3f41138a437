"""A GPU made of NumPy: kernels are Python functions, time is planted, and what is queued runs at once."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from autotune.candidate import BufferPlan, CompiledKernel, LaunchPlan, Runnable, ScalarPlan
from autotune.device.messages import KernelFacts
from autotune.device.sampling import BusyTime
from autotune.errors import StageFailure
from autotune.gpu import GpuSpec
from autotune.problem import Problem
from autotune.records import Resources, Status

Kernel = Callable[["FakeGpu", LaunchPlan, Mapping[str, int]], None]
"""Gets the device, the launch and the addresses; writes through `FakeGpu.at`."""

GPU = GpuSpec(
    table="fake",
    name="Fake GPU",
    compute_capability=(9, 0),
    sm_count=10,
    fp32_lanes_per_sm=128,
    max_clock_mhz=1000,
    memory_bytes=2**30,
    memory_gbps=100.0,
    l2_bytes=2**20,
    smem_per_sm_bytes=233_472,
    smem_per_block_bytes=232_448,
    smem_reserved_bytes=1024,
    registers_per_sm=65_536,
    max_registers_per_thread=255,
    max_threads_per_sm=2048,
    max_threads_per_block=1024,
    max_blocks_per_sm=32,
)


@dataclass
class FakeGpu:
    """See `autotune.device.gpu_device.GpuDevice`."""

    kernels: dict[str, Kernel] = field(default_factory=dict)
    """By entry name."""
    time_ms: Callable[[str, int], float] = lambda entry, number: 1.0
    """GPU time of the n-th launch of an entry."""
    host_us_per_call: float = 0.0
    """GPU idles this long before each call that is queued singly."""
    l2_bytes: int = 2**20
    memory_gbps: float = 100.0
    memory_bytes: int = 2**30
    xp = np

    def __post_init__(self) -> None:
        self.clock_ms = 0.0
        self.busy = BusyTime()
        self.blocks: list[np.ndarray] = []
        self.launches: list[tuple[str, dict[str, int]]] = []
        self.counts: Counter[str] = Counter()
        self.loaded_now = 0
        self.flushed = 0
        self.log: list[str] = []
        self._capturing: list[Callable[[], None]] | None = None

    def allocate(self, nbytes: int) -> np.ndarray:
        raw = np.empty(nbytes + 256, np.uint8)
        start = -raw.ctypes.data % 256
        block = raw[start : start + nbytes]
        self.blocks.append(block)
        return block

    def address(self, array: np.ndarray) -> int:
        return int(array.ctypes.data)

    def at(self, address: int, nbytes: int) -> np.ndarray:
        """The device's memory at an address, checked against its blocks."""
        for block in reversed(self.blocks):
            offset = address - block.ctypes.data
            if offset >= 0 and offset + nbytes <= block.size:
                return block[offset : offset + nbytes]
        raise StageFailure(Status.CRASHED, "running: illegal address")

    def array(self, launch: LaunchPlan, addresses: Mapping[str, int], name: str) -> np.ndarray:
        """An argument as a table that its rows' pitch cuts."""
        plan = next(plan for plan in launch.buffers if plan.name == name)
        item = np.dtype(plan.dtype).itemsize
        rows, columns = plan.shape
        flat = self.at(addresses[name], rows * plan.pitch * item).view(plan.dtype)
        return flat.reshape(rows, plan.pitch)[:, :columns]

    @contextlib.contextmanager
    def loaded(self, kernel: CompiledKernel) -> Iterator[str]:
        self.loaded_now += 1
        try:
            yield kernel.entry
        finally:
            self.loaded_now -= 1

    def bind(self, function: object, launch: LaunchPlan, addresses: Mapping[str, int]) -> Callable[[], None]:
        entry, kept = str(function), dict(addresses)

        def queue() -> None:
            if self._capturing is not None:
                self._capturing.append(lambda: self._run(entry, launch, kept))
                return
            self.clock_ms += self.host_us_per_call / 1000
            self._run(entry, launch, kept)

        return queue

    def _run(self, entry: str, launch: LaunchPlan, addresses: dict[str, int]) -> None:
        number = self.counts[entry]
        self.counts[entry] += 1
        self.launches.append((entry, addresses))
        self.log.append(entry)
        self.clock_ms += self.time_ms(entry, number)
        if entry in self.kernels:
            self.kernels[entry](self, launch, addresses)

    def inspect(self, function: object, launch: LaunchPlan) -> KernelFacts:
        return KernelFacts(2, 32, 0, 0, 1024)

    @contextlib.contextmanager
    def graph(self, queue: Callable[[], None]) -> Iterator[Callable[[], None]]:
        self._capturing = captured = []
        queue()
        self._capturing = None

        def replay() -> None:
            for call in captured:
                call()

        yield replay

    def mark(self) -> object:
        self.log.append("mark")
        return self.clock_ms

    def elapsed_ms(self, start: object, end: object) -> float:
        return float(end) - float(start)  # type: ignore[arg-type]

    def flush(self, nbytes: int) -> None:
        self.flushed += nbytes
        self.log.append("flush")
        self.clock_ms += nbytes / self.memory_gbps / 1e6

    def synchronize(self) -> None:
        self.log.append("sync")
        self.busy.note(self.now(), self.now())

    def now(self) -> float:
        return self.clock_ms / 1000

    def free_bytes(self) -> int:
        return self.memory_bytes

    def release(self) -> None:
        self.blocks = self.blocks[-64:]


def buffer(name: str, role: str, shape: tuple[int, ...], pitch: int = 0, offset: int = 0) -> BufferPlan:
    return BufferPlan(name, role, shape, "float32", pitch or max(1, shape[-1]), offset)


def gemm_launch(
    m: int, n: int, k: int, beta: float = 0.0, pad: int = 0, offset: int = 0, alpha: float = 1.0
) -> LaunchPlan:
    return LaunchPlan(
        (0 if m * n == 0 else 1, 1, 1),
        (32, 1, 1),
        0,
        (
            ScalarPlan("M", "int32", m),
            ScalarPlan("N", "int32", n),
            ScalarPlan("K", "int32", k),
            ScalarPlan("alpha", "float32", alpha),
            buffer("A", "in", (m, k), k + pad, offset),
            buffer("B", "in", (k, n), n + pad, offset),
            ScalarPlan("beta", "float32", beta),
            buffer("C", "inout", (m, n), n + pad, offset),
        ),
    )


def runnable(
    launch: LaunchPlan,
    entry: str = "right",
    reference: object = "matmul",
    flops: float = 1.0,
    moved: float = 1.0,
) -> Runnable:
    resources = Resources(32, 0, 0, 0, 0)
    kernel = CompiledKernel("key", Path("kernel.cubin"), entry, "sm_90", resources, "fake 1.0", 0.1)
    sizes = tuple((plan.name, int(plan.value)) for plan in launch.arguments if plan.name in ("M", "N", "K"))
    return Runnable(kernel, launch, Problem(sizes, "float32"), reference, flops, moved)


def right(gpu: FakeGpu, launch: LaunchPlan, addresses: Mapping[str, int]) -> None:
    """C = alpha A B + beta C, as BLAS defines it."""
    values = {plan.name: plan.value for plan in launch.arguments if isinstance(plan, ScalarPlan)}
    a, b, c = (gpu.array(launch, addresses, name) for name in "ABC")
    alpha, beta = values["alpha"], values["beta"]
    product = np.float32(alpha) * (a @ b) if alpha else np.zeros(c.shape, np.float32)
    c[...] = product + np.float32(beta) * c if beta else product

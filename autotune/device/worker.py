"""The process that owns one GPU: `python -m autotune.device.worker`, started and watched by `autotune.device.stages`.

It keeps the data and the reference of the latest problems, loads one kernel at a time, and forgets it after
each request. Whatever a kernel does, the parent's state is safe: a hang is killed, a crash ends this process.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from autotune.candidate import LaunchPlan
from autotune.child.serve import serve
from autotune.device.cuda_errors import failure
from autotune.device.gpu_device import GpuDevice
from autotune.device.measure import Bind, BufferSets, compare_calls, measure_call
from autotune.device.messages import (
    Baseline,
    Compare,
    Hello,
    Inspect,
    ListDevices,
    Measure,
    Prepare,
    Stats,
    Verify,
    WorkerStats,
    Workload,
)
from autotune.device.verify import Trap, verify_run
from autotune.errors import InputError, StageFailure
from autotune.records import ClockReading
from autotune.trial import Timed

if TYPE_CHECKING:
    from autotune.device.cublas import Cublas
    from autotune.device.cuda_device import CudaDevice

KEPT_WORKLOADS = 4
KEPT_SHARE = 0.4
"""Largest part of the device's free memory that kept workloads may take, the latest one apart."""


class Worker:
    """Answers requests about one GPU."""

    def __init__(
        self,
        device: GpuDevice,
        vendor: Callable[[], Cublas],
        read_clocks: Callable[[], ClockReading | None],
    ) -> None:
        """`vendor` makes the library's handle when it is first needed."""
        self._device = device
        self._vendor = vendor
        self._read_clocks = read_clocks
        self._traps: OrderedDict[Workload, Trap] = OrderedDict()
        self._sets: dict[Workload, BufferSets] = {}
        self._cublas: Cublas | None = None
        self.requests = 0

    def handle(self, message: object) -> object:
        """The answer to one message; raises StageFailure where a kernel fails in any way."""
        self.requests += 1
        match message:
            case Prepare(workload=workload):
                self._trap(workload)
                return None
            case Verify(run=run, workload=workload):
                return verify_run(self._device, run, self._trap(workload))
            case Measure():
                return self._measure(message)
            case Compare():
                return self._compare(message)
            case Baseline(workload=workload, protocol=protocol):
                timed = measure_call(
                    self._device,
                    self._routine(workload),
                    self._buffers(workload),
                    protocol,
                    read_clocks=self._read_clocks,
                )
                return self._with_vendor_notes(timed)
            case Inspect(run=run):
                with self._device.loaded(run.kernel) as function:
                    return self._device.inspect(function, run.launch)
        raise TypeError(f"not a request: {message!r}")

    def _measure(self, message: Measure) -> Timed:
        with self._device.loaded(message.run.kernel) as function:
            return measure_call(
                self._device,
                lambda addresses: self._device.bind(function, message.run.launch, addresses),
                self._buffers(message.workload),
                message.protocol,
                message.best_ms,
                self._read_clocks,
            )

    def _compare(self, message: Compare) -> list[Timed]:
        with ExitStack() as stack:
            contestants: list[tuple[Bind, BufferSets]] = []
            kept = {workload: self._buffers(workload, alone=False) for workload in message.workloads}
            for run, workload in zip(message.runs, message.workloads, strict=True):
                function = stack.enter_context(self._device.loaded(run.kernel))
                contestants.append((_bind(self._device, function, run.launch), kept[workload]))
            if message.baseline:
                first = message.workloads[0]
                contestants.append((self._routine(first), kept[first]))
            times = compare_calls(self._device, contestants, message.protocol, self._read_clocks)
        if message.baseline:
            times[-1] = self._with_vendor_notes(times[-1])
        return times

    def _trap(self, workload: Workload) -> Trap:
        trap = self._traps.pop(workload, None)
        if trap is None:
            self._make_room()
            trap = Trap(self._device, workload)
            with contextlib.suppress(StageFailure):
                # The array library compiles its parts on first use: now, not within a kernel's time limit.
                trap.reset()
                trap.check()
            self._device.synchronize()
            self._device.release()
        self._traps[workload] = trap
        return trap

    def _make_room(self) -> None:
        """Forgets the oldest problems, so that memory stays bounded however many are asked for."""
        self._sets.clear()
        allowed = self._device.free_bytes() * KEPT_SHARE
        while self._traps and (
            len(self._traps) >= KEPT_WORKLOADS or sum(trap.nbytes for trap in self._traps.values()) > allowed
        ):
            self._traps.popitem(last=False)
        self._device.release()

    def _buffers(self, workload: Workload, *, alone: bool = True) -> BufferSets:
        """The measuring buffers of a workload; those of others are dropped where it is measured alone."""
        sets = self._sets.get(workload)
        if sets is None:
            if alone:
                self._sets.clear()
                self._device.release()
            sets = self._sets[workload] = BufferSets(self._device, workload)
        return sets

    def _routine(self, workload: Workload) -> Bind:
        if self._cublas is None:
            self._cublas = self._vendor()
        cublas = self._cublas
        return lambda addresses: cublas.bind(workload, addresses)

    def _with_vendor_notes(self, timed: Timed) -> Timed:
        assert self._cublas is not None
        return Timed(timed.measurement, timed.dropped, self._cublas.notes + timed.notes)


def _bind(device: GpuDevice, function: object, launch: LaunchPlan) -> Bind:
    return lambda addresses: device.bind(function, launch, addresses)


class _Process:
    """The worker process's state: CUDA starts with the first request that needs it."""

    def __init__(self) -> None:
        self._device: CudaDevice | None = None
        self._worker: Worker | None = None

    def handle(self, message: object) -> object:
        """The answer to one message."""
        if isinstance(message, ListDevices):
            from autotune.device.local import describe_devices

            return describe_devices()
        device, worker = self._started()
        if isinstance(message, Hello):
            return device.facts
        if isinstance(message, Stats):
            return WorkerStats(device.used_bytes(), _resident_bytes(), worker.requests)
        try:
            return worker.handle(message)
        except MemoryError as error:  # also what CuPy raises for the device's memory
            rule = f"the problem does not fit into the memory of {device.facts.name}: {error}"
            raise InputError(rule, key="size") from None
        except device.cuda_errors as error:  # an array operation met what a kernel left behind
            raise failure(error, "checking the result") from None

    def _started(self) -> tuple[CudaDevice, Worker]:
        if self._device is None or self._worker is None:
            from autotune.device.cuda_device import CudaDevice
            from autotune.device.local import describe_device
            from autotune.device.nvml import clock_reader

            device = CudaDevice(describe_device(0))
            self._worker = Worker(device, lambda: _open_cublas(device), clock_reader(device.facts.pci_bus_id))
            self._device = device
        return self._device, self._worker


def _open_cublas(device: CudaDevice) -> Cublas:
    from autotune.device.cublas import WORKSPACE_BYTES, Cublas

    return Cublas(device.stream, device.allocate(WORKSPACE_BYTES), device.address)


def _resident_bytes() -> int:
    import psutil

    return int(psutil.Process().memory_info().rss)


def main() -> None:
    """Serves requests until the parent goes away."""
    serve(_Process().handle)


if __name__ == "__main__":
    main()

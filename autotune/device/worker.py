"""The process that owns one GPU: `python -m autotune.device.worker`, started and watched by `autotune.device.stages`.

It keeps the data and the references of the latest problems as far as memory goes, and the latest kernel: what is
verified next is measured, on one size after the other. Whatever a kernel does, the parent's state is safe: a hang is
killed, a crash ends this process.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING

from autotune.candidate import CompiledKernel, LaunchPlan
from autotune.child.serve import serve
from autotune.device.cuda_errors import failure
from autotune.device.gpu_device import GpuDevice
from autotune.device.measure import Bind, BufferSets, compare_calls, measure_call
from autotune.device.messages import (
    CUBLAS,
    CUBLASLT,
    Baseline,
    ChooseRoutine,
    Compare,
    Hello,
    Inspect,
    ListDevices,
    Measure,
    Prepare,
    Routine,
    RoutineChoice,
    Stats,
    Verify,
    VerifyRoutine,
    WorkerStats,
    Workload,
)
from autotune.device.scratch import Scratch
from autotune.device.verify import Trap, verify_call, verify_run
from autotune.errors import InputError, StageFailure
from autotune.records import ClockReading, Status
from autotune.trial import Timed

if TYPE_CHECKING:
    from autotune.device.cublas import Cublas
    from autotune.device.cublaslt import CublasLt, LtCandidate
    from autotune.device.cuda_device import CudaDevice

KEPT_WORKLOADS = 64
KEPT_SHARE = 0.4
"""Largest part of the device's free memory that kept workloads may take, the latest one apart."""


class Worker:
    """Answers requests about one GPU."""

    def __init__(
        self,
        device: GpuDevice,
        vendor: Callable[[], Cublas],
        read_clocks: Callable[[], ClockReading | None],
        vendor_lt: Callable[[], CublasLt],
    ) -> None:
        """`vendor` and `vendor_lt` make the libraries' handles when they are first needed."""
        self._device = device
        self._vendor = cache(vendor)
        self._vendor_lt = cache(vendor_lt)
        self._read_clocks = read_clocks
        self._traps: OrderedDict[Workload, Trap] = OrderedDict()
        self._sets: OrderedDict[Workload, BufferSets] = OrderedDict()
        self._latest: tuple[CompiledKernel, object] | None = None
        self._kept = ExitStack()
        self.requests = 0

    def handle(self, message: object) -> object:
        """The answer to one message; raises StageFailure where a kernel fails in any way."""
        self.requests += 1
        match message:
            case Prepare(workload=workload):
                self._trap(workload)
                return tuple(self._traps)
            case Verify(run=run, workload=workload):
                return verify_run(self._device, run, self._trap(workload), self._loaded)
            case Measure():
                return self._measure(message)
            case Compare():
                return self._compare(message)
            case VerifyRoutine(routine=routine, workload=workload):
                return verify_call(self._device, self._routine(routine, workload), self._trap(workload))
            case ChooseRoutine():
                return self._choose(message)
            case Baseline(workload=workload, protocol=protocol):
                timed = measure_call(
                    self._device,
                    self._routine(CUBLAS, workload),
                    self._buffers(workload),
                    protocol,
                    read_clocks=self._read_clocks,
                )
                return self._with_notes(CUBLAS, timed)
            case Inspect(run=run):
                with self._device.loaded(run.kernel) as function:
                    return self._device.inspect(function, run.launch)
        raise TypeError(f"not a request: {message!r}")

    def _measure(self, message: Measure) -> Timed:
        with self._loaded(message.run.kernel) as function:
            return measure_call(
                self._device,
                _bind(
                    self._device, function, message.run.launch, Scratch(self._device, [message.run.launch])
                ),
                self._buffers(message.workload),
                message.protocol,
                message.best_ms,
                self._read_clocks,
            )

    @contextlib.contextmanager
    def _loaded(self, kernel: CompiledKernel) -> Iterator[object]:
        """The function of a kernel that stays loaded until another one is asked for."""
        if self._latest is None or self._latest[0] != kernel:
            self._latest = None
            self._kept.close()
            self._latest = kernel, self._kept.enter_context(self._device.loaded(kernel))
        yield self._latest[1]

    def _compare(self, message: Compare) -> list[Timed]:
        with ExitStack() as stack:
            contestants: list[tuple[Bind, BufferSets]] = []
            scratch = Scratch(self._device, [run.launch for run in message.runs])
            kept = {workload: self._buffers(workload, alone=False) for workload in message.workloads}
            for run, workload in zip(message.runs, message.workloads, strict=True):
                function = stack.enter_context(self._device.loaded(run.kernel))
                contestants.append((_bind(self._device, function, run.launch, scratch), kept[workload]))
            for routine in message.routines:
                first = message.workloads[0]
                contestants.append((self._routine(routine, first), kept[first]))
            times = compare_calls(self._device, contestants, message.protocol, self._read_clocks)
        runs = len(message.runs)
        named = zip(message.routines, times[runs:], strict=True)
        return times[:runs] + [self._with_notes(routine, timed) for routine, timed in named]

    def _choose(self, message: ChooseRoutine) -> RoutineChoice:
        workload, library = message.workload, self._vendor_lt()
        sets = self._buffers(workload)
        tried: list[tuple[str, float | None]] = []
        best: tuple[float, LtCandidate] | None = None
        for candidate in library.candidates(workload, sets.addresses(0), message.count):
            routine = Routine(CUBLASLT, candidate.algorithm)
            try:
                timed = measure_call(
                    self._device,
                    self._routine(routine, workload),
                    sets,
                    message.protocol,
                    best[0] if best else None,
                    self._read_clocks,
                )
            except StageFailure as failure:
                if failure.status is not Status.LAUNCH_ERROR:
                    raise
                tried.append((candidate.text, None))
                continue
            time_ms = timed.measurement.time_ms
            tried.append((candidate.text, time_ms))
            if best is None or time_ms < best[0]:
                best = time_ms, candidate
        if best is None:
            raise StageFailure(Status.LAUNCH_ERROR, f"cublasLt refuses all of its {len(tried)} candidates")
        chosen = best[1]
        note = (
            f"cublasLt {library.version} in FP32, fastest of {len(tried)} candidates of its heuristic: "
            f"{chosen.text}, {chosen.workspace_bytes} B of workspace"
        )
        return RoutineChoice(Routine(CUBLASLT, chosen.algorithm, (note,)), tuple(tried))

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
        """The measuring buffers of a workload; the oldest ones of others go where it is measured alone."""
        sets = self._sets.pop(workload, None)
        if sets is None:
            if alone:
                self._make_room_for_sets()
            sets = BufferSets(self._device, workload)
        self._sets[workload] = sets
        return sets

    def _make_room_for_sets(self) -> None:
        allowed = self._device.free_bytes() * KEPT_SHARE
        while self._sets and (
            len(self._sets) >= KEPT_WORKLOADS or sum(sets.nbytes for sets in self._sets.values()) > allowed
        ):
            self._sets.popitem(last=False)
        self._device.release()

    def _routine(self, routine: Routine, workload: Workload) -> Bind:
        if routine.name == CUBLASLT:
            library = self._vendor_lt()
            return lambda addresses: library.bind(workload, routine.algorithm, addresses)
        cublas = self._vendor()
        return lambda addresses: cublas.bind(workload, addresses)

    def _with_notes(self, routine: Routine, timed: Timed) -> Timed:
        how = routine.notes or self._vendor().notes
        return Timed(timed.measurement, timed.dropped, how + timed.notes)


def _bind(device: GpuDevice, function: object, launch: LaunchPlan, scratch: Scratch) -> Bind:
    # The scratch memory lives as long as what is returned: its address alone would not keep it.
    return lambda addresses: device.bind(function, launch, {**addresses, **scratch.addresses(launch)})


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
            self._worker = Worker(
                device,
                lambda: _open_cublas(device),
                clock_reader(device.facts.pci_bus_id),
                lambda: _open_cublaslt(device),
            )
            self._device = device
        return self._device, self._worker


def _open_cublas(device: CudaDevice) -> Cublas:
    from autotune.device.cublas import WORKSPACE_BYTES, Cublas

    return Cublas(device.stream, device.allocate(WORKSPACE_BYTES), device.address)


def _open_cublaslt(device: CudaDevice) -> CublasLt:
    from autotune.device.cublas import WORKSPACE_BYTES
    from autotune.device.cublaslt import CublasLt

    return CublasLt(device.stream, device.allocate(WORKSPACE_BYTES), device.address)


def _resident_bytes() -> int:
    import psutil

    return int(psutil.Process().memory_info().rss)


def main() -> None:
    """Serves requests until the parent goes away."""
    serve(_Process().handle)


if __name__ == "__main__":
    main()

"""The stages of a trial on a real GPU: compiling in a pool, verifying and measuring in the GPU's worker.

    compile   compile pool, any number of processes
    verify    worker: data and reference are prepared first, without the kernel's time limit
    measure   worker

A worker that hangs is killed; one whose context is lost is replaced. The next request goes to a fresh one,
which starts only after the old one is gone and with it whatever ran on the GPU.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Protocol, TypeVar

from autotune.candidate import Candidate, Runnable, ScalarPlan
from autotune.child.errors import ChildDied, ChildFailure, ChildRaised, ChildTimeout
from autotune.compile.ahead import CompileAhead
from autotune.compile.pool import CompilePool
from autotune.device.cuda_errors import WATCHDOG_HINT
from autotune.device.local import WORKER, LocalGpu
from autotune.device.lock import device_lock
from autotune.device.measure import refuse_implausible
from autotune.device.messages import (
    CUBLAS,
    Baseline,
    ChooseRoutine,
    Compare,
    DeviceFacts,
    Hello,
    Inspect,
    KernelFacts,
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
from autotune.errors import GpuUnavailable, StageFailure
from autotune.launch import plan_launch
from autotune.problem import Problem
from autotune.protocol import Protocol as Timing
from autotune.records import Accuracy, Origin, Status
from autotune.references import check_importable
from autotune.spec.kernel_spec import KernelSpec
from autotune.trial import Compared, Timed, VendorTime

HELLO_LIMIT_S = 120.0
"""For making a CUDA context, which takes long on machines with many GPUs."""
PREPARE_LIMIT_S = 120.0
"""For data and reference, which a problem pays once."""
WATCHDOG_LIMIT_S = 1.8
"""Verifying is stopped after this where a display watchdog would reset the GPU a moment later."""
STARTS = 3
"""Attempts at a fresh worker before the GPU counts as lost."""
AHEAD = 4
"""Candidates in flight beyond the pool's processes: ready to be measured, or waiting to be compiled."""

VENDOR = "cublas"

Reply = TypeVar("Reply")


class Child(Protocol):
    """What is needed of a `ChildProcess`."""

    def request(self, message: object, timeout_s: float) -> object:
        """The reply to one message."""
        ...

    def kill(self) -> None:
        """Ends the process at once, from any thread: a request under way fails."""
        ...

    def close(self) -> None:
        """Ends the process and waits until it is gone."""
        ...


class GpuStages(CompileAhead):
    """The real thing; see `autotune.trial.Stages`. A context manager, since it owns a process."""

    origin = Origin.MEASURED

    def __init__(
        self,
        gpu: LocalGpu,
        pool: CompilePool,
        protocol: Timing | None = None,
        *,
        start_child: Callable[[Mapping[str, str]], Child] | None = None,
        lock_folder: Path | None = None,
    ) -> None:
        """The worker starts with the first request; `start_child` gets its environment."""
        super().__init__(pool, pool.workers + AHEAD)
        self.gpu = gpu
        self.protocol = protocol or Timing()
        self._start_child = start_child or _start_worker
        self._lock_folder = lock_folder
        self._turn = threading.Lock()
        self._child: Child | None = None
        self._prepared: set[Workload] = set()
        self.restarts = 0
        """How many workers have been replaced."""

    def verify(self, candidate: Candidate, run: Runnable) -> Accuracy:
        """The worst error of one run on guarded buffers; raises StageFailure."""
        return self.verify_run(run)

    def verify_run(
        self, run: Runnable, data: str = "", values: Mapping[str, float | int] | None = None
    ) -> Accuracy:
        """Like `verify`, with other data or other scalar values than the protocol and the launch have."""
        check_importable(run.reference)
        if values:
            run = run_with_values(run, values)
        workload = Workload.of(run, self.protocol, data)
        limit = self.protocol.run_limit_s
        if self.gpu.watchdog:
            limit = min(limit, WATCHDOG_LIMIT_S)
        with self._locked():
            self._prepare(workload)
            return self._ask(Verify(run, workload), Accuracy, limit)

    def measure(self, candidate: Candidate, run: Runnable, best_ms: float | None) -> Timed:
        """The samples under the protocol; raises StageFailure, also where the time is not possible."""
        timed = self.measure_run(run, best_ms)
        refuse_implausible(run, candidate.gpu, timed.measurement, self.protocol)
        return timed

    def measure_run(
        self, run: Runnable, best_ms: float | None = None, protocol: Timing | None = None
    ) -> Timed:
        """Like `measure`, without holding the time against the GPU's limits, and under any protocol."""
        timing = protocol or self.protocol
        message = Measure(run, Workload.of(run, timing), timing, best_ms)
        with self._locked():
            return self._ask(message, Timed, timing.run_limit_s)

    def compare(self, runs: Sequence[Runnable]) -> Compared:
        """The runs measured in turn, with cuBLAS among them for FP32 matrix products."""
        vendor = bool(runs) and _has_vendor_routine(runs[0].reference, runs[0].problem)
        times = self.compare_runs(runs, vendor=vendor)
        theirs = VendorTime(VENDOR, times[-1].measurement, times[-1].notes) if vendor else None
        return Compared(tuple(timed.measurement for timed in times[: len(runs)]), theirs)

    def compare_runs(
        self,
        runs: Sequence[Runnable],
        *,
        vendor: bool = False,
        routines: Sequence[Routine] = (),
        protocol: Timing | None = None,
    ) -> list[Timed]:
        """Like `compare` with notes; libraries' routines, cuBLAS behind them with `vendor`, come last in the list."""
        timing = protocol or self.protocol
        workloads = tuple(Workload.of(run, timing) for run in runs)
        asked = (*routines, CUBLAS) if vendor else tuple(routines)
        with self._locked():
            message = Compare(tuple(runs), workloads, timing, asked)
            return self._ask(message, list, timing.run_limit_s * (len(runs) + len(asked)))

    def verify_routine(self, routine: Routine, run: Runnable) -> Accuracy:
        """The worst error of a library's routine on the problem of a run; raises StageFailure."""
        workload = Workload.of(run, self.protocol)
        with self._locked():
            self._prepare(workload)
            return self._ask(VerifyRoutine(routine, workload), Accuracy, HELLO_LIMIT_S)

    def choose_routine(self, run: Runnable, protocol: Timing, count: int) -> RoutineChoice:
        """The fastest of cuBLASLt's first `count` candidates for the problem of a run; raises StageFailure."""
        message = ChooseRoutine(Workload.of(run, protocol), protocol, count)
        with self._locked():
            return self._ask(message, RoutineChoice, HELLO_LIMIT_S + count * protocol.run_limit_s)

    def baseline(self, spec: KernelSpec, problem: Problem) -> VendorTime | None:
        """cuBLAS on the same problem and protocol; None for kernels that are no FP32 matrix product."""
        if not _has_vendor_routine(spec.reference, problem):
            return None
        launch = plan_launch(spec, problem, spec.default_config(self.gpu.spec.table), self.gpu.spec)
        workload = Workload.of_launch(launch, spec.reference, self.protocol)
        with self._locked():
            timed = self._ask(Baseline(workload, self.protocol), Timed, self.protocol.run_limit_s)
        return VendorTime(VENDOR, timed.measurement, timed.notes)

    def inspect(self, run: Runnable) -> KernelFacts:
        """What the driver says of a compiled kernel and its launch, its own occupancy among it."""
        with self._locked():
            return self._ask(Inspect(run), KernelFacts, self.protocol.run_limit_s)

    def stats(self) -> WorkerStats:
        """Memory that the worker and the device use now."""
        with self._locked():
            return self._ask(Stats(), WorkerStats, HELLO_LIMIT_S)

    def close(self) -> None:
        """Ends the worker and what another thread has running on it; the pool belongs to whoever made it."""
        if (child := self._child) is not None:
            child.kill()
        with self._turn:
            self._discard()

    def __enter__(self) -> GpuStages:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """This process's turn and the machine's lock on the board, in this order."""
        with self._turn, device_lock(self.gpu.pci_bus_id, self._lock_folder):
            yield

    def _prepare(self, workload: Workload) -> None:
        """Makes sure that the worker has a workload's data and reference."""
        if workload not in self._prepared:
            self._prepared = set(self._ask(Prepare(workload), tuple, PREPARE_LIMIT_S))

    def _ask(self, message: object, kind: type[Reply], timeout_s: float) -> Reply:
        child = self._ready_child()
        try:
            reply = child.request(message, timeout_s)
        except StageFailure as failure:
            if failure.status in (Status.CRASHED, Status.TIMEOUT):  # the context is lost
                self._discard()
            raise
        except ChildFailure as failure:
            self._discard()
            raise self._stage_failure(failure, message) from failure
        except BaseException:
            # An interrupt leaves a kernel running and a reply under way; errors of any other kind are rare
            # enough for a fresh start.
            self._discard()
            raise
        assert isinstance(reply, kind), f"{type(message).__name__} got {type(reply).__name__}"
        return reply

    def _ready_child(self) -> Child:
        if self._child is not None:
            return self._child
        for attempt in range(STARTS):
            child = self._start_child(self.gpu.worker_env())
            try:
                facts = child.request(Hello(), HELLO_LIMIT_S)
            except ChildFailure as failure:
                child.close()
                if attempt + 1 == STARTS or isinstance(failure, ChildRaised):
                    raise GpuUnavailable(f"no worker starts on {self.gpu.spec.name}: {failure}") from failure
            except BaseException:
                child.close()
                raise
            else:
                assert isinstance(facts, DeviceFacts)
                if facts.pci_bus_id != self.gpu.pci_bus_id:
                    child.close()
                    raise GpuUnavailable(
                        f"asked for the GPU at {self.gpu.pci_bus_id}, got the one at {facts.pci_bus_id}"
                    )
                self._child = child
                return child
        raise AssertionError("unreachable")

    def _discard(self) -> None:
        """Ends the worker and waits for it: closing returns when the process, and its GPU work, is gone."""
        if self._child is not None:
            self._child.close()
            self._child = None
            self._prepared.clear()
            self.restarts += 1

    def _stage_failure(self, failure: ChildFailure, message: object) -> StageFailure:
        act = {Prepare: "preparing data and reference", Verify: "the kernel"}.get(type(message), "measuring")
        hint = f"; {WATCHDOG_HINT}" if self.gpu.watchdog else ""
        if isinstance(failure, ChildTimeout):
            return StageFailure(
                Status.TIMEOUT, f"{act} took longer than {failure.timeout_s:g} s and was killed{hint}"
            )
        said = failure.output.strip().splitlines()[-1:] if isinstance(failure, ChildDied) else []
        return StageFailure(Status.CRASHED, ": ".join([f"{act}: the GPU's worker process {failure}", *said]))


def run_with_values(run: Runnable, values: Mapping[str, float | int]) -> Runnable:
    """The same run with some scalar arguments replaced."""
    arguments = tuple(
        replace(argument, value=values[argument.name])
        if isinstance(argument, ScalarPlan) and argument.name in values
        else argument
        for argument in run.launch.arguments
    )
    return replace(run, launch=replace(run.launch, arguments=arguments))


def _has_vendor_routine(reference: object, problem: Problem) -> bool:
    return reference == "matmul" and problem.dtype == "float32"


def _start_worker(env: Mapping[str, str]) -> Child:
    from autotune.child.process import ChildProcess

    return ChildProcess(WORKER, env=env)

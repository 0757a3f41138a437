"""Compiles in several processes; a compiler that hangs, crashes or eats all memory costs one trial."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from autotune.candidate import CompiledKernel, Source
from autotune.child.errors import ChildDied, ChildFailure, ChildRaised, ChildTimeout, ChildTooBig
from autotune.child.process import ChildProcess
from autotune.compile.cache import Cache
from autotune.compile.compiler import DEFAULT_OPTIONS, CompileJob, CompileOptions, excerpt
from autotune.errors import StageFailure
from autotune.records import Status

DEFAULT_TIMEOUT_S = 120.0
DEFAULT_MEMORY_BYTES = 4 << 30
"""Per compiler process with its children; a large unrolled GEMM takes a few hundred MiB."""
MAX_WORKERS = 16
CLOSE_LIMIT_S = 5.0

_Task = tuple["Future[CompiledKernel]", CompileJob]


class CompilePool:
    """Long-lived compiler processes; a thread each here hands out jobs and replaces processes that died."""

    def __init__(
        self,
        workers: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
        cache: Path | None = None,
        compiler: str = "autotune.compile.compiler:compile_source",
        options: CompileOptions = DEFAULT_OPTIONS,
    ) -> None:
        """Processes start with their first jobs; `compiler` names a function called like `compile_source`."""
        self.workers = workers or default_workers()
        self.timeout_s = timeout_s
        self.memory_bytes = memory_bytes
        self._options = replace(options, cache=cache) if cache is not None else options
        self._compiler = compiler
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._unfinished = 0
        self._closed = False
        self._hands = [_Hand(self, number) for number in range(self.workers)]

    def submit(self, source: Source, arch: str) -> Future[CompiledKernel]:
        """The kernel to come.

        The future raises StageFailure where this source fails, another `AutotuneError` where every source
        would (no compiler, wrong architecture), and CancelledError where the pool was closed first.
        """
        future: Future[CompiledKernel] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("the compile pool is closed")
            self._unfinished += 1
            self._tasks.put((future, CompileJob(self._compiler, source, arch, self._options)))
        future.add_done_callback(self._count_finished)
        return future

    @property
    def busy(self) -> int:
        """How many compilations are queued or running."""
        return self._unfinished

    @property
    def worked_s(self) -> float:
        """Seconds that all the processes together have spent on compilations."""
        return sum(hand.worked_s for hand in self._hands)

    def close(self) -> None:
        """Cancels what waits, ends what runs with all its processes, and returns within seconds."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        with contextlib.suppress(queue.Empty):
            while task := self._tasks.get_nowait():
                task[0].cancel()
        for _ in self._hands:
            self._tasks.put(None)
        for hand in self._hands:
            hand.stop()
        deadline = time.monotonic() + CLOSE_LIMIT_S
        for hand in self._hands:
            hand.thread.join(max(0.0, deadline - time.monotonic()))
        if any(hand.worked for hand in self._hands):
            Cache(self._options.cache_folder).prune()

    def __enter__(self) -> CompilePool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _count_finished(self, _: Future[CompiledKernel]) -> None:
        with self._lock:
            self._unfinished -= 1


class _Hand:
    """One thread and the compiler process it looks after."""

    def __init__(self, pool: CompilePool, number: int) -> None:
        self.worked = False
        self._pool = pool
        self._worked_s = 0.0
        self._since: float | None = None
        self._child: ChildProcess | None = None
        self._stopping = threading.Event()
        self._start_lock = threading.Lock()
        # A daemon: a program that ends without closing the pool is not held up, and its children die with it.
        self.thread = threading.Thread(target=self._work, name=f"compile {number}", daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """Ends the compiler process; the thread follows."""
        self._stopping.set()
        with self._start_lock:
            if self._child is not None:
                self._child.kill()

    @property
    def worked_s(self) -> float:
        """Seconds spent on compilations, the present one included."""
        since = self._since
        return self._worked_s + (time.monotonic() - since if since is not None else 0.0)

    def _work(self) -> None:
        while task := self._pool._tasks.get():
            future, job = task
            if not future.set_running_or_notify_cancel():
                continue
            self.worked = True
            began = self._since = time.monotonic()
            try:
                kernel = self._compile(job)
            except BaseException as error:  # noqa: BLE001  the waiting thread gets it, as from any executor
                future.set_exception(CancelledError() if self._stopping.is_set() else error)
            else:
                future.set_result(kernel)
            self._since = None
            self._worked_s += time.monotonic() - began
        if self._child is not None:
            self._child.close()

    def _compile(self, job: CompileJob) -> CompiledKernel:
        child = self._living_child()
        try:
            kernel = child.request(job, self._pool.timeout_s)
        except ChildFailure as failure:
            raise stage_failure(failure) from None
        assert isinstance(kernel, CompiledKernel)
        return kernel

    def _living_child(self) -> ChildProcess:
        with self._start_lock:
            if self._stopping.is_set():
                raise CancelledError
            if self._child is None:
                self._child = ChildProcess("autotune.compile.worker", memory_bytes=self._pool.memory_bytes)
            elif not self._child.alive:
                self._child.restart()
            return self._child


def stage_failure(failure: ChildFailure) -> StageFailure:
    """How a trial is recorded whose compiler failed like this, with a bounded part of what it printed."""
    printed = f"; it printed: {excerpt(failure.output)}" if failure.output.strip() else ""
    if isinstance(failure, ChildTimeout):
        reason = f"the compiler took longer than {failure.timeout_s:g} s{printed}"
        return StageFailure(Status.COMPILE_TIMEOUT, reason)
    if isinstance(failure, ChildTooBig):
        return StageFailure(Status.COMPILE_OOM, f"the compiler's memory: {failure}{printed}")
    if isinstance(failure, ChildRaised):
        status = Status.COMPILE_OOM if failure.kind == "MemoryError" else Status.COMPILE_ERROR
        return StageFailure(status, f"the compiler raised {excerpt(str(failure))}{printed}")
    if isinstance(failure, ChildDied) and (failure.signal_name == "SIGKILL" or "bad_alloc" in failure.output):
        return StageFailure(
            Status.COMPILE_OOM,
            f"the compiler {failure}, as happens when the machine runs out of memory{printed}",
        )
    return StageFailure(Status.COMPILE_ERROR, f"the compiler {failure}{printed}")


def default_workers() -> int:
    """One process per CPU this process may use, less one for measuring where there are more than two."""
    cores = len(os.sched_getaffinity(0))
    return min(MAX_WORKERS, max(cores - 1, min(cores, 2)))

"""The candidates asked for and not yet finished: compiled ahead, and tried by a thread as they become ready.

While that thread keeps the GPU at work, the main one asks for further candidates, renders them, and stores what is
finished. Stages that cannot compile ahead get one candidate at a time, asked for when the last one is told.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from autotune.candidate import Candidate, CompiledKernel, Source
from autotune.compile.ahead import CompilesAhead
from autotune.records import Outcome
from autotune.trial import Stages, begin

Try = Callable[[Candidate, Source | Outcome], Outcome | None]
"""What becomes of a candidate that has been begun; None where it need not be tried any more."""
Finished = tuple[Candidate, Outcome | None]

JOIN_S = 1.0
"""How often a wait looks whether the thread is still alive."""


@dataclass(frozen=True)
class Job:
    """One configuration on one or several problems, which are tried one right after the other."""

    parts: tuple[tuple[Candidate, Source | Outcome], ...]
    compiling: tuple[Future[CompiledKernel], ...]

    @property
    def ready(self) -> bool:
        """Whether nothing is left to wait for."""
        return all(future.done() for future in self.compiling)


class Window:
    """Holds as many jobs as the stages want in flight; one where they cannot compile ahead."""

    def __init__(self, stages: Stages, try_one: Try, clock: Callable[[], float] = time.monotonic) -> None:
        """`try_one` is called by a thread of its own."""
        self._origin = stages.origin
        self._ahead = stages if isinstance(stages, CompilesAhead) else None
        self._try_one = try_one
        self._clock = clock
        self._change = threading.Condition()
        self._waiting: list[Job] = []
        self._finished: list[Finished] = []
        self._open = self._completed = 0
        self._error: BaseException | None = None
        self._closed = False
        self._thread: threading.Thread | None = None
        self._idle_since: float | None = None
        self._idle_s = 0.0
        self.started: float | None = None
        """When the first candidate was tried."""

    def __len__(self) -> int:
        """Jobs that are not finished and taken."""
        return self._open

    @property
    def has_room(self) -> bool:
        """Whether another configuration should be asked for."""
        return len(self) < (max(1, self._ahead.ahead) if self._ahead else 1)

    @property
    def idle_s(self) -> float:
        """Seconds since the first trial in which no candidate was ready."""
        since = self._idle_since
        return self._idle_s + (self._clock() - since if since is not None else 0.0)

    def add(self, candidates: Sequence[Candidate]) -> None:
        """Begins one configuration's trials, and their compiling where the stages can do so early."""
        parts, futures = [], {}
        for candidate in candidates:
            begun = begin(candidate, self._origin)
            parts.append((candidate, begun))
            if self._ahead and isinstance(begun, Source):
                future = self._ahead.prefetch(candidate, begun)
                futures[id(future)] = future
        job = Job(tuple(parts), tuple(futures.values()))
        with self._change:
            self._open += 1
            self._waiting.append(job)
            self._change.notify_all()
        for future in job.compiling:
            future.add_done_callback(self._wake)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="trials", daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Returns when something is finished, or nothing is left that could be."""
        with self._change:
            while self._open and not self._finished and not self._error:
                self._change.wait(JOIN_S)

    def take_finished(self) -> list[Finished]:
        """What was finished since the last call, in order; raises what the thread met where it ended early."""
        with self._change:
            finished, self._finished = self._finished, []
            self._open -= self._completed
            self._completed = 0
            if self._error and not finished:
                raise self._error
        return finished

    def close(self, *, wait: bool) -> None:
        """Begins no further trial, calls off compiling; waits for the trial that is running where asked to."""
        with self._change:
            self._closed = True
            for job in self._waiting:
                for future in job.compiling:
                    future.cancel()
            self._waiting.clear()
            self._change.notify_all()
        while wait and self._thread is not None and self._thread.is_alive():
            self._thread.join(JOIN_S)

    def _wake(self, _: object) -> None:
        with self._change:
            self._change.notify_all()

    def _work(self) -> None:
        try:
            while (job := self._next()) is not None:
                for candidate, begun in job.parts:
                    if self._closed:
                        break
                    outcome = self._try_one(candidate, begun)
                    with self._change:
                        self._finished.append((candidate, outcome))
                        self._completed += candidate is job.parts[-1][0]
                        self._change.notify_all()
        except BaseException as error:  # noqa: BLE001  the main thread raises it
            with self._change:
                self._error = error
                self._change.notify_all()

    def _next(self) -> Job | None:
        """The first job, in the order asked, that is ready; None when the window is closed."""
        with self._change:
            self._idle_since = self._clock() if self.started is not None else None
            while not self._closed:
                job = next((job for job in self._waiting if job.ready), None)
                if job is not None:
                    self._waiting.remove(job)
                    break
                self._change.wait()
            else:
                job = None
            now = self._clock()
            if self._idle_since is not None:
                self._idle_s += now - self._idle_since
                self._idle_since = None
            if self.started is None:
                self.started = now
            return job

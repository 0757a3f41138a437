"""The bench itself: shape by shape, everything that competes there compiled, verified and measured in turn."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol as Interface

from autotune.bench.copies import copy_run, copy_source, large_bytes
from autotune.bench.request import BenchProgress, BenchRequest
from autotune.bench.result import (
    AGAIN,
    COPY,
    DEFAULT,
    TUNED,
    BenchResult,
    Entry,
    Failed,
    ModeResult,
    ShapeResult,
)
from autotune.candidate import Candidate, CompiledKernel, Runnable, Source
from autotune.compile.ahead import CompilesAhead
from autotune.config import Config
from autotune.device.measure import refuse_implausible
from autotune.device.messages import CUBLAS, CUBLASLT, Routine, RoutineChoice
from autotune.errors import NothingFound, StageFailure
from autotune.launch import plan_run
from autotune.problem import Problem
from autotune.problems import bytes_moved, flops, make_problem
from autotune.protocol import Protocol
from autotune.records import Accuracy
from autotune.render import render
from autotune.study.interrupt import Interrupt
from autotune.suites import Shape
from autotune.trial import Timed

LT_CANDIDATES = 16
"""How many of cuBLASLt's proposals are measured."""
LT_PROTOCOL = {"warmup_ms": 1.0, "min_samples": 3, "max_samples": 5, "measure_limit_s": 0.15}
"""Each of them shortly: the winner is measured properly afterwards, in turn with the others."""
COPY_INTENSITY = 32.0
"""Floating-point operations per byte up to which memory may limit a shape: a copy of as many bytes runs along."""


class BenchStages(Interface):
    """What a bench needs of a GPU; each method raises StageFailure."""

    def compile(self, candidate: Candidate, source: Source) -> CompiledKernel:
        """Native code."""
        ...

    def verify(self, candidate: Candidate, run: Runnable) -> Accuracy:
        """The worst error of a kernel."""
        ...

    def verify_routine(self, routine: Routine, run: Runnable) -> Accuracy:
        """The worst error of a library's routine on the problem of a run."""
        ...

    def choose_routine(self, run: Runnable, protocol: Protocol, count: int) -> RoutineChoice:
        """The fastest of cuBLASLt's candidates."""
        ...

    def compare_runs(
        self, runs: Sequence[Runnable], *, routines: Sequence[Routine] = (), protocol: Protocol | None = None
    ) -> list[Timed]:
        """Times in turn, of the runs and then of the routines."""
        ...


@dataclass(frozen=True)
class Pick:
    """A configuration to be measured, and how it was found."""

    config: Config
    match: str


@dataclass(frozen=True)
class Picks:
    """What represents the kernel at one shape in one mode."""

    tuned: Pick
    default: Pick


Choose = Callable[[Problem, Protocol], Picks]
"""Raises NothingFound where nothing is legal."""


class Bench:
    """One run over the shapes; `shapes` fills up as they are measured."""

    def __init__(
        self,
        request: BenchRequest,
        stages: BenchStages,
        choose: Choose,
        *,
        on_event: Callable[[BenchProgress], None] = lambda progress: None,
        on_shape: Callable[[ShapeResult, BenchResult], None] = lambda shape, result: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_shape` gets each finished shape and everything so far: the place to save it."""
        self._request = request
        self._stages = stages
        self._choose = choose
        self._on_event = on_event
        self._on_shape = on_shape
        self._clock = clock
        self._shapes: dict[str, ShapeResult] = {}
        self._copy_gbps: float | None = None
        self._copy: CompiledKernel | None = None

    def run(self, previous: BenchResult | None = None) -> BenchResult:
        """Measures the shapes that `previous` does not have yet; returns early at Ctrl-C and when time is up."""
        request = self._request
        begun = self._clock()
        self._take_over(previous)
        missing = list(request.shapes)
        with Interrupt() as interrupt:
            interrupt.attempt(self._begin_compiling)
            for number, shape in enumerate(request.shapes, 1):
                if request.limit_s is not None and self._clock() - begun > request.limit_s:
                    break
                if self._is_done(shape):
                    self._event(number, shape, "measured before")
                    missing.remove(shape)
                    continue
                found = interrupt.attempt(lambda n=number, s=shape: self._measure(n, s))  # type: ignore[misc]
                if found is None:
                    break
                missing.remove(shape)
                self._shapes[shape.name] = found
                self._on_shape(found, self._result([left.name for left in missing]))
            return self._result([left.name for left in missing], interrupted=interrupt.requested)

    def _take_over(self, previous: BenchResult | None) -> None:
        if previous is None or previous.provenance != self._request.provenance:
            return
        self._copy_gbps = previous.copy_gbps
        today = {shape.name: shape.sizes for shape in self._request.suite.shapes}
        self._shapes = {
            shape.name: shape for shape in previous.shapes if today.get(shape.name) == shape.sizes
        }

    def _begin_compiling(self) -> None:
        """Keeps every compiler process at work while the GPU measures the first shapes."""
        request, stages = self._request, self._stages
        if not isinstance(stages, CompilesAhead):
            return
        begun = set()
        for shape in request.shapes:
            if self._is_done(shape):
                continue
            problem = self._problem(shape)
            for protocol in request.protocols:
                with contextlib.suppress(NothingFound):  # told when it is the shape's turn
                    picks = self._choose(problem, protocol)
                    for pick in (picks.tuned, picks.default):
                        candidate = Candidate(request.spec, request.gpu, problem, pick.config)
                        source = render(request.spec, request.gpu, problem, pick.config)
                        if source.text not in begun:
                            begun.add(source.text)
                            stages.prefetch(candidate, source)

    def _is_done(self, shape: Shape) -> bool:
        """Whether an earlier run measured this shape, in all modes asked for, with today's configurations."""
        earlier = self._shapes.get(shape.name)
        if self._request.fresh or earlier is None or not earlier.complete:
            return False
        problem = self._problem(shape)
        for protocol in self._request.protocols:
            mode = earlier.mode(protocol.mode)
            if mode is None or mode.protocol != protocol.key:
                return False
            try:
                picks = self._choose(problem, protocol)
            except NothingFound:
                return False
            for name, pick in ((TUNED, picks.tuned), (DEFAULT, picks.default)):
                entry = mode.entry(name)
                if entry is None or entry.config != pick.config.key:
                    return False
        return True

    def _result(self, left_out: Sequence[str], interrupted: bool = False) -> BenchResult:
        order = [shape.name for shape in self._request.suite.shapes]
        shapes = sorted(self._shapes.values(), key=lambda shape: order.index(shape.name))
        return BenchResult(
            self._request.provenance, self._copy_gbps, tuple(shapes), tuple(left_out), interrupted
        )

    def _measure(self, number: int, shape: Shape) -> ShapeResult:
        request, problem = self._request, self._problem(shape)
        if self._copy_gbps is None:
            self._event(number, shape, "a large copy, for the bandwidth of the memory")
            self._copy_gbps = self._large_copy(problem)
        modes = []
        for protocol in request.protocols:
            self._event(number, shape, f"{protocol.mode}: compiling and verifying")
            result = _Round(self._stages, request, problem, protocol, self._copy_kernel).run(self._choose)
            self._event(number, shape, f"{protocol.mode}: {_told(result)}")
            modes.append(result)
        return ShapeResult(
            name=shape.name,
            group=shape.group,
            sizes=shape.sizes,
            flops=flops(request.spec, problem),
            bytes=bytes_moved(request.spec, problem),
            modes=tuple(modes),
            session=request.session,
            board=request.board,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def _problem(self, shape: Shape) -> Problem:
        return make_problem(self._request.spec, shape.sizes)

    def _copy_kernel(self, problem: Problem) -> CompiledKernel:
        if self._copy is None:
            default = self._request.spec.default_config(self._request.gpu.table)
            candidate = Candidate(self._request.spec, self._request.gpu, problem, default)
            self._copy = self._stages.compile(candidate, copy_source())
        return self._copy

    def _large_copy(self, problem: Problem) -> float | None:
        """1e9 bytes per second, read and written together, from cold memory; None where it fails."""
        try:
            run = copy_run(self._copy_kernel(problem), problem, large_bytes(self._request.gpu))
            timed = self._stages.compare_runs([run], protocol=Protocol())[0]
        except StageFailure:
            return None
        return run.bytes / timed.measurement.time_ms / 1e6

    def _event(self, number: int, shape: Shape, text: str) -> None:
        self._on_event(BenchProgress(number, len(self._request.shapes), shape.name, text))


class _Round:
    """One shape in one mode."""

    def __init__(
        self,
        stages: BenchStages,
        request: BenchRequest,
        problem: Problem,
        protocol: Protocol,
        copy_kernel: Callable[[Problem], CompiledKernel],
    ) -> None:
        self._stages = stages
        self._request = request
        self._problem = problem
        self._protocol = protocol
        self._copy_kernel = copy_kernel
        self._failed: list[Failed] = []

    def run(self, choose: Choose) -> ModeResult:
        """What becomes of the contestants; those that fail are told, and the others go on."""
        try:
            picks = choose(self._problem, self._protocol)
        except NothingFound as nothing:
            return self._mode([], (Failed(TUNED, str(nothing)),))
        same = picks.default.config == picks.tuned.config
        ready: dict[str, tuple[Runnable, Entry]] = {}
        for name, pick in ((TUNED, picks.tuned), (DEFAULT, picks.default)):
            if name == DEFAULT and same:
                continue
            made = self._ready(name, pick)
            if made:
                ready[name] = made
        if not ready:
            return self._mode([], self._failed, default_is_tuned=same)
        first = next(iter(ready.values()))[0]
        if TUNED in ready:
            run, entry = ready[TUNED]
            ready[AGAIN] = run, replace(entry, name=AGAIN)
        ready |= self._copy_along(first)
        choice, routines = self._libraries(first)
        try:
            timed = self._stages.compare_runs(
                [run for run, _ in ready.values()],
                routines=[routine for routine, _ in routines],
                protocol=self._protocol,
            )
        except StageFailure as failure:
            return self._mode([], [*self._failed, Failed(TUNED, str(failure))], default_is_tuned=same)
        contestants = [*ready.values(), *((first, entry) for _, entry in routines)]
        entries = [
            replace(
                entry,
                samples_ms=one.measurement.samples_ms,
                calls_per_sample=one.measurement.calls_per_sample,
                bytes=run.bytes,
                notes=one.notes,
            )
            for (run, entry), one in zip(contestants, timed, strict=True)
            if self._plausible(entry.name, run, one)
        ]
        result = self._mode(entries, self._failed, default_is_tuned=same)
        return replace(
            result,
            clocks=timed[0].measurement.clocks,
            candidates=choice.tried if choice else (),
        )

    def _mode(
        self, entries: Sequence[Entry], failed: Sequence[Failed], default_is_tuned: bool = False
    ) -> ModeResult:
        key = self._protocol.key
        return ModeResult(self._protocol.mode, key, tuple(entries), tuple(failed), default_is_tuned)

    def _ready(self, name: str, pick: Pick) -> tuple[Runnable, Entry] | None:
        """Compiled and right; None, with the reason noted, where it is not."""
        request = self._request
        candidate = Candidate(request.spec, request.gpu, self._problem, pick.config)
        try:
            source = render(candidate.spec, candidate.gpu, candidate.problem, candidate.config)
            run = plan_run(candidate, self._stages.compile(candidate, source))
            accuracy = self._stages.verify(candidate, run)
        except StageFailure as failure:
            self._failed.append(Failed(name, str(failure)))
            return None
        return run, _entry(name, accuracy, pick)

    def _libraries(self, run: Runnable) -> tuple[RoutineChoice | None, list[tuple[Routine, Entry]]]:
        ready: list[tuple[Routine, Entry]] = []
        choice = None
        if run.reference != "matmul" or run.problem.dtype != "float32":
            return choice, ready
        shortly = replace(self._protocol, **LT_PROTOCOL)  # type: ignore[arg-type]
        for name in (CUBLAS.name, CUBLASLT):
            try:
                routine = CUBLAS
                if name == CUBLASLT:
                    choice = self._stages.choose_routine(run, shortly, LT_CANDIDATES)
                    routine = choice.routine
                ready.append((routine, _entry(name, self._stages.verify_routine(routine, run))))
            except StageFailure as failure:
                self._failed.append(Failed(name, str(failure)))
        return choice, ready

    def _copy_along(self, run: Runnable) -> Mapping[str, tuple[Runnable, Entry]]:
        if run.flops > COPY_INTENSITY * run.bytes:
            return {}
        try:
            copy = copy_run(self._copy_kernel(self._problem), self._problem, run.bytes)
        except StageFailure as failure:
            self._failed.append(Failed(COPY, str(failure)))
            return {}
        return {COPY: (copy, _entry(COPY, None))}

    def _plausible(self, name: str, run: Runnable, timed: Timed) -> bool:
        try:
            refuse_implausible(run, self._request.gpu, timed.measurement, self._protocol)
        except StageFailure as failure:
            self._failed.append(Failed(name, str(failure)))
            return False
        return True


def _entry(name: str, accuracy: Accuracy | None, pick: Pick | None = None) -> Entry:
    return Entry(
        name=name,
        samples_ms=(),
        calls_per_sample=0,
        error=accuracy.worst_error if accuracy else None,
        tolerance=accuracy.tolerance if accuracy else None,
        config=pick.config.key if pick else "",
        match=pick.match if pick else "",
    )


def _told(result: ModeResult) -> str:
    tuned = result.entry(TUNED)
    if tuned is None:
        return "; ".join(f"{failed.name}: {failed.reason}" for failed in result.failed)
    parts = [f"{tuned.time_ms:.4g} ms"]
    for name in (CUBLAS.name, CUBLASLT, DEFAULT):
        ratio = result.ratio(name)
        parts += [f"{ratio:.2f} x {name}"] if ratio is not None else []
    return ", ".join(parts)

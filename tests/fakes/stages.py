"""Stages without GPU and compiler: times are planted, failures are chosen, every call is remembered."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from autotune.candidate import Candidate, CompiledKernel, Runnable, Source
from autotune.config import Config
from autotune.errors import StageFailure
from autotune.problem import Problem
from autotune.records import Accuracy, Measurement, Origin, Resources, Status
from autotune.spec.kernel_spec import KernelSpec
from autotune.trial import Compared, Timed, VendorTime

RESOURCES = Resources(
    registers=32, static_smem_bytes=0, spill_store_bytes=0, spill_load_bytes=0, stack_bytes=0
)


@dataclass
class FakeStages:
    """Compiles nothing, and takes the time that `time_of` plants."""

    time_of: Callable[[Config], float]
    failures: Callable[[Config], Status | None] = lambda config: None
    """The status of a configuration that fails."""
    delay_s: float = 0.0
    """How long one measurement really takes."""
    origin: Origin = Origin.MEASURED
    compiled: list[Config] = field(default_factory=list)
    measured: list[Config] = field(default_factory=list)
    limits: list[float | None] = field(default_factory=list)
    """The `best_ms` of each measurement."""

    def compile(self, candidate: Candidate, source: Source) -> CompiledKernel:
        self.compiled.append(candidate.config)
        self._fail_as(candidate.config, (Status.COMPILE_ERROR, Status.COMPILE_TIMEOUT, Status.COMPILE_OOM))
        return CompiledKernel(
            key=candidate.config.key,
            image=Path("/nonexistent"),
            entry=source.entry,
            arch=candidate.gpu.arch,
            resources=RESOURCES,
            compiler="fake",
            compile_s=0.0,
        )

    def verify(self, candidate: Candidate, run: Runnable) -> Accuracy | None:
        self._fail_as(candidate.config, (Status.LAUNCH_ERROR, Status.CRASHED, Status.WRONG_RESULT))
        return Accuracy(0.5, 1.0, 1)

    def measure(self, candidate: Candidate, run: Runnable, best_ms: float | None) -> Timed | float:
        if self.delay_s:
            time.sleep(self.delay_s)
        self._fail_as(candidate.config, (Status.TIMEOUT, Status.IMPLAUSIBLE))
        self.measured.append(candidate.config)
        self.limits.append(best_ms)
        time_ms = self.time_of(candidate.config)
        if self.origin is Origin.PREDICTED:
            return time_ms
        return Timed(measurement(time_ms))

    def _fail_as(self, config: Config, statuses: Sequence[Status]) -> None:
        status = self.failures(config)
        if status in statuses:
            raise StageFailure(status, f"{config.key} was chosen to fail as {status}")


@dataclass
class FakeAheadStages(FakeStages):
    """Compiles ahead; each compile ends with its own prefetch, or some prefetches later."""

    ahead: int = 4
    lag: Mapping[int, int] = field(default_factory=dict)
    """By how many later prefetches the n-th is held back."""
    began: list[Config] = field(default_factory=list)
    futures: list[Future[CompiledKernel]] = field(default_factory=list)

    compilers: int = 1
    compiling_s: float = 0.0

    def prefetch(self, candidate: Candidate, source: Source) -> Future[CompiledKernel]:
        future: Future[CompiledKernel] = Future()
        self.began.append(candidate.config)
        self.futures.append(future)
        last = len(self.futures) - 1
        for number, earlier in enumerate(self.futures):
            if not earlier.done() and number + self.lag.get(number, 0) <= last:
                earlier.set_result(None)  # type: ignore[arg-type]
        return future


@dataclass
class FakeFinalStages(FakeStages):
    """Also compares and knows a baseline."""

    final_time_of: Callable[[Config], float] = lambda config: 1.0
    compared: list[list[str]] = field(default_factory=list)
    baselines: int = 0

    def compare(self, runs: Sequence[Runnable]) -> Compared:
        self.compared.append([run.kernel.key for run in runs])
        by_key = {config.key: config for config in self.measured}
        return Compared(tuple(measurement(self.final_time_of(by_key[run.kernel.key])) for run in runs))

    def baseline(self, spec: KernelSpec, problem: Problem) -> VendorTime | None:
        self.baselines += 1
        return VendorTime("vendor", measurement(0.5), ("default algorithm",))


def measurement(time_ms: float) -> Measurement:
    """Five equal samples."""
    return Measurement((time_ms,) * 5, calls_per_sample=1)


@dataclass
class FakePipelineStages(FakeStages):
    """Compiles on several threads at once and takes real time for everything."""

    compile_s: float = 0.0
    compilers: int = 4
    ahead: int = 8
    compiled_ahead: list[Config] = field(default_factory=list)
    waiting: list[Config] = field(default_factory=list)
    """Configurations for which a trial came before the compiler was done."""

    def __post_init__(self) -> None:
        self._pool = ThreadPoolExecutor(self.compilers)
        self._begun: dict[tuple[Config, Problem], Future[CompiledKernel]] = {}
        self.compiling_s = 0.0

    def prefetch(self, candidate: Candidate, source: Source) -> Future[CompiledKernel]:
        future = self._pool.submit(self._compile, candidate, source)
        self._begun[candidate.config, candidate.problem] = future
        return future

    def compile(self, candidate: Candidate, source: Source) -> CompiledKernel:
        future = self._begun.pop((candidate.config, candidate.problem))
        if not future.done():
            self.waiting.append(candidate.config)
        return future.result()

    def _compile(self, candidate: Candidate, source: Source) -> CompiledKernel:
        self.compiled_ahead.append(candidate.config)
        time.sleep(self.compile_s)
        self.compiling_s += self.compile_s
        return super().compile(candidate, source)

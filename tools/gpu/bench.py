"""What the GPU cases share: stages on the local GPU, candidates, kernels from files, another stopwatch."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autotune.candidate import (
    BufferPlan,
    Candidate,
    CompiledKernel,
    LaunchPlan,
    Runnable,
    ScalarPlan,
    ScratchPlan,
    Source,
)
from autotune.compile.pool import CompilePool
from autotune.config import Config, Value
from autotune.device.local import LocalGpu, local_gpus
from autotune.device.stages import GpuStages
from autotune.launch import plan_run
from autotune.legality import search_space
from autotune.problems import make_problem
from autotune.protocol import Protocol
from autotune.render import render
from autotune.spec.kernel_spec import KernelSpec
from autotune.spec.load import load_spec

DATA = Path(__file__).resolve().parents[2] / "tests" / "data" / "gpu"
QUICK = Protocol(warmup_ms=2.0, max_samples=15, measure_limit_s=0.5)
"""For cases that are about outcomes, not times."""


@dataclass
class Bench:
    """The local GPU, ready to run trials."""

    gpu: LocalGpu
    pool: CompilePool
    stages: GpuStages
    spec: KernelSpec

    @classmethod
    @contextlib.contextmanager
    def open(cls) -> Iterator[Bench]:
        """On the first GPU of this machine."""
        gpus = local_gpus()
        if not gpus:
            raise SystemExit("no NVIDIA GPU in this machine")
        with CompilePool() as pool, GpuStages(gpus[0], pool) as stages:
            yield cls(gpus[0], pool, stages, load_spec("sgemm"))

    @contextlib.contextmanager
    def protocol(self, protocol: Protocol) -> Iterator[None]:
        """Another protocol for a while."""
        before, self.stages.protocol = self.stages.protocol, protocol
        try:
            yield
        finally:
            self.stages.protocol = before

    def candidate(
        self,
        sizes: int | Sequence[int],
        classes: Mapping[str, Value] | None = None,
        changes: Mapping[str, Value] | None = None,
    ) -> Candidate:
        """The default config of `sgemm`, or a changed one."""
        config = Config.of({name: self.spec.defaults[name] for name in self.spec.parameter_names})
        return Candidate(
            self.spec,
            self.gpu.spec,
            make_problem(self.spec, sizes, classes=classes),
            config.replace(changes or {}),
        )

    def run(self, candidate: Candidate) -> Runnable:
        """The compiled candidate."""
        source = render(candidate.spec, candidate.gpu, candidate.problem, candidate.config)
        return plan_run(candidate, self.stages.compile(candidate, source))

    def configs(self, sizes: int | Sequence[int], count: int, seed: int = 1) -> list[Config]:
        """Random legal configs of `sgemm`."""
        space = search_space(self.spec, self.gpu.spec, make_problem(self.spec, sizes))
        return space.sample(np.random.default_rng(seed), count)

    def kernel(self, file: str, entry: str) -> CompiledKernel:
        """A kernel of a file below `tests/data/gpu`."""
        path = DATA / file
        return self.pool.submit(Source(path.read_text(), entry, path), self.gpu.spec.arch).result()

    def mutant(self, entry: str, sizes: int | Sequence[int], block: int = 16, **classes: Value) -> Runnable:
        """A kernel of `mutants.cu` with one thread per result, on a problem of `sgemm`."""
        run = self.run_plan(sizes, classes)
        (rows, columns) = (dict(run.problem.sizes)[name] for name in ("M", "N"))
        grid = (-(-columns // block), -(-rows // block), 1)
        launch = dataclasses.replace(run.launch, grid=grid, block=(block, block, 1), dynamic_smem_bytes=0)
        return dataclasses.replace(run, kernel=self.kernel("mutants.cu", entry), launch=launch)

    def run_plan(self, sizes: int | Sequence[int], classes: Mapping[str, Value]) -> Runnable:
        """The default config's run with a placeholder for its code."""
        placeholder = self.kernel("mutants.cu", "naive")
        return plan_run(self.candidate(sizes, classes), placeholder)

    def copy(self, entry: str, count: int) -> Runnable:
        """A kernel of `copies.cu` over `count` floats."""
        buffers = (
            BufferPlan("X", "in", (count,), "float32", count, 0),
            BufferPlan("Y", "out", (count,), "float32", count, 0),
        )
        launch = LaunchPlan((1056, 1, 1), (256, 1, 1), 0, (ScalarPlan("count", "int32", count), *buffers))
        problem = dataclasses.replace(make_problem(self.spec, 1), sizes=(("COUNT", count),), classes=())
        return Runnable(self.kernel("copies.cu", entry), launch, problem, "copy", float(count), 8.0 * count)


class Stopwatch:
    """Times kernels in this process with CuPy's own launcher and events: independent of what it checks."""

    def __init__(self) -> None:
        import cupy

        self.cupy: Any = cupy

    def function(self, kernel: CompiledKernel) -> Any:
        """The kernel as a CuPy function."""
        return self.cupy.RawModule(path=str(kernel.image)).get_function(kernel.entry)

    def arguments(self, launch: LaunchPlan, data: str = "normal", seed: int = 5) -> tuple[Any, ...]:
        """Fresh arrays and the scalars, in order."""
        generator = self.cupy.random.default_rng(seed)
        values: list[Any] = []
        for argument in launch.arguments:
            if isinstance(argument, ScalarPlan):
                values.append(np.dtype(argument.dtype).type(argument.value))
                continue
            if isinstance(argument, ScratchPlan):
                zeros = self.cupy.zeros(argument.nbytes, dtype=np.uint8)
                values.append(zeros if argument.nbytes else np.uint64(0))
                continue
            count = int(np.prod((*argument.shape[:-1], argument.pitch)))
            if data == "normal":
                values.append(generator.standard_normal(count, dtype=np.float32))
            else:
                values.append(self.cupy.full(count, 1.0 if data == "ones" else 0.0, dtype=np.float32))
        return tuple(values)

    def time_ms(
        self, run: Runnable, sets: int = 1, calls: int = 20, repeats: int = 5, graph: bool = False
    ) -> float:
        """Median over repeats of the mean time of calls that are queued together, over rotating buffers.

        With `graph` as one graph: single launches follow each other about a microsecond later than its nodes.
        """
        function = self.function(run.kernel)
        if run.launch.dynamic_smem_bytes:
            function.max_dynamic_shared_size_bytes = run.launch.dynamic_smem_bytes
        arguments = [self.arguments(run.launch) for _ in range(sets)]
        busy = self.cupy.empty(2**28, dtype=np.uint8)
        stream = self.cupy.cuda.Stream(non_blocking=True)

        def queue() -> None:
            for call in range(calls):
                function(run.launch.grid, run.launch.block, arguments[call % sets],
                         shared_mem=run.launch.dynamic_smem_bytes)  # fmt: skip

        self.cupy.cuda.Device().synchronize()
        with stream:
            start_calls = queue
            if graph:
                queue()
                stream.begin_capture()
                queue()
                start_calls = stream.end_capture().launch
            return self._timed(start_calls, calls, repeats, busy)

    def _timed(self, start_calls: Any, calls: int, repeats: int, busy: Any) -> float:
        times = []
        for repeat in range(repeats + 1):
            start, end = self.cupy.cuda.Event(), self.cupy.cuda.Event()
            for value in range(100):  # keeps the GPU busy while the host queues
                busy.data.memset_async(value, busy.nbytes, self.cupy.cuda.get_current_stream())
            start.record()
            start_calls()
            end.record()
            end.synchronize()
            if repeat:
                times.append(self.cupy.cuda.get_elapsed_time(start, end) / calls)
        return statistics.median(times)

    def close(self) -> None:
        """Gives the memory back."""
        self.cupy.get_default_memory_pool().free_all_blocks()

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import cast

from fakes.compilers import RESOURCES
from fakes.toy import toy_gpu, toy_problem, toy_spec

from autotune.candidate import Candidate, CompiledKernel, Source
from autotune.compile.ahead import CompileAhead
from autotune.compile.pool import CompilePool
from autotune.render import render

KERNEL = CompiledKernel("key", Path("/nowhere"), "toy", "sm_86", RESOURCES, "fake", 0.0)


class FakePool:
    """Compiles when asked for the result."""

    def __init__(self) -> None:
        self.futures: list[Future[CompiledKernel]] = []

    def submit(self, source: Source, arch: str) -> Future[CompiledKernel]:
        self.futures.append(Future())
        if len(self.futures) > 1:
            self.futures[-1].set_result(KERNEL)
        return self.futures[-1]


def test_a_kernel_called_off_is_compiled_when_one_that_renders_alike_needs_it(tmp_path: Path) -> None:
    spec = toy_spec(tmp_path, {"A": [1], "UNUSED": [1, 2]})
    gpu, problem = toy_gpu(), toy_problem(spec)
    config = spec.default_config(gpu.table)
    candidates = [Candidate(spec, gpu, problem, config.replace({"UNUSED": value})) for value in (1, 2)]
    sources = [render(spec, gpu, problem, candidate.config) for candidate in candidates]
    assert sources[0] == sources[1]
    pool = FakePool()
    stages = CompileAhead(cast(CompilePool, pool), 2)
    stages.prefetch(candidates[0], sources[0]).cancel()
    assert stages.compile(candidates[1], sources[1]) == KERNEL
    assert len(pool.futures) == 2

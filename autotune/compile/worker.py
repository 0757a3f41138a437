"""The process that compiles; `autotune.compile.pool` starts it as `python -m autotune.compile.worker`."""

from __future__ import annotations

import importlib

from autotune.candidate import CompiledKernel
from autotune.child.serve import serve
from autotune.compile.compiler import CompileJob


def run_job(job: object) -> CompiledKernel:
    """What the named compiler makes of the job."""
    assert isinstance(job, CompileJob)
    module, _, function = job.compiler.partition(":")
    kernel = getattr(importlib.import_module(module), function)(job.source, job.arch, job.options)
    if not isinstance(kernel, CompiledKernel):
        raise TypeError(f"{job.compiler} gave {type(kernel).__name__}, not a CompiledKernel")
    return kernel


if __name__ == "__main__":
    serve(run_job)

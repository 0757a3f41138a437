"""A kernel with whatever parameters a test needs; it renders, but nobody compiles it for real."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from autotune.config import Value
from autotune.expressions import Expression
from autotune.gpu import GpuSpec
from autotune.gpu_tables import find_gpu
from autotune.problem import Problem
from autotune.problems import make_problem
from autotune.records import DeviceIdentity, Environment
from autotune.spec.kernel_spec import (
    ArrayArgument,
    KernelSpec,
    LaunchSpec,
    Parameter,
    ProblemSpec,
    Rule,
    SizeArgument,
)
from autotune.study.request import StudyRequest

ENVIRONMENT = Environment(driver="1.0", cuda="13.0", nvrtc="13.0", autotune="0.0.0")


def toy_spec(
    folder: Path,
    parameters: Mapping[str, Sequence[Value]],
    constraints: Sequence[str] = (),
    template: str = "{{ A }}",
) -> KernelSpec:
    """A kernel over one array, with its template written below `folder`."""
    path = folder / "templates" / "toy" / "toy.cu.j2"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = f'// {template}\nextern "C" __global__ void toy(float* y, int n) {{}}\n'
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    parse = Expression.parse
    return KernelSpec(
        name="toy",
        template="toy/toy.cu.j2",
        entry="toy",
        problem=ProblemSpec(("N",), "float32", flops=parse("N"), bytes=parse("4*N")),
        parameters=tuple(Parameter(name, tuple(values)) for name, values in parameters.items()),
        defaults={name: values[0] for name, values in parameters.items()},
        derived={"threads": parse("32"), "smem_bytes": parse("0")},
        constraints=tuple(Rule(parse(rule), f"it says {rule}") for rule in constraints),
        launch=LaunchSpec((parse("1"),), (parse("threads"),), parse("smem_bytes")),
        arguments=(ArrayArgument("y", "out", (parse("N"),), "float32"), SizeArgument("N")),
        reference="copy",
        metrics={"gflops": parse("flops / time_ns")},
        folders=(folder,),
    )


def toy_gpu() -> GpuSpec:
    """Some GPU that has a table."""
    return find_gpu("a6000")


def toy_problem(spec: KernelSpec, size: int = 1024) -> Problem:
    """The toy's problem of a size."""
    return make_problem(spec, size)


def toy_request(spec: KernelSpec, trials: int | None = None, **changes: object) -> StudyRequest:
    """A request for a study named `toy` on that GPU."""
    gpu = toy_gpu()
    device = DeviceIdentity(gpu.table, gpu.name, "8.6", gpu.sm_count, gpu.memory_bytes)
    values: dict[str, object] = {
        "spec": spec,
        "gpu": gpu,
        "problem": toy_problem(spec),
        "device": device,
        "environment": ENVIRONMENT,
        "study": "toy",
        "trials": trials,
        "board": "GPU-0",
        "strategy": "random",
        **changes,
    }
    return StudyRequest(**values)  # type: ignore[arg-type]

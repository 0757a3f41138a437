"""Compares a kernel run on the CPU with its float64 reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from autotune.buffers import generate, poisoned_outputs
from autotune.candidate import LaunchPlan, ScalarPlan, Source
from autotune.comparison import worst_element
from autotune.config import Config
from autotune.cpu.build import Sanitize
from autotune.cpu.run import run_on_cpu
from autotune.errors import StageFailure
from autotune.gpu import GpuSpec
from autotune.launch import plan_launch
from autotune.problem import Problem
from autotune.records import Accuracy, Status
from autotune.references import Array, get_reference
from autotune.render import render
from autotune.spec.kernel_spec import KernelSpec


def check_on_cpu(
    spec: KernelSpec, gpu: GpuSpec, problem: Problem, config: Config, sanitize: Sanitize = None
) -> Accuracy:
    """The worst error of one configuration on one problem, with the launch that the GPU would get.

    Raises StageFailure where the result is wrong, or as `run_on_cpu` does. For tests: a large problem takes
    minutes.
    """
    source = render(spec, gpu, problem, config)
    return check_launch(source, plan_launch(spec, problem, config, gpu), spec.reference, sanitize=sanitize)


def check_launch(
    source: Source,
    launch: LaunchPlan,
    reference: object,
    scalars: Mapping[str, float] | None = None,
    sanitize: Sanitize = None,
) -> Accuracy:
    """The worst error of one launch; `scalars` replaces values of scalar arguments.

    Arrays hold seeded normal data. What the kernel may not read is NaN: outputs, C with beta zero, and all
    inputs where alpha is zero. Raises StageFailure as `check_on_cpu` does.
    """
    launch = _with_scalars(launch, scalars or {})
    values = {plan.name: plan.value for plan in launch.arguments if isinstance(plan, ScalarPlan)}
    arrays = _arrays(launch, values)
    expected = get_reference(reference).expected(arrays, launch.known)
    got = run_on_cpu(source, launch, arrays, sanitize)
    worst = worst_element(got, expected)
    elements = sum(int(value.size) for value in expected.values.values())
    accuracy = Accuracy(worst.error if worst else 0.0, expected.tolerance, elements)
    if worst and not worst.error <= expected.tolerance:
        place = ", ".join(str(i) for i in worst.index)
        reason = f"{worst.output}[{place}] is {worst.got:.9g}, expected {worst.expected:.9g}"
        raise StageFailure(Status.WRONG_RESULT, reason, accuracy)
    return accuracy


def _with_scalars(launch: LaunchPlan, scalars: Mapping[str, float]) -> LaunchPlan:
    arguments = tuple(
        replace(plan, value=scalars.get(plan.name, plan.value)) if isinstance(plan, ScalarPlan) else plan
        for plan in launch.arguments
    )
    return replace(launch, arguments=arguments)


def _arrays(launch: LaunchPlan, scalars: Mapping[str, float | int]) -> dict[str, Array]:
    unread = set(poisoned_outputs(launch.buffers, scalars))
    if scalars.get("alpha") == 0:
        unread |= {plan.name for plan in launch.buffers if plan.role == "in"}
    arrays: dict[str, Array] = {}
    for seed, plan in enumerate(launch.buffers):
        count = int(np.prod(plan.shape, dtype=np.int64))
        kind = "nan" if plan.name in unread else "normal"
        arrays[plan.name] = generate(kind, count, 0, seed, np.dtype(plan.dtype), np).reshape(plan.shape)
    return arrays

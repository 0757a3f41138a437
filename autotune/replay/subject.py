"""A table as what the study loop and the strategies know: a kernel, a GPU, a problem and a space."""

from __future__ import annotations

from contextlib import suppress

from autotune.errors import InputError
from autotune.expressions import Expression
from autotune.gpu import GpuSpec
from autotune.gpu_tables import find_gpu
from autotune.replay.table import Table
from autotune.spec.kernel_spec import KernelSpec, LaunchSpec, ProblemClass, ProblemSpec
from autotune.study.request import StudyRequest
from autotune.study.strategies import Subject

TEMPLATE = "replay/recorded.cu.j2"
"""Holds no code."""
NO_LIMIT = 2**31 - 1


def subject_of(table: Table) -> Subject:
    """The table's kernel, without rules, code or costs: all that is known of it is the list of its configurations."""
    one = Expression.parse("1")
    classes = tuple(
        ProblemClass(name, (value,), Expression.parse(repr(value))) for name, value in table.problem.classes
    )
    sizes = tuple(name for name, _ in table.problem.sizes)
    spec = KernelSpec(
        name=table.kernel,
        template=TEMPLATE,
        entry=f"recorded:{table.kernel_hash}",
        problem=ProblemSpec(sizes, table.problem.dtype, one, one, classes),
        parameters=table.parameters,
        defaults=table.entries[0].config,
        derived={},
        constraints=(),
        launch=LaunchSpec((one,), (one,), Expression.parse("0")),
        arguments=(),
        reference="copy",
    )
    return Subject(spec, gpu_of(table), table.problem, table.space)


def request_of(
    table: Table, study: str, strategy: str, seed: int, trials: int | None, time_s: float | None
) -> StudyRequest:
    """A study of the table by one strategy."""
    subject = subject_of(table)
    return StudyRequest(
        spec=subject.spec,
        gpu=subject.gpu,
        problem=table.problem,
        device=table.device,
        environment=table.environment,
        study=study,
        protocol=table.protocol,
        trials=trials,
        time_s=time_s,
        strategy=strategy,
        seed=seed,
        space=table.space,
    )


def gpu_of(table: Table) -> GpuSpec:
    """The GPU's table where there is one; else a GPU that refuses nothing, since nothing is known of it."""
    with suppress(InputError):
        return find_gpu(table.device.table)
    device = table.device
    return GpuSpec(
        table=device.table,
        name=device.name,
        compute_capability=(0, 0),
        sm_count=max(device.sm_count, 1),
        fp32_lanes_per_sm=1,
        max_clock_mhz=1,
        memory_bytes=device.memory_bytes,
        memory_gbps=1.0,
        l2_bytes=1,
        smem_per_sm_bytes=NO_LIMIT,
        smem_per_block_bytes=NO_LIMIT,
        smem_reserved_bytes=0,
        registers_per_sm=NO_LIMIT,
        max_registers_per_thread=NO_LIMIT,
        max_threads_per_sm=NO_LIMIT,
        max_threads_per_block=NO_LIMIT,
        max_blocks_per_sm=NO_LIMIT,
        mig_profile=device.mig_profile,
    )

"""`autotune check`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.cli.options import json_option, project_folders, project_option
from autotune.cli.output import print_json, table
from autotune.config import Config
from autotune.errors import InputError, StageFailure

if TYPE_CHECKING:
    from autotune.gpu import GpuSpec
    from autotune.records import Accuracy
    from autotune.spec.kernel_spec import KernelSpec


@dataclass(frozen=True)
class GpuCheck:
    """What checking found for one GPU."""

    gpu: str
    arch: str
    legal: int
    raw: int
    default: Config | None
    """The default configuration that was compiled; None where nothing is legal."""
    registers: int | None
    spill_bytes: int | None
    problem: str
    """Why the default does not work here; empty where it does."""


@click.command(
    "check",
    epilog="""\b
Examples:
  autotune check
  autotune check sgemm --gpu a6000 --gpu h200
  autotune check configs/kernels/softmax.yaml --run""",
)
@click.argument("kernel", default="sgemm", metavar="[KERNEL|YAML]")
@click.option(
    "--gpu", "gpus", multiple=True, metavar="GPU", help="Check for these GPU tables only. Repeatable."
)
@click.option(
    "--run", is_flag=True, help="Also run the default on the CPU at small sizes, under AddressSanitizer."
)
@project_option
@json_option
def check_command(
    kernel: str, gpus: tuple[str, ...], run: bool, projects: tuple[Path, ...], as_json: bool
) -> int:
    """Validate a kernel without a GPU.

    Reads the spec, counts the legal configurations for each GPU table and what each rule removes, renders
    and compiles the default for every architecture, and with --run also runs it on the CPU against the
    reference: for testing kernels, it says nothing about their speed.
    """
    from autotune.gpu_tables import find_gpu, list_gpus
    from autotune.legality import search_space
    from autotune.render import unused_parameters
    from autotune.spec.load import load_spec

    folders = project_folders(projects)
    spec = load_spec(kernel, folders)
    tables = [find_gpu(name, folders) for name in gpus] or list(list_gpus(folders))
    checks = _check_gpus(spec, tables)
    unused = unused_parameters(spec)
    space = search_space(spec, tables[0])
    removed = [(rule.because, count) for rule, count in space.removed_by_rule()]
    runs = _run_on_cpu(spec, tables[0]) if run else []
    failed = [f"{check.gpu}: {check.problem}" for check in checks if check.problem]
    failed += [f"on the CPU, {label}: {error}" for label, error, _ in runs if error]

    if as_json:
        print_json(
            {
                "kernel": spec.name,
                "file": spec.source_file,
                "gpus": checks,
                "removed_by_rule": [{"because": because, "configs": count} for because, count in removed],
                "unused_parameters": unused,
                "cpu_runs": [
                    {"size": label, "error": error, "accuracy": accuracy} for label, error, accuracy in runs
                ],
                "ok": not failed,
            }
        )
        return 4 if failed else 0

    click.echo(f"{spec.name}: {spec.source_file or 'built in Python'}")
    table(
        "",
        ["gpu", "arch", "legal", "of raw", "registers", "spills B", "default"],
        [
            (c.gpu, c.arch, c.legal, c.raw, c.registers, c.spill_bytes, c.problem or "compiles")
            for c in checks
        ],
    )
    click.echo("")
    table(
        f"removed by each rule alone, on {tables[0].table}", ["configs", "rule"], [(n, b) for b, n in removed]
    )
    for name in unused:
        click.echo(f"warning: parameter {name} changes nothing: neither the template nor the launch uses it")
    for label, error, accuracy in runs:
        worst = (
            f"worst error {accuracy.worst_error:.3g} of {accuracy.tolerance:g} allowed" if accuracy else ""
        )
        click.echo(f"on the CPU, {label}: {error or 'right, ' + worst}")
    for text in failed:
        click.echo(f"error: {text}", err=True)
    return 4 if failed else 0


def _check_gpus(spec: KernelSpec, tables: Sequence[GpuSpec]) -> list[GpuCheck]:
    from autotune.compile.pool import CompilePool
    from autotune.legality import search_space
    from autotune.render import render

    defaults = {gpu.table: _default(spec, gpu) for gpu in tables}
    problem = small_problem(spec)
    with CompilePool() as pool:
        futures = {}
        for gpu in tables:
            config = defaults[gpu.table]
            if config is not None:
                futures[gpu.table] = pool.submit(render(spec, gpu, problem, config), gpu.arch)
        checks = []
        for gpu in tables:
            space = search_space(spec, gpu)
            config, resources, trouble = defaults[gpu.table], None, ""
            if config is None:
                trouble = "no configuration is legal"
            else:
                try:
                    resources = futures[gpu.table].result().resources
                except StageFailure as failure:
                    trouble = str(failure)
            checks.append(
                GpuCheck(
                    gpu.table,
                    gpu.arch,
                    space.count,
                    space.raw_count,
                    config,
                    resources.registers if resources else None,
                    resources.spill_store_bytes if resources else None,
                    trouble,
                )
            )
    return checks


def _default(spec: KernelSpec, gpu: GpuSpec) -> Config | None:
    from autotune.legality import nearest_legal, search_space

    space = search_space(spec, gpu)
    if not space.count:
        return None
    return nearest_legal(space, spec.default_config(gpu.table))


def small_problem(spec: KernelSpec, size: int = 64):  # type: ignore[no-untyped-def]
    """A problem of small equal sizes with the spec's default classes."""
    from autotune.problems import make_problem

    return make_problem(spec, size)


def _run_on_cpu(spec: KernelSpec, gpu: GpuSpec) -> list[tuple[str, str, Accuracy | None]]:
    """(size, what went wrong, accuracy) of the default at some small odd sizes."""
    from autotune.cpu import check_on_cpu
    from autotune.problems import make_problem

    config = _default(spec, gpu)
    if config is None:
        return []
    results: list[tuple[str, str, Accuracy | None]] = []
    for sizes in _small_sizes(len(spec.problem.sizes)):
        problem = make_problem(spec, sizes)
        try:
            results.append((problem.label, "", check_on_cpu(spec, gpu, problem, config, sanitize="address")))
        except (StageFailure, InputError) as failure:
            results.append((problem.label, str(failure), None))
    return results


def _small_sizes(dimensions: int) -> Iterable[tuple[int, ...]]:
    """Sizes of one, off any tile, and a little over one, each dimension different."""
    yield (1,) * dimensions
    yield (33, 65, 17, 5)[:dimensions]
    yield (130, 70, 35, 6)[:dimensions]

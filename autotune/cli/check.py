"""`autotune check`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.cli.options import json_option, project_folders, project_option, resolve_gpu
from autotune.cli.output import note, print_json, table
from autotune.config import Config
from autotune.errors import InputError, StageFailure, nearest_name

if TYPE_CHECKING:
    from concurrent.futures import Future

    from autotune.candidate import CompiledKernel, Source
    from autotune.gpu import GpuSpec
    from autotune.records import Accuracy, Resources
    from autotune.space.search_space import SearchSpace
    from autotune.spec.kernel_spec import KernelSpec

SIZES = (4096, 1009)
"""For which the default is compiled: one that tiles divide, and a prime, for which kernels need guards."""


@dataclass(frozen=True)
class GpuCheck:
    """What checking found for one GPU."""

    gpu: str
    arch: str
    legal: int
    raw: int
    default: Config | None
    """The default configuration that was compiled; None where nothing is legal."""
    registers: tuple[int, ...]
    """Per thread, of the default's source for each of `SIZES`; one where they are the same source."""
    spill_bytes: tuple[int, ...]
    """The same of what a thread spills."""
    problem: str
    """Why the default does not work here; empty where it does."""


@dataclass(frozen=True)
class CpuRun:
    """One run of the default on the CPU."""

    size: str
    error: str
    """What went wrong; empty where the result is right."""
    accuracy: Accuracy | None = None


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
    and compiles the default for every architecture, with and without guards, and with --run also runs it on
    the CPU against the reference: for testing kernels, it says nothing about their speed.
    """
    from autotune.gpu_tables import list_gpus
    from autotune.legality import search_space
    from autotune.references import check_reference
    from autotune.render import unused_parameters
    from autotune.spec.load import load_spec

    folders = project_folders(projects)
    spec = load_spec(kernel, folders)
    check_reference(spec)
    tables = [resolve_gpu(name, folders) for name in gpus] or list(list_gpus(folders))
    spaces = [(gpu, search_space(spec, gpu)) for gpu in tables]
    checks = _check_gpus(spec, spaces)
    runs = _run_on_cpu(spec, tables[0], checks[0].default) if run else []
    removed = {rule.because: count for rule, count in spaces[0][1].removed_by_rule()}
    warnings = [
        f"parameter {name} changes nothing: neither the template nor the launch uses it"
        for name in unused_parameters(spec)
    ]
    known = [gpu.table for gpu in list_gpus(folders)]
    warnings += [
        f"gpu_defaults.{name}: there is no GPU table of this name (nearest: {nearest_name(name, known)})"
        for name in spec.gpu_defaults
        if name not in known
    ]
    warnings += _export_warnings(spec, tables[0], checks[0])
    if as_json:
        _print_json(spec, checks, removed, runs, warnings)
    else:
        _print(spec, checks, removed, runs)
        for text in warnings:
            note(f"warning: {text}")
    return 4 if any(check.problem for check in checks) or any(one.error for one in runs) else 0


def _print_json(
    spec: KernelSpec,
    checks: Sequence[GpuCheck],
    removed: Mapping[str, int],
    runs: Sequence[CpuRun],
    warnings: Sequence[str],
) -> None:
    print_json(
        {
            "kernel": spec.name,
            "file": spec.source_file,
            "gpus": checks,
            "removed_by_rule": [{"because": because, "configs": count} for because, count in removed.items()],
            "warnings": warnings,
            "cpu_runs": runs,
            "ok": not any(check.problem for check in checks) and not any(one.error for one in runs),
        }
    )


def _print(
    spec: KernelSpec, checks: Sequence[GpuCheck], removed: Mapping[str, int], runs: Sequence[CpuRun]
) -> None:
    click.echo(f"{spec.name}: {spec.source_file or 'built in Python'}")
    table(
        "",
        ["gpu", "arch", "legal", "of raw", "registers", "spills B", "default"],
        [
            (
                check.gpu,
                check.arch,
                check.legal,
                check.raw,
                _both(check.registers),
                _both(check.spill_bytes),
                check.problem.split(":")[0] or "compiles",
            )
            for check in checks
        ],
    )
    if any(len(check.registers) > 1 for check in checks):
        click.echo(f"two figures: compiled for sizes of {SIZES[0]} and, with guards, of {SIZES[1]}")
    if removed:
        click.echo(f"\nremoved by each rule alone, on {checks[0].gpu}")
        table("", ["configs", "rule"], [(count, because) for because, count in removed.items()])
    for one in runs:
        worst = ""
        if one.accuracy:
            worst = f", worst error {one.accuracy.worst_error:.3g} of {one.accuracy.tolerance:g} allowed"
        click.echo(f"on the CPU, {one.size}: {one.error.split(':')[0] or 'right'}{worst}")
    # What goes wrong everywhere is told once.
    places: dict[str, list[str]] = {}
    for place, trouble in [
        *((check.gpu, check.problem) for check in checks),
        *((f"{one.size} on the CPU", one.error) for one in runs),
    ]:
        if trouble:
            places.setdefault(trouble, []).append(place)
    for trouble, where in places.items():
        note(f"error: {', '.join(where)}: {trouble}")


def _both(figures: Sequence[int]) -> str | None:
    return ", ".join(str(figure) for figure in figures) or None


def _check_gpus(spec: KernelSpec, spaces: Sequence[tuple[GpuSpec, SearchSpace]]) -> list[GpuCheck]:
    """One check per GPU; a source is compiled once for all GPUs of an architecture."""
    from autotune.compile.pool import CompilePool

    defaults = [_default(spec, gpu, space) for gpu, space in spaces]
    with CompilePool() as pool:
        begun: dict[tuple[str, str], Future[CompiledKernel]] = {}
        compiling = []
        for (gpu, _), config in zip(spaces, defaults, strict=True):
            mine = []
            for source in _sources(spec, gpu, config) if config is not None else ():
                key = (source.text, gpu.arch)
                if key not in begun:
                    begun[key] = pool.submit(source, gpu.arch)
                mine.append(begun[key])
            compiling.append(mine)
        archs = len({arch for _, arch in begun})
        note(f"compiling the default for {archs} architecture{'s' if archs > 1 else ''}")
        checks = []
        for (gpu, space), config, futures in zip(spaces, defaults, compiling, strict=True):
            found, trouble = [], "" if config is not None else "no configuration is legal"
            try:
                found = [future.result().resources for future in futures]
            except StageFailure as failure:
                trouble = str(failure)
            checks.append(_summary(gpu, space, config, found, trouble))
    return checks


def _summary(
    gpu: GpuSpec, space: SearchSpace, default: Config | None, compiled: Sequence[Resources], trouble: str
) -> GpuCheck:
    return GpuCheck(
        gpu=gpu.table,
        arch=gpu.arch,
        legal=space.count,
        raw=space.raw_count,
        default=default,
        registers=tuple(resources.registers for resources in compiled),
        spill_bytes=tuple(resources.spill_store_bytes for resources in compiled),
        problem=trouble,
    )


def _sources(spec: KernelSpec, gpu: GpuSpec, config: Config) -> list[Source]:
    """The default's source for each of `SIZES` that it may run on; for the first where it may run on none."""
    from autotune.legality import violations
    from autotune.problems import make_problem
    from autotune.render import render

    problems = [make_problem(spec, size) for size in SIZES]
    fitting = [problem for problem in problems if not violations(spec, gpu, problem, config)]
    sources = [render(spec, gpu, problem, config) for problem in fitting or problems[:1]]
    return list({source.text: source for source in sources}.values())


def _default(spec: KernelSpec, gpu: GpuSpec, space: SearchSpace) -> Config | None:
    from autotune.legality import nearest_legal

    return nearest_legal(space, spec.default_config(gpu.table)) if space.count else None


def _export_warnings(spec: KernelSpec, gpu: GpuSpec, check: GpuCheck) -> list[str]:
    """What would stop an export of the kernel as a header, found by exporting the default."""
    from autotune.choice.best import Match
    from autotune.exporter import ExportEntry, export
    from autotune.problems import make_problem

    if check.default is None or check.problem:
        return []
    entry = ExportEntry(make_problem(spec, SIZES[0]), check.default, None, Match.DEFAULT)
    with tempfile.TemporaryDirectory(prefix="autotune-check-") as folder:
        try:
            export(spec, gpu, [entry], Path(folder) / "kernel.cuh")
        except (InputError, StageFailure) as error:
            return [f"an export would be refused: {error}"]
    return []


def _run_on_cpu(spec: KernelSpec, gpu: GpuSpec, config: Config | None) -> list[CpuRun]:
    """Runs the default at some small odd sizes; where it does not compile, the first says it for all."""
    from autotune.cpu import check_on_cpu
    from autotune.problems import make_problem
    from autotune.records import Status

    if config is None:
        return []
    runs: list[CpuRun] = []
    for sizes in _small_sizes(len(spec.problem.sizes)):
        problem = make_problem(spec, sizes)
        try:
            accuracy = check_on_cpu(spec, gpu, problem, config, sanitize="address")
        except StageFailure as failure:
            runs.append(CpuRun(problem.label, str(failure), failure.accuracy))
            if failure.status is Status.COMPILE_ERROR:
                break
        except InputError as error:
            runs.append(CpuRun(problem.label, str(error)))
        else:
            runs.append(CpuRun(problem.label, "", accuracy))
    return runs


def _small_sizes(dimensions: int) -> Iterable[tuple[int, ...]]:
    """Sizes of one, off any tile, and a little over one, each dimension different."""
    yield (1,) * dimensions
    yield (33, 65, 17, 5)[:dimensions]
    yield (130, 70, 35, 6)[:dimensions]

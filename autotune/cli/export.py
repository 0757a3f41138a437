"""`autotune export`."""

from __future__ import annotations

import itertools
from pathlib import Path

import click

from autotune.cli.options import (
    WholeNumber,
    class_option,
    db_option,
    gpu_option,
    json_option,
    kernel_option,
    missing_file,
    parse_class_lists,
    problems_of,
    project_folders,
    project_option,
    size_option,
    suite_option,
)
from autotune.cli.output import note, print_json
from autotune.config import value_text


@click.command(
    "export",
    epilog="""\b
Examples:
  autotune export --gpu a6000 -o sgemm_a6000.cuh
  autotune export --gpu h200 --size 4096 --size 1024 --max-kernels 8 -o sgemm_h200.cuh
  autotune export --gpu h200 --class trans_a=n,t --class trans_b=n,t -o sgemm.cuh
  autotune export --gpu local --format json -o best.json""",
)
@gpu_option
@kernel_option
@size_option
@suite_option
@class_option
@click.option(
    "-o",
    "--output",
    "path",
    required=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="File to write; a folder for cubin.",
)
@click.option(
    "--format",
    "format_",
    default="header",
    show_default=True,
    metavar="FORMAT",
    help="header (CUDA C++, self-contained), json, or cubin (a folder of binaries).",
)
@click.option(
    "--max-kernels",
    type=WholeNumber(1),
    metavar="N",
    help="Keep at most N kernels: those that cover best.",
)
@click.option("--warm", is_flag=True, help="Take results from a warm L2.")
@db_option
@project_option
@json_option
def export_command(
    gpu: str,
    kernel: str,
    sizes: tuple[str, ...],
    suite: str | None,
    classes: tuple[str, ...],
    path: Path,
    format_: str,
    max_kernels: int | None,
    warm: bool,
    db: str | None,
    projects: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Write a tuned kernel for your own code.

    Without --size, every size with results is exported; the header then chooses by size. Predicted results
    are exported too, and the header says so in capitals. Of a class that a call does not show, such as how an
    operand lies, --class may list several values: the header's functions then take it as an argument.
    """
    from autotune.answers import export
    from autotune.protocol import Protocol
    from autotune.spec.load import load_spec

    if missing := missing_file(db):
        note(f"warning: no results in {missing}: the file is new")
    folders = project_folders(projects)
    spec = load_spec(kernel, folders)
    asked = parse_class_lists(classes, spec)
    listed = [[f"{name}={value_text(value)}" for value in values] for name, values in asked.items()]
    problems = [
        problem
        for pairs in itertools.product(*listed)
        if sizes or suite
        for problem in problems_of(sizes, suite, pairs, spec, folders)
    ]
    protocol = Protocol().warm() if warm else Protocol()
    report = export(
        gpu,
        path,
        problems,
        spec,
        format=format_,
        classes={name: list(values) for name, values in asked.items()},
        max_kernels=max_kernels,
        db=db,
        folders=folders,
        protocol=protocol,
    )
    if as_json:
        print_json(report)
        return
    click.echo(
        f"{report.path}: {_count(report.kernels, 'kernel')} for {_count(report.sizes, 'size')}, "
        f"{report.bytes / 1024:.0f} KiB"
    )
    if report.predicted:
        note("PREDICTED, NOT MEASURED: some or all of these were never run on the GPU")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

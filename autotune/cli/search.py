"""`autotune search`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.api import MAX_SEED
from autotune.cli.options import (
    WholeNumber,
    class_option,
    db_option,
    gpu_help,
    json_option,
    kernel_option,
    parse_duration,
    problems_of,
    project_folders,
    project_option,
    size_option,
    suite_option,
)
from autotune.cli.output import format_ms, note, print_json, print_ties, table

if TYPE_CHECKING:
    from autotune.study.request import StudyResult


@click.command(
    "search",
    epilog="""\b
Examples:
  autotune search --gpu a6000 --size 4096
  autotune search --gpu local --size 1024 --size 4096x4096x64 --time 10m
  autotune search --gpu local --suite sgemm --matrix --trials 50 --db results.sqlite
  autotune search --gpu local --kernel my/configs/kernels/softmax.yaml --size 4096 --strategy exhaustive
  autotune search --replay gemm_RTX_3090.json.gz --strategy tpe --trials 100 --seed 1

Run the same command again to go on where it stopped; Ctrl-C keeps everything finished.""",
)
@click.option("--gpu", metavar="GPU", help=gpu_help)
@kernel_option
@size_option
@suite_option
@class_option
@click.option(
    "--trials",
    type=WholeNumber(1),
    metavar="N",
    help="Configurations to measure per size. Default: 200, or no limit beside --time or exhaustive.",
)
@click.option("--time", "duration", metavar="DURATION", help="Time to spend per size: 90s, 10m, 1h30m.")
@click.option(
    "--strategy",
    default="auto",
    show_default=True,
    metavar="NAME",
    help="auto, tpe, random, evolution, hand, exhaustive or model (best first by the performance model).",
)
@click.option(
    "--seed",
    type=WholeNumber(0, MAX_SEED),
    default=0,
    show_default=True,
    metavar="N",
    help="Seed of the strategy.",
)
@click.option(
    "--study", metavar="NAME", help="Name to store under and to go on from. Default: made from the rest."
)
@click.option("--warm", is_flag=True, help="Time from a warm L2 instead of a cold one.")
@click.option(
    "--matrix",
    is_flag=True,
    help="Search all sizes together: each configuration is compiled once and tried on all of them.",
)
@click.option(
    "--measured-only", is_flag=True, help="Never predict: exit 3 where the GPU is not in this machine."
)
@click.option(
    "--replay",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Recorded trials to search in place of a GPU: what `db export` wrote, or a cache of Kernel Tuner.",
)
@db_option
@project_option
@json_option
@click.pass_context
def search_command(
    context: click.Context,
    gpu: str | None,
    kernel: str,
    sizes: tuple[str, ...],
    suite: str | None,
    classes: tuple[str, ...],
    trials: int | None,
    duration: str | None,
    strategy: str,
    seed: int,
    study: str | None,
    warm: bool,
    matrix: bool,
    measured_only: bool,
    replay: Path | None,
    db: str | None,
    projects: tuple[Path, ...],
    as_json: bool,
) -> int:
    """Find the fastest configuration of a kernel on a GPU, for one or several sizes.

    Where the GPU is in this machine, every candidate is compiled, verified and measured. Where it is not,
    candidates are compiled for it and ranked by the performance model; such results are marked as predicted.
    With --replay a file of recorded trials answers instead, for comparing strategies.
    """
    _one_thread_for_numpy()
    from autotune.api import replay as search_file
    from autotune.api import search
    from autotune.cli.progress import ProgressView
    from autotune.protocol import Protocol
    from autotune.render import unused_parameters
    from autotune.spec.load import load_spec

    seconds = parse_duration(duration) if duration else None
    if replay is not None:
        _refuse_beside_replay(context, sizes)
        with ProgressView() as view:
            results = search_file(
                replay,
                size=sizes[0] if sizes else None,
                trials=trials,
                time_s=seconds,
                strategy=strategy,
                seed=seed,
                db=db,
                study=study,
                on_event=view.show,
            )
        return _show(results, as_json)
    if gpu is None:
        raise click.MissingParameter(
            ctx=context, param=next(p for p in context.command.params if p.name == "gpu")
        )
    folders = project_folders(projects)
    spec = load_spec(kernel, folders)
    for name in unused_parameters(spec):
        note(f"warning: parameter {name} changes nothing: neither the template nor the launch uses it")
    problems = problems_of(sizes, suite, classes, spec, folders)
    protocol = Protocol().warm() if warm else Protocol()
    with ProgressView() as view:
        results = search(
            gpu,
            spec,
            problems,
            trials=trials,
            time_s=seconds,
            strategy=strategy,
            seed=seed,
            db=db,
            study=study,
            folders=folders,
            protocol=protocol,
            measured_only=measured_only,
            matrix=matrix,
            on_event=view.show,
        )
    return _show(results, as_json)


def _one_thread_for_numpy() -> None:
    """Leaves the cores to the compilers, which NumPy's threads would wait for; what the user has set stays.

    Heeded only where NumPy is not imported yet.
    """
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")


def _refuse_beside_replay(context: click.Context, sizes: Sequence[str]) -> None:
    """Raises InputError for options that say what the file says already."""
    from click.core import ParameterSource

    from autotune.errors import InputError

    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        if given and parameter.name in _SAID_BY_THE_FILE:
            raise InputError(
                "does not go with --replay, for which the file alone counts", key=parameter.opts[0]
            )
    if len(sizes) > 1:
        raise InputError(
            "may be given once beside --replay; without it all of the file's tables are searched",
            key="--size",
        )


_SAID_BY_THE_FILE = ("gpu", "kernel", "suite", "classes", "warm", "matrix", "measured_only", "projects")


def _show(results: Sequence[StudyResult], as_json: bool) -> int:
    """Prints the results and gives the exit code."""
    if as_json:
        print_json([_summary(result) for result in results])
    else:
        _print(results)
    return 130 if any(result.interrupted for result in results) else 0


def _print(results: Sequence[StudyResult]) -> None:
    from autotune.study.progress import group_failures, metrics

    figures = results[0].request.spec.metrics
    vendor = next((result.baseline[0].kernel for result in results if result.baseline), "")
    rows = []
    for result in results:
        request, summary = result.request, _summary(result)
        time_ms = result.best.outcome.time_ms if result.best else None
        values = metrics(request.spec, request.problem, time_ms) if time_ms else {}
        rows.append(
            (
                request.problem.label,
                time_ms,
                *(values.get(name) for name in figures),
                *([summary["vs_baseline"]] if vendor else []),
                result.measured,
                sum(count for status, count in result.counts.items() if not status.timed),
                summary["origin"],
            )
        )
    beside = [f"x {vendor}"] if vendor else []
    table("", ["size", "best ms", *figures, *beside, "timed", "failed", "origin"], rows)
    for result in results:
        label = result.request.problem.label
        if result.best:
            click.echo(f"{label}: {result.best.config.key}")
        print_ties(
            [f"{tied.config.key} ({format_ms(tied.outcome.time_ms or 0)})" for tied in result.ties],
            f"{label}: ",
        )
        for text in result.notes:
            note(f"{label}: {text}")
        for group in group_failures(result.records):
            note(f"{label}: {group.count} x {group.status}: {group.reason[:200]}")
    if any(row[-1] == "predicted" for row in rows):
        note(
            "PREDICTED, NOT MEASURED: the GPU is not in this machine. Resources are exact, the times are "
            "a model's; run the same command on that GPU to measure."
        )
    if any(row[-1] == "replayed" for row in rows):
        note(
            "REPLAYED, NOT MEASURED NOW: the times are those of the file, and `autotune best` never answers with them."
        )


def _summary(result: StudyResult) -> dict[str, object]:
    """What a script wants to know of one size."""
    from autotune.study.progress import metrics

    request, best = result.request, result.best
    time_ms = best.outcome.time_ms if best else None
    figures = metrics(request.spec, request.problem, time_ms) if time_ms else {}
    baseline = result.baseline[0].outcome.time_ms if result.baseline else None
    return {
        "kernel": request.spec.name,
        "gpu": request.gpu.table,
        "study": request.study,
        "problem": request.problem,
        "size": request.problem.label,
        "config": best.config if best else None,
        "origin": best.outcome.origin if best else None,
        "time_ms": time_ms,
        "gflops": figures.get("gflops"),
        "metrics": figures,
        "baseline_ms": baseline,
        "vs_baseline": baseline / time_ms if baseline and time_ms else None,
        "measured": result.measured,
        "counts": result.counts,
        "legal": result.legal,
        "exhausted": result.exhausted,
        "interrupted": result.interrupted,
        "ties": [tied.config for tied in result.ties],
        "occupation": result.occupation,
        "notes": result.notes,
    }

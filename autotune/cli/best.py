"""`autotune best`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.cli.options import (
    class_option,
    db_option,
    gpu_option,
    json_option,
    kernel_option,
    missing_file,
    problems_of,
    project_folders,
    project_option,
    size_option,
    suite_option,
)
from autotune.cli.output import format_figure, format_ms, note, patience, print_json, print_ties

if TYPE_CHECKING:
    from autotune.choice.best import Answer
    from autotune.problem import Problem
    from autotune.spec.kernel_spec import KernelSpec


@click.command(
    "best",
    epilog="""\b
Examples:
  autotune best --gpu a6000 --size 4096
  autotune best --gpu local --size 4096x4096x64 --class beta=general --json""",
)
@gpu_option
@kernel_option
@size_option
@suite_option
@class_option
@click.option("--warm", is_flag=True, help="Ask for results from a warm L2.")
@db_option
@project_option
@json_option
def best_command(
    gpu: str,
    kernel: str,
    sizes: tuple[str, ...],
    suite: str | None,
    classes: tuple[str, ...],
    warm: bool,
    db: str | None,
    projects: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Say which configuration is best for a size, and how that is known.

    The answer says whether it was measured for exactly this size, selected by a model of what was measured at
    other sizes, measured for a size nearby, predicted without a GPU, or is only the kernel's default, and what
    has changed since it was measured.
    """
    from autotune.answers import best
    from autotune.protocol import Protocol
    from autotune.spec.load import load_spec

    if missing := missing_file(db):
        note(f"warning: no results in {missing}: the file is new")
    folders = project_folders(projects)
    spec = load_spec(kernel, folders)
    protocol = Protocol().warm() if warm else Protocol()
    problems = problems_of(sizes, suite, classes, spec, folders)
    with patience("fitting the performance model to what is recorded; it is kept for later questions"):
        answers = [
            (problem, best(gpu, problem, spec, db=db, folders=folders, protocol=protocol))
            for problem in problems
        ]
    if as_json:
        documents = [_document(spec, problem, answer) for problem, answer in answers]
        print_json(documents[0] if len(documents) == 1 else documents)
        return
    # What makes `search` look at the same problem in the same place; a database's URL may hold a password.
    same = [word for pair in classes for word in ("--class", pair)]
    same += [word for folder in projects for word in ("--project", str(folder))]
    same += ["--db", db] if db and "://" not in db else []
    for problem, answer in answers:
        click.echo(f"{problem.label}: {answer.config.key}")
        figures = _figures(spec, problem, answer)
        click.echo(f"  {answer.match}: {answer.why}{figures}")
        for change in answer.staleness:
            note(f"  stale: {change}")
        print_ties([tied.key for tied in answer.ties], "  ")
        if answer.record is None:
            words = ["autotune", "search", "--gpu", gpu, "--kernel", kernel, "--size", problem.label, *same]
            note(f"  to find a better one: {shlex.join(words)}")


def _figures(spec: KernelSpec, problem: Problem, answer: Answer) -> str:
    time_ms = _time_ms(answer)
    if time_ms is None:
        return ""
    texts = [format_ms(time_ms)]
    texts += [f"{format_figure(value)} {name}" for name, value in _metrics(spec, problem, answer).items()]
    return ": " + ", ".join(texts)


def _time_ms(answer: Answer) -> float | None:
    """Measured or predicted, as its match says."""
    return answer.record.outcome.time_ms if answer.record else answer.predicted_ms


def _metrics(spec: KernelSpec, problem: Problem, answer: Answer) -> dict[str, float]:
    from autotune.study.progress import metrics

    time_ms = _time_ms(answer)
    if time_ms is None:
        return {}
    return metrics(spec, answer.record.problem if answer.record else problem, time_ms)


def _document(spec: KernelSpec, problem: Problem, answer: Answer) -> dict[str, object]:
    record = answer.record
    return {
        "kernel": spec.name,
        "problem": problem,
        "size": problem.label,
        "config": answer.config,
        "match": answer.match,
        "why": answer.why,
        "origin": answer.origin,
        "layer": answer.layer,
        "distance_octaves": answer.distance,
        "staleness": answer.staleness,
        "time_ms": _time_ms(answer),
        "metrics": _metrics(spec, problem, answer),
        "ties": answer.ties,
        "record": record,
    }

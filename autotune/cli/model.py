"""`autotune model`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.cli.options import (
    db_option,
    gpu_help,
    json_option,
    kernel_option,
    must_exist,
    project_folders,
    project_option,
    resolve_gpu,
)
from autotune.cli.output import note, print_json, table

if TYPE_CHECKING:
    from autotune.model.fitted import FittedModel
    from autotune.model.ground import Ground
    from autotune.model.report import HeldOut
    from autotune.spec.kernel_spec import KernelSpec


@click.command(
    "model",
    epilog="""\b
Examples:
  autotune model --gpu h200
  autotune model --study table.jsonl.gz --json""",
)
@click.option("--gpu", metavar="GPU", help=gpu_help + " Default: the one with most results.")
@kernel_option
@click.option(
    "--study",
    "studies",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Only the records of this file, as `db export` writes them. Repeatable.",
)
@db_option
@project_option
@json_option
def model_command(
    gpu: str | None,
    kernel: str,
    studies: tuple[Path, ...],
    db: str | None,
    projects: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Say how good the performance model is on recorded results that it was not fitted to.

    Each size in turn, and each GPU where there are several, is left out of fitting; then the model ranks the
    configurations measured there.
    """
    from autotune.model.fitted import FittedModel
    from autotune.model.report import evaluate
    from autotune.model.subset import held_out_regret
    from autotune.spec.load import load_spec

    must_exist(db)
    folders = project_folders(projects)
    spec = load_spec(kernel, folders)
    ground = _ground(spec, gpu, db, studies, folders)
    model = FittedModel.on(ground)
    found = evaluate(ground, lambda held: note(f"{held.gpu} {held.size}: Spearman {held.spearman:.3f}"))
    here = [
        number for number, place in enumerate(ground.measured.places) if place.gpu.table == ground.gpu.table
    ]
    few = held_out_regret(ground.measured.keeping(here))
    if as_json:
        measured = ground.measured
        print_json(
            {
                "kernel": spec.name,
                "gpu": ground.gpu.table,
                "times": measured.count,
                "configs": len(measured.configs),
                "places": len(measured.places),
                "constants": model.constants,
                "regression_hold": model.regression.hold if model.regression else None,
                "shares": model.shares,
                "held_out_sizes": found.by_size,
                "held_out_gpus": found.by_gpu,
                "closed_form": found.closed_form,
                "few_kernels": few,
            }
        )
        return
    _print(model, found.by_size, found.by_gpu, found.closed_form)
    if few:
        rows = [(one.kernels, _percent(one.median), _percent(one.p90), _percent(one.worst)) for one in few]
        click.echo("")
        table(
            "Few kernels, without the size",
            ["kernels", "median", "p90", "worst"],
            rows,
        )


def _print(
    model: FittedModel, by_size: Sequence[HeldOut], by_gpu: Sequence[HeldOut], closed: Sequence[HeldOut]
) -> None:
    from autotune.model.constants import CONSTANT_NAMES, Constants

    ground = model.ground
    measured = ground.measured
    click.echo(
        f"{ground.spec.name} on {ground.gpu.table}: {measured.count} times of {len(measured.configs)} configurations "
        f"at {len(measured.places)} places"
    )
    if not model.learnt:
        note("too few times to learn from: the model is its closed form")
    _print_held_out("Fitted without the size", by_size)
    _print_held_out("Fitted without the GPU", by_gpu)
    _print_held_out("Closed form with its default constants", closed)
    default = Constants()
    rows = [(name, getattr(default, name), getattr(model.constants, name)) for name in CONSTANT_NAMES]
    click.echo("")
    table("Constants", ["name", "default", "fitted"], rows)


def _print_held_out(title: str, held_out: Sequence[HeldOut]) -> None:
    if not held_out:
        return
    rows = [
        (
            one.gpu,
            one.size,
            one.configs,
            f"{one.spearman:.3f}",
            *(_percent(loss) for loss in one.loss.values()),
            _percent(one.picked),
            _percent(one.nearest),
            _percent(one.error),
        )
        for one in held_out
    ]
    columns = ["GPU", "size", "configs", "Spearman", *(f"top {first}" for first in held_out[0].loss)]
    click.echo("")
    table(title, [*columns, "picked", "nearest", "error"], rows)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}%"


def _ground(
    spec: KernelSpec, gpu: str | None, db: str | None, studies: Sequence[Path], folders: Sequence[Path]
) -> Ground:
    from autotune.choice.learned import all_records, own_records, study_files
    from autotune.errors import NothingFound
    from autotune.model.ground import Ground
    from autotune.store import open_store

    chosen = None if gpu is None else resolve_gpu(gpu, folders)
    if studies:
        records = all_records([], studies)
    else:
        with open_store(db) as store:
            own = own_records(store, spec, None)
        records = all_records(own, study_files(spec, None, folders))
    tables = [record.device.table for record in records if record.kernel == spec.name]
    if not tables:
        raise NothingFound(
            f"nothing is recorded of {spec.name}: run `autotune search` first, or name a --study"
        )
    chosen = chosen or resolve_gpu(max(dict.fromkeys(tables), key=tables.count), folders)
    ground = Ground.of(records, spec, chosen)
    if not ground.measured.count:
        raise NothingFound(f"no time is recorded of a configuration that {spec.name} has today")
    return ground

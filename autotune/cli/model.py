"""`autotune model`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
from autotune.cli.progress import counting

if TYPE_CHECKING:
    from autotune.model.fitted import FittedModel
    from autotune.model.ground import Ground
    from autotune.model.report import HeldOut
    from autotune.records import TrialRecord
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
    configurations measured there. 'unseen' is its ranking of configurations that were left out as well.
    """
    from autotune.model.fitted import FittedModel
    from autotune.model.report import evaluate, spread
    from autotune.model.subset import held_out_regret
    from autotune.spec.load import load_spec

    must_exist(db)
    folders = project_folders(projects)
    spec = load_spec(kernel, folders)
    records, files = _records(spec, db, studies, folders)
    ground = _ground(spec, gpu, records, folders)
    model = FittedModel.on(ground)
    with counting("sizes and GPUs held out") as count:
        found = evaluate(ground, count)
    losses = {
        "picked": spread(one.picked for one in found.by_size),
        "nearest": spread(one.nearest for one in found.by_size),
    }
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
                "provenance": _provenance(records, files, spec),
                "times": measured.count,
                "configs": len(measured.configs),
                "places": len(measured.places),
                "constants": model.constants,
                "regression_hold": model.regression.hold if model.regression else None,
                "shares": model.shares,
                "held_out_sizes": found.by_size,
                "choice": losses,
                "held_out_gpus": found.by_gpu,
                "closed_form": found.closed_form,
                "few_kernels": few,
            }
        )
        return
    _print(model, found.by_size, found.by_gpu, found.closed_form)
    chosen = [
        (name, one.places, _percent(one.median), _percent(one.p90), _percent(one.worst))
        for name, one in losses.items()
        if one
    ]
    if chosen:
        click.echo("")
        table(
            "Slower than the best, without the size", ["choice", "places", "median", "p90", "worst"], chosen
        )
    if few:
        rows = [(one.kernels, _percent(one.median), _percent(one.p90), _percent(one.worst)) for one in few]
        click.echo("")
        table("Few kernels, without the size", ["kernels", "median", "p90", "worst"], rows)


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
            f"{one.unseen.spearman:.3f}" if one.unseen else "-",
        )
        for one in held_out
    ]
    columns = ["GPU", "size", "configs", "Spearman", *(f"top {first}" for first in held_out[0].loss)]
    click.echo("")
    table(title, [*columns, "picked", "nearest", "error", "unseen"], rows)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}%"


def _records(
    spec: KernelSpec, db: str | None, studies: Sequence[Path], folders: Sequence[Path]
) -> tuple[list[TrialRecord], Sequence[Path]]:
    """The kernel's, and the files that they were read from; raises NothingFound where there are none."""
    from autotune.choice.learned import all_records, own_records, study_files
    from autotune.errors import NothingFound
    from autotune.store import open_store

    own: list[TrialRecord] = []
    files: Sequence[Path] = studies
    if not studies:
        with open_store(db) as store:
            own = own_records(store, spec, None)
        files = study_files(spec, None, folders)
    records = [record for record in all_records(own, files) if record.kernel == spec.name]
    if not records:
        raise NothingFound(
            f"nothing is recorded of {spec.name}: run `autotune search` first, or name a --study"
        )
    return records, files


def _ground(
    spec: KernelSpec, gpu: str | None, records: Sequence[TrialRecord], folders: Sequence[Path]
) -> Ground:
    from autotune.errors import NothingFound
    from autotune.model.ground import Ground

    tables = [record.device.table for record in records]
    chosen = resolve_gpu(gpu or max(dict.fromkeys(tables), key=tables.count), folders)
    ground = Ground.of(records, spec, chosen)
    if not ground.measured.count:
        raise NothingFound(f"no time is recorded of a configuration that {spec.name} has today")
    return ground


def _provenance(records: Sequence[TrialRecord], files: Sequence[Path], spec: KernelSpec) -> dict[str, object]:
    """What the figures rest on."""
    import hashlib
    from datetime import UTC, datetime

    import autotune
    from autotune.render import kernel_hash

    def all_of(values: Iterable[str]) -> list[str]:
        return sorted(set(values))

    return {
        "files": [
            {"name": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()} for path in files
        ],
        "measured": [min(record.created for record in records), max(record.created for record in records)],
        "gpu": all_of(record.device.name for record in records),
        "driver": all_of(record.environment.driver for record in records),
        "nvrtc": all_of(record.environment.nvrtc for record in records),
        "protocol": all_of(record.protocol for record in records),
        "kernel_hash": all_of(record.kernel_hash for record in records),
        "kernel_hash_now": kernel_hash(spec),
        "autotune": autotune.__version__,
        "date": datetime.now(UTC).date(),
    }

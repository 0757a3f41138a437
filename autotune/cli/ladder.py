"""`autotune ladder`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.cli.options import WholeNumber, db_option, json_option, project_folders, project_option
from autotune.cli.output import note, print_json, table

if TYPE_CHECKING:
    from autotune.ladder.result import LadderResult


@click.command(
    "ladder",
    epilog="""\b
Examples:
  autotune ladder
  autotune ladder --tune 12 --save ladder.json --out ladder.png
  autotune ladder --table ladder.json
  autotune ladder --gpu a6000            # predicted where that GPU is not here""",
)
@click.option(
    "--gpu",
    default="local",
    show_default=True,
    metavar="GPU",
    help="Table name, a GPU's own name, or 'local' for the one in this machine.",
)
@click.option(
    "--size", default="4096", show_default=True, metavar="SIZE", help="4096, or MxNxK, of all the steps."
)
@click.option(
    "--tune",
    type=WholeNumber(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Configurations tried of each step: its default, and those that the model ranks best.",
)
@click.option(
    "--out",
    "picture",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.png",
    help="Bar chart; needs matplotlib (cuda-autotune[plot]).",
)
@click.option(
    "--save",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.json",
    help="Keep the result, to be shown again with --table.",
)
@click.option(
    "--table",
    "recorded",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.json",
    help="Show a recorded ladder; nothing is run.",
)
@click.option("--commit", default="", metavar="TEXT", help="Kept with the result.")
@db_option
@project_option
@json_option
def ladder_command(
    gpu: str,
    size: str,
    tune: int,
    picture: Path | None,
    save: Path | None,
    recorded: Path | None,
    commit: str,
    db: str | None,
    projects: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Measure the ladder: each step from the naive kernel to the production one, beside cuBLAS.

    All of them are verified, then measured in turn in one run, with the chip's highest rate of FP32
    multiply-adds. Where the GPU is not in this machine their times are predicted. Without --gpu, exit code 3
    where no GPU is here.
    """
    from autotune.errors import InputError
    from autotune.ladder.plot import check_plot, plot
    from autotune.ladder.result import read_result, write_result
    from autotune.ladder.start import measure_ladder
    from autotune.target import find_target

    folders = project_folders(projects)
    if picture:
        check_plot(picture)
    if save and not save.resolve().parent.is_dir():
        raise InputError(f"no such folder: {save.parent}", key="--save")
    result = (
        read_result(recorded)
        if recorded
        else measure_ladder(
            find_target(gpu, folders), size, tune, commit=commit, db=db, folders=folders, tell=note
        )
    )
    if save:
        write_result(result, save)
    if picture:
        plot(result, picture)
    if as_json:
        print_json(result)
    else:
        _print(result)


def _print(result: LadderResult) -> None:
    from autotune.ladder.table import COLUMNS, COMPARED_COLUMNS, bars, compared_rows, remarks, rows

    where = result.provenance
    predicted = result.origin == "predicted"
    click.echo(
        f"{result.ladder} {result.size} on {where.gpu}{': PREDICTED, nothing was measured' if predicted else ''}"
    )
    table("", COLUMNS, rows(result))
    click.echo("")
    table("", ("", "", "GFLOP/s"), bars(result))
    peak = "at the sustained clock" if predicted else "measured in the same run"
    click.echo(f"peak of FP32 multiply-adds, {peak}: {result.peak_gflops:,.0f} GFLOP/s")
    for line in remarks(result):
        click.echo(line)
    for comparison in result.comparisons:
        click.echo(f"\n{comparison.title}, {comparison.size}")
        table("", COMPARED_COLUMNS, compared_rows(comparison))
    click.echo(f"\nseed: {result.seed_gpu}: {result.seed_source}")
    click.echo("bytes are counted, not measured: global ones before any cache, shared ones of all lanes")
    versions = " · ".join(
        text
        for text in (where.driver and f"driver {where.driver}", where.nvrtc and f"NVRTC {where.nvrtc}")
        if text
    )
    click.echo(
        f"{where.protocol} · {versions} · {where.date}{f' · commit {where.commit}' if where.commit else ''}"
    )

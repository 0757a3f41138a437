"""`autotune bench`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.cli.options import (
    db_option,
    gpu_help,
    json_option,
    kernel_option,
    project_folders,
    project_option,
)
from autotune.cli.output import note, print_json, table
from autotune.errors import InputError

if TYPE_CHECKING:
    from autotune.bench.request import BenchProgress
    from autotune.bench.result import BenchResult, ShapeResult


@click.command(
    "bench",
    epilog="""\b
Examples:
  autotune bench --suite sgemm
  autotune bench --suite sgemm --shapes skinny_m,cube_4096x4096x4096 --mode warm
  autotune bench --suite sgemm --out results.json --plot suite.png --limit 600

Run the same command with the same --out again to go on where it stopped; Ctrl-C keeps every finished shape.""",
)
@click.option(
    "--suite", "suite_name", default="sgemm", show_default=True, metavar="NAME|FILE", help="Which sizes."
)
@click.option("--gpu", default="local", show_default=True, metavar="GPU", help=gpu_help)
@kernel_option
@click.option(
    "--shapes", metavar="NAME,...", help="Only these shapes or groups of the suite. Default: all of them."
)
@click.option("--mode", default="warm,cold", show_default=True, metavar="MODES", help="warm, cold, or both.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.json",
    help="Written after each shape; shapes that are in it already are not measured again.",
)
@click.option("--fresh", is_flag=True, help="Measure all shapes, also those that --out has already.")
@click.option(
    "--plot",
    "picture",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.png",
    help="Bars of all ratios; needs matplotlib (cuda-autotune[plot]).",
)
@click.option(
    "--limit", type=click.FloatRange(min=0), metavar="SECONDS", help="Begin no further shape after this."
)
@click.option("--commit", default="", metavar="TEXT", help="Kept with the result; another one starts afresh.")
@db_option
@project_option
@json_option
def bench_command(
    suite_name: str,
    gpu: str,
    kernel: str,
    shapes: str | None,
    mode: str,
    out: Path | None,
    fresh: bool,
    picture: Path | None,
    limit: float | None,
    commit: str,
    db: str | None,
    projects: tuple[Path, ...],
    as_json: bool,
) -> int:
    """Measure a suite side by side: the tuned kernel, its default, cuBLAS and the best of cuBLASLt.

    All of them are checked against float64 and measured in turn, in an order that changes from round to round,
    with the tuned kernel twice under two names. Needs the GPU. Exit code 4 where no shape got a time.
    """
    import uuid

    from autotune.bench.choose import chooser
    from autotune.bench.keep import baseline_records
    from autotune.bench.plot import check_plot, plot
    from autotune.bench.request import BenchRequest, choose_modes, choose_shapes
    from autotune.bench.result import TUNED, read_result, write_result
    from autotune.bench.run import Bench
    from autotune.compile.pool import CompilePool
    from autotune.device.stages import GpuStages
    from autotune.errors import GpuUnavailable
    from autotune.spec.load import load_spec
    from autotune.store import open_store
    from autotune.suites import load_suite
    from autotune.target import find_target

    folders = project_folders(projects)
    spec = load_spec(kernel, folders)
    suite = load_suite(suite_name, spec, folders)
    chosen = choose_shapes(suite, [part.strip() for part in (shapes or "").split(",") if part.strip()])
    protocols = choose_modes(mode)
    if picture:
        check_plot(picture)
    if out and not out.resolve().parent.is_dir():
        raise InputError(f"no such folder: {out.parent}", key="--out")
    previous = read_result(out) if out and out.exists() else None
    target = find_target(gpu, folders)
    if target.local is None:
        raise GpuUnavailable(f"{target.gpu.name} is not in this machine, and a bench measures")
    local = target.local
    request = BenchRequest(
        spec=spec,
        suite=suite,
        shapes=chosen,
        protocols=protocols,
        gpu=local.spec,
        device=local.identity,
        environment=local.environment,
        board=local.uuid,
        session=uuid.uuid4().hex,
        commit=commit,
        limit_s=limit,
        fresh=fresh,
    )
    if previous and previous.provenance != request.provenance:
        note(f"{out} is of another kernel, commit, GPU or driver: all shapes are measured afresh")

    with open_store(db) as store, CompilePool() as pool, GpuStages(local, pool) as stages:

        def save(shape: ShapeResult, result: BenchResult) -> None:
            store.add_many(baseline_records(request, shape))
            if out:
                write_result(result, out)

        bench = Bench(
            request,
            stages,
            chooser(store, spec, local.spec, local.environment, folders),
            on_event=_show,
            on_shape=save,
        )
        result = bench.run(previous)
    if out and result.shapes:
        write_result(result, out)
    if picture and result.shapes:
        plot(result, picture)
    if as_json:
        from autotune.bench.result import to_document

        print_json(to_document(result))
    else:
        _print(result)
    if result.interrupted:
        return 130
    timed = any(one.entry(TUNED) for shape in result.shapes for one in shape.modes)
    return 0 if timed or not result.shapes else 4


def _show(progress: BenchProgress) -> None:
    note(f"{progress.number}/{progress.total} {progress.shape}: {progress.text}")


def _print(result: BenchResult) -> None:
    from autotune.bench.summary import modes_of, same_twice
    from autotune.bench.table import COLUMNS, MEAN_COLUMNS, failures, mean_rows, rows

    for mode in modes_of(result.shapes):
        table(f"{mode}: times as fast as the others", COLUMNS, rows(result, mode))
        click.echo()
        table(f"{mode}: geometric means", MEAN_COLUMNS, mean_rows(result, mode))
        again = same_twice(result.shapes, mode)
        if again:
            click.echo(f"the same kernel twice: ratios from {again[0]:.3f} to {again[1]:.3f}")
        click.echo()
    if result.copy_gbps:
        click.echo(f"a large copy from cold memory: {result.copy_gbps:,.0f} GB/s")
    for line in failures(result):
        note(line)
    if result.left_out:
        note(f"not measured: {', '.join(result.left_out)}")

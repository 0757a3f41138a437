"""`autotune verify`."""

from __future__ import annotations

from pathlib import Path

import click

from autotune.cli.options import (
    class_option,
    db_option,
    gpu_option,
    json_option,
    kernel_option,
    parse_config,
    problems_of,
    project_folders,
    project_option,
    size_option,
)
from autotune.cli.output import print_json


@click.command(
    "verify",
    epilog="""\b
Examples:
  autotune verify --gpu local --size 4096
  autotune verify --gpu local --size 1000x999x37 --config BM=64,BN=64""",
)
@gpu_option
@kernel_option
@size_option
@class_option
@click.option("--config", "config_text", metavar="NAME=VALUE,...", help="Instead of the best one known.")
@db_option
@project_option
@json_option
def verify_command(
    gpu: str,
    kernel: str,
    sizes: tuple[str, ...],
    classes: tuple[str, ...],
    config_text: str | None,
    db: str | None,
    projects: tuple[Path, ...],
    as_json: bool,
) -> int:
    """Verify a configuration on the GPU where kernels break.

    Sizes off the tile, a depth smaller than the tile's, odd leading dimensions, offset pointers, beta zero
    with NaN in C, empty sums. Needs the GPU; exit code 4 where a result is wrong.
    """
    from autotune.answers import best
    from autotune.candidate import Candidate
    from autotune.compile.pool import CompilePool
    from autotune.device.stages import GpuStages
    from autotune.errors import GpuUnavailable, StageFailure
    from autotune.spec.load import load_spec
    from autotune.target import find_target
    from autotune.thorough import verify_thoroughly

    folders = project_folders(projects)
    spec = load_spec(kernel, folders)
    target = find_target(gpu, folders)
    if target.local is None:
        raise GpuUnavailable(f"{target.gpu.name} is not in this machine, and verifying runs kernels on it")
    base = spec.default_config(target.gpu.table)
    results: list[dict[str, object]] = []
    with CompilePool() as pool, GpuStages(target.local, pool) as stages:
        for problem in problems_of(sizes, None, classes, spec, folders):
            config = (
                parse_config(config_text, spec, base)
                if config_text
                else best(gpu, problem, spec, db=db, folders=folders).config
            )
            result: dict[str, object] = {"size": problem.label, "problem": problem, "config": config}
            try:
                accuracy = verify_thoroughly(Candidate(spec, target.gpu, problem, config), stages)
                result |= {"right": True, "accuracy": accuracy}
            except StageFailure as failure:
                result |= {"right": False, "status": failure.status, "reason": failure.reason}
            results.append(result)
    if as_json:
        print_json(results)
    else:
        for result in results:
            verdict = (
                "right at all sizes tried" if result["right"] else f"{result['status']}: {result['reason']}"
            )
            click.echo(f"{result['size']}: {verdict}\n  {result['config']}")
    return 0 if all(result["right"] for result in results) else 4

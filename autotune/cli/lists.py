"""`autotune gpus` and `autotune kernels`."""

from __future__ import annotations

from pathlib import Path

import click

from autotune.cli.options import json_option, project_folders, project_option
from autotune.cli.output import note, print_json, table


@click.command("gpus", epilog="Example: autotune gpus --json")
@project_option
@json_option
def gpus_command(projects: tuple[Path, ...], as_json: bool) -> None:
    """List the known GPU tables, and mark the GPUs that are in this machine."""
    from autotune.device.local import local_gpus
    from autotune.gpu_tables import list_gpus

    folders = project_folders(projects)
    tables = list_gpus(folders)
    boards = local_gpus(folders)
    if as_json:
        print_json({"tables": tables, "local": boards})
        return
    here = {board.spec.table for board in boards}
    table(
        "",
        ["table", "name", "arch", "SMs", "TFLOP/s", "GB/s", "smem KB", "here"],
        [
            (
                gpu.table,
                gpu.name,
                gpu.arch,
                gpu.sm_count,
                round(gpu.peak_fp32_tflops, 1),
                round(gpu.memory_gbps),
                gpu.smem_per_block_bytes // 1024,
                "yes" if gpu.table in here else "",
            )
            for gpu in tables
        ],
    )
    for board in boards:
        note(f"GPU {board.index} here: {board.spec.name}, {board.uuid}, PCI {board.pci_bus_id}")


@click.command("kernels", epilog="Example: autotune kernels --project my-kernels")
@project_option
@json_option
def kernels_command(projects: tuple[Path, ...], as_json: bool) -> int:
    """List the kernels that can be tuned, shipped and your own.

    One whose spec is wrong is named on stderr, and the exit code is then 2.
    """
    from autotune.errors import InputError
    from autotune.spec.load import list_kernels, load_spec

    folders = project_folders(projects)
    specs, troubles = [], []
    for name in list_kernels(folders):
        try:
            specs.append(load_spec(name, folders))
        except InputError as error:
            troubles.append(error)
    for trouble in troubles:
        note(f"error: {trouble}")
    code = 2 if troubles else 0
    if as_json:
        print_json(
            [
                {
                    "kernel": spec.name,
                    "sizes": spec.problem.sizes,
                    "dtype": spec.problem.dtype,
                    "parameters": {parameter.name: parameter.values for parameter in spec.parameters},
                    "file": spec.source_file,
                }
                for spec in specs
            ]
        )
        return code
    table(
        "",
        ["kernel", "problem", "dtype", "parameters", "spec"],
        [
            (
                spec.name,
                "x".join(spec.problem.sizes),
                spec.problem.dtype,
                len(spec.parameters),
                str(spec.source_file or "built in Python"),
            )
            for spec in specs
        ],
    )
    return code

"""`autotune explain`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.cli.options import (
    class_option,
    gpu_option,
    json_option,
    kernel_option,
    parse_config,
    problems_of,
    project_folders,
    project_option,
    resolve_gpu,
)
from autotune.cli.output import format_ms, print_json, table

if TYPE_CHECKING:
    from autotune.explain import Explanation


@click.command(
    "explain",
    epilog="""\b
Examples:
  autotune explain --gpu a6000 --size 4092 --class beta=general
  autotune explain --gpu h200 --config BM=128,BN=256,MINB=1 --size 4096x4096x1024 --compile""",
)
@gpu_option
@kernel_option
@click.option(
    "--config",
    "config_text",
    default="",
    metavar="NAME=VALUE,...",
    help="Parameters that differ from the GPU's default configuration.",
)
@click.option(
    "--size",
    default="4096",
    show_default=True,
    metavar="SIZE",
    help="4096 for all sizes equal, or one number per size: 4096x4096x1024.",
)
@class_option
@click.option(
    "--compile", "compiles", is_flag=True, help="Compile for exact registers, spills and shared memory."
)
@project_option
@json_option
def explain_command(
    gpu: str,
    kernel: str,
    config_text: str,
    size: str,
    classes: tuple[str, ...],
    compiles: bool,
    projects: tuple[Path, ...],
    as_json: bool,
) -> int:
    """Show what one configuration takes of a GPU and what limits it.

    Threads, shared memory, registers, blocks per SM and their limiter, wave and tile quantisation, arithmetic
    intensity, the roofline's floor for the size, shared-memory bank conflicts, and every rule it breaks.
    """
    from autotune.candidate import Candidate
    from autotune.compile.compiler import compile_source
    from autotune.explain import explain
    from autotune.legality import violations
    from autotune.render import render
    from autotune.spec.load import load_spec

    folders = project_folders(projects)
    spec = load_spec(kernel, folders)
    target = resolve_gpu(gpu, folders)
    config = parse_config(config_text, spec, spec.default_config(target.table))
    problem = problems_of([size], None, classes, spec, folders)[0]
    candidate = Candidate(spec, target, problem, config)
    resources = None
    if compiles and not violations(spec, target, problem, config):
        resources = compile_source(render(spec, target, problem, config), target.arch).resources
    found = explain(candidate, resources)
    if as_json:
        print_json({**_json(found), "legal": found.legal})
    else:
        _print(found)
    return 0 if found.legal else 4


def _json(found: Explanation) -> dict[str, object]:
    return {
        "kernel": found.candidate.spec.name,
        "gpu": found.candidate.gpu.table,
        "problem": found.candidate.problem,
        "config": found.candidate.config,
        "roofline": {
            "flops": found.roofline.flops,
            "bytes": found.roofline.bytes,
            "intensity": found.roofline.intensity,
            "boost_ms": found.roofline.boost_ms,
            "quoted_ms": found.roofline.quoted_ms,
            "memory_ms": found.roofline.memory_ms,
            "bound_by": found.roofline.bound_by,
        },
        "use": found.use,
        "violations": found.violations,
        "nearest": found.nearest,
        "notes": found.notes,
        "predicted_ms": found.predicted_ms,
    }


def _print(found: Explanation) -> None:
    gpu, roofline, use = found.candidate.gpu, found.roofline, found.use
    click.echo(f"{found.candidate.spec.name} {found.candidate.problem.label} on {gpu.name}")
    click.echo(f"{found.candidate.config.key}\n")
    rows: list[tuple[str, str]] = [
        ("work", f"{roofline.flops / 1e9:.2f} GFLOP, {roofline.bytes / 1e6:.1f} MB"),
        ("intensity", f"{roofline.intensity:.1f} FLOP/B, bound by {roofline.bound_by}"),
        ("floor at boost clock", f"{format_ms(roofline.boost_ms)} ({gpu.peak_fp32_tflops:.1f} TFLOP/s)"),
    ]
    if roofline.quoted_ms is not None:
        rows.append(
            ("floor at quoted rate", f"{format_ms(roofline.quoted_ms)} ({gpu.quoted_fp32_tflops:g} TFLOP/s)")
        )
    rows.append(("floor of memory", f"{format_ms(roofline.memory_ms)} ({gpu.memory_gbps:g} GB/s)"))
    if use:
        held = use.occupancy
        exact = "compiled" if use.registers_exact else "estimated; --compile tells"
        smem = f"{use.dynamic_smem_bytes} B dynamic"
        smem += f" + {use.static_smem_bytes} B static" if use.static_smem_bytes else ""
        rows += [
            ("threads per block", str(use.threads)),
            ("shared memory per block", f"{smem}, of {gpu.smem_per_block_bytes}"),
            ("registers per thread", f"{use.registers} ({exact})"),
            ("spills per thread", f"{use.spill_bytes} B" if use.registers_exact else "unknown"),
            ("blocks per SM", f"{held.blocks_per_sm}, limited by {held.limiter}"),
            ("", ", ".join(f"{name} {blocks}" for name, blocks in held.limits.items())),
            ("occupancy", f"{held.warps} of {held.max_warps} warps, {held.fraction:.0%}"),
            ("grid", f"{use.blocks} blocks, {use.waves:.2f} waves, {use.wave_efficiency:.0%} full"),
        ]
        if use.tile_efficiency is not None:
            rows.append(("tiles", f"{use.tile_efficiency:.0%} of the computed elements are needed"))
        for access in use.accesses:
            extra = "" if access.wavefronts <= access.ideal else f" (ideal {access.ideal})"
            rows.append((f"shared access {access.name}", f"{access.wavefronts} wavefronts{extra}"))
    if found.predicted_ms is not None:
        rows.append(("predicted time", f"{format_ms(found.predicted_ms)}, a model's figure"))
    table("", ["", ""], rows)
    for note_text in found.notes:
        click.echo(f"unpromising: {note_text}")
    for violation in found.violations:
        click.echo(f"illegal: {violation}", err=True)
    if found.nearest:
        click.echo(f"nearest legal: {found.nearest.key}", err=True)

"""Tuned kernels handed over: a C++ header, JSON, or compiled binaries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autotune.errors import InputError, nearest_name
from autotune.exporter.entries import ExportEntry, ExportReport, cover, unique_sizes
from autotune.exporter.variants import class_rules
from autotune.gpu import GpuSpec
from autotune.spec.kernel_spec import KernelSpec

__all__ = ["FORMATS", "ExportEntry", "ExportReport", "export"]

FORMATS = ("header", "json", "cubin")
"""What `export` can write: a CUDA C++ header, a JSON file, or a folder of binaries for the driver API."""


def export(
    spec: KernelSpec,
    gpu: GpuSpec,
    entries: Sequence[ExportEntry],
    path: Path,
    format: str = "header",
    max_kernels: int | None = None,
) -> ExportReport:
    """Writes the entries in one of `FORMATS` and says what was written; the same input gives the same bytes.

    Of several entries with the same sizes one is taken, of more than `max_kernels` configurations those
    whose sizes cover the others best. A header also gets the kernel's default configuration for sizes
    unlike all of these. Raises InputError, with nothing written.
    """
    if format not in FORMATS:
        raise InputError(
            f"must be one of {', '.join(FORMATS)}, got {format!r}",
            key="format",
            nearest=nearest_name(format, FORMATS),
        )
    if not entries:
        raise InputError("there is nothing to export", key="entries")
    rules = class_rules(spec, [entry.problem for entry in entries])
    told = [rule.name for rule in rules if rule.kind == "told"]
    chosen = cover(unique_sizes(entries, told), max_kernels)
    if format == "json":
        from autotune.exporter.json_export import export_json

        return export_json(spec, gpu, chosen, path)
    if format == "cubin":
        from autotune.exporter.cubin_export import export_cubins

        return export_cubins(spec, gpu, chosen, path)
    from autotune.exporter.header import export_header

    return export_header(spec, gpu, chosen, path, default_entry(spec, gpu, chosen[0]))


def default_entry(spec: KernelSpec, gpu: GpuSpec, like: ExportEntry) -> ExportEntry:
    """The kernel's default configuration on this GPU, or the nearest to it that is legal there.

    None of its starts: they are for certain sizes, and this is for any.
    """
    from autotune.legality import nearest_legal, search_space, violations

    config = spec.default_config(gpu.table)
    if violations(spec, gpu, like.problem, config):
        config = nearest_legal(search_space(spec, gpu, like.problem), config)
    return ExportEntry(like.problem, config, None, "default")

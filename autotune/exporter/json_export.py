"""Tuned configurations as JSON: one entry for each size, with its figures and where they come from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from autotune import __version__
from autotune.config import Value
from autotune.exporter.entries import OTHER_SIZES, ExportEntry, ExportReport
from autotune.exporter.write import write_atomically
from autotune.gpu import GpuSpec
from autotune.render import kernel_hash
from autotune.spec.kernel_spec import KernelSpec

FORMAT = "autotune-configs/1"
"""Raised whenever the meaning of a key changes."""


def export_json(spec: KernelSpec, gpu: GpuSpec, entries: Sequence[ExportEntry], path: Path) -> ExportReport:
    """Writes the JSON file and says what is in it."""
    document = {
        "format": FORMAT,
        "autotune": __version__,
        "kernel": spec.name,
        "kernel_hash": kernel_hash(spec),
        "gpu": {"table": gpu.table, "name": gpu.name, "arch": gpu.arch},
        "other_sizes": OTHER_SIZES,
        "entries": [entry_json(spec, entry) for entry in entries],
    }
    text = json.dumps(document, indent=2) + "\n"
    write_atomically(path, text)
    return ExportReport(
        path=path,
        kernels=len({entry.config for entry in entries}),
        sizes=len(entries),
        predicted=not all(entry.measured for entry in entries),
        bytes=len(text.encode()),
    )


def entry_json(spec: KernelSpec, entry: ExportEntry) -> dict[str, object]:
    """One entry as a JSON object; figures are null where there are none."""
    return {
        "sizes": dict(entry.problem.sizes),
        "dtype": entry.problem.dtype,
        "classes": plain(dict(entry.problem.classes)),
        "config": plain(dict(entry.config)),
        "match": entry.match,
        "measured": entry.measured,
        "time_ms": entry.time_ms,
        "gflops": entry.gflops(spec),
        "vendor_ratio": entry.baseline_ratio,
        "provenance": _provenance(entry),
    }


def plain(values: dict[str, Value]) -> dict[str, object]:
    """Values as JSON holds them: tuples become lists."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _provenance(entry: ExportEntry) -> dict[str, object] | None:
    record = entry.record
    if record is None:
        return None
    return {
        "origin": str(record.outcome.origin),
        "created": record.created.isoformat(),
        "sizes": dict(record.problem.sizes),
        "protocol": record.protocol,
        "device": asdict(record.device),
        "environment": asdict(record.environment),
        "kernel_hash": record.kernel_hash,
        "study": record.study,
        "uid": record.uid,
    }

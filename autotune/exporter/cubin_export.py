"""Tuned kernels as binaries for the CUDA driver API: a folder of cubins with their sources and `meta.json`.

`meta.json` lists the kernels, their compiled variants in the order to try them, and of each variant what
the caller needs: the file, the name to look up, grid and block as expressions over the sizes, dynamic
shared memory, arguments in order, and the problem classes and variant constants it was compiled with.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from autotune import __version__
from autotune.candidate import CompiledKernel
from autotune.compile.compiler import compile_source
from autotune.errors import InputError, StageFailure
from autotune.exporter.call_rules import cxx_name
from autotune.exporter.entries import OTHER_SIZES, ExportEntry, ExportReport
from autotune.exporter.json_export import entry_json, plain
from autotune.exporter.variants import Row, class_rules, compiled_rows, told
from autotune.gpu import GpuSpec
from autotune.launch import plan_launch
from autotune.render import kernel_hash
from autotune.spec.kernel_spec import (
    Argument,
    ArrayArgument,
    KernelSpec,
    ScalarArgument,
    ScratchArgument,
    StrideArgument,
)

FORMAT = "autotune-cubins/1"
"""Raised whenever the meaning of a key in `meta.json` changes."""
META = "meta.json"


def export_cubins(spec: KernelSpec, gpu: GpuSpec, entries: Sequence[ExportEntry], path: Path) -> ExportReport:
    """Compiles every variant and writes the folder, which appears whole or not at all.

    An earlier export at `path` is replaced; anything else there is left alone, with an InputError. Raises
    InputError too where a variant does not compile, and NvrtcMissing.
    """
    _check_target(path)
    configs = list(dict.fromkeys(entry.config for entry in entries))
    rules = class_rules(spec, [entry.problem for entry in entries])
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=_parent(path)) as temporary:
        folder = Path(temporary) / path.name
        folder.mkdir()
        kernels = []
        for number, config in enumerate(configs):
            entry = next(entry for entry in entries if entry.config == config)
            own = [told(rules, each.problem) for each in entries if each.config == config]
            combinations = list(dict.fromkeys(own))
            rows = compiled_rows(spec, gpu, entry.problem, config, rules=rules, combinations=combinations)
            variants = [
                _write_variant(spec, gpu, entry, row, folder, f"{number}_{i}") for i, row in enumerate(rows)
            ]
            kernels.append({"config": plain(dict(config)), "variants": variants})
        meta = {
            "format": FORMAT,
            "autotune": __version__,
            "kernel": spec.name,
            "kernel_hash": kernel_hash(spec),
            "gpu": {"table": gpu.table, "name": gpu.name, "arch": gpu.arch},
            "arguments": [_argument(argument) for argument in spec.arguments],
            "grid": [expression.text for expression in spec.launch.grid],
            "classes": {rule.name: rule.kind for rule in rules},
            "other_sizes": OTHER_SIZES,
            "kernels": kernels,
            "entries": [
                {**entry_json(spec, entry), "kernel": configs.index(entry.config)} for entry in entries
            ],
        }
        (folder / META).write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")
        total = sum(file.stat().st_size for file in folder.iterdir())
        _replace(path, folder)
    return ExportReport(
        path=path,
        kernels=len(configs),
        sizes=len(entries),
        predicted=not all(entry.measured for entry in entries),
        bytes=total,
    )


def _write_variant(
    spec: KernelSpec, gpu: GpuSpec, entry: ExportEntry, row: Row, folder: Path, number: str
) -> dict[str, object]:
    try:
        kernel: CompiledKernel = compile_source(row.source, gpu.arch)
    except StageFailure as failure:
        raise InputError(
            f"{row.label} does not compile: {failure.reason}", str(row.source.template)
        ) from failure
    name = f"{cxx_name(spec.name)}_{gpu.table}_{number}"
    shutil.copyfile(kernel.image, folder / f"{name}.cubin")
    (folder / f"{name}.cu").write_text(row.source.text, encoding="utf-8")
    launch = plan_launch(spec, row.problem, entry.config, gpu)
    return {
        "image": f"{name}.cubin",
        "source": f"{name}.cu",
        "entry": kernel.entry,
        "compiler": kernel.compiler,
        "classes": plain(dict(row.problem.classes)),
        "variants": plain(dict(row.variants)),
        "block": list(launch.block),
        "dynamic_smem_bytes": launch.dynamic_smem_bytes,
        **({"scratch_bytes": spec.scratch.bytes.text} if spec.scratch else {}),
        "registers": kernel.resources.registers,
    }


def _argument(argument: Argument) -> dict[str, str]:
    match argument:
        case ArrayArgument(name=name, role=role, dtype=dtype):
            return {"name": name, "kind": role, "dtype": dtype}
        case ScalarArgument(name=name, dtype=dtype):
            return {"name": name, "kind": "scalar", "dtype": dtype}
        case ScratchArgument(name=name):
            # Zero when a launch starts and left zero by it; a null pointer where `scratch_bytes` gives 0.
            return {"name": name, "kind": "scratch", "dtype": "pointer"}
        case StrideArgument(name=name):
            return {"name": name, "kind": "stride", "dtype": "int64"}
        case _:
            return {
                "name": argument.name,
                "kind": type(argument).__name__[: -len("Argument")].lower(),
                "dtype": "int32",
            }


def _parent(path: Path) -> Path:
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent}", key="output")
    return path.parent


def _check_target(path: Path) -> None:
    if path.is_file() or (path.is_dir() and any(path.iterdir()) and not _ours(path)):
        rule = f"{path} exists and is not an earlier export of this format"
        raise InputError(rule, key="output", nearest="name a new folder")


def _ours(path: Path) -> bool:
    try:
        return bool(json.loads((path / META).read_text(encoding="utf-8")).get("format") == FORMAT)
    except (OSError, ValueError, AttributeError):
        return False


def _replace(path: Path, folder: Path) -> None:
    if path.exists():
        path.replace(folder.parent / "replaced")  # goes with the temporary folder
    folder.replace(path)

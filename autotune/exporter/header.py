"""A self-contained CUDA header from tuned configurations: kernels, the rule that chooses among them, a
launcher.

The frame is `templates/export/header.cuh.j2`; this module fills it. The same input gives the same bytes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.config import Config
from autotune.errors import InputError
from autotune.exporter.call_rules import CallRules, cxx_name
from autotune.exporter.column_major import column_major
from autotune.exporter.cxx import HELPERS, Strings
from autotune.exporter.embed import Embedded, embed, identifiers, shielded_names, without_comments
from autotune.exporter.entries import FAR, ExportEntry, ExportReport
from autotune.exporter.head_comment import head_comment
from autotune.exporter.variants import Row, all_told, class_rules, compiled_rows, told
from autotune.exporter.write import write_atomically
from autotune.gpu import GpuSpec
from autotune.render import render_layout
from autotune.spec.kernel_spec import KernelSpec

LAYOUT = "export/header.cuh.j2"
_COMMON_MACROS = ("min", "max", "CEIL_DIV")
"""Names that platform headers and kernels define as macros, to the ruin of the standard headers."""


@dataclass(frozen=True)
class Body:
    """Kernel code that stands once in the header, in a namespace of its own."""

    scope: str
    comment: str
    embedded: Embedded
    text: str

    @property
    def macros(self) -> tuple[str, ...]:
        """What has to be undefined after it."""
        return self.embedded.macros


@dataclass(frozen=True)
class RowCode:
    """One compiled variant in the tables of the header."""

    number: int
    label: str
    condition: str
    function: str
    grid: list[str]
    block: list[str]
    smem: str
    scratch: str


@dataclass(frozen=True)
class KernelCode:
    """One configuration with its compiled variants."""

    config: str
    rows: list[RowCode]


@dataclass(frozen=True)
class TableRow:
    """One tuned size and the number of its kernel."""

    sizes: tuple[int, ...]
    logarithms: list[str]
    told: list[str]
    kernel: int


def export_header(
    spec: KernelSpec,
    gpu: GpuSpec,
    entries: Sequence[ExportEntry],
    path: Path,
    fallback: ExportEntry | None = None,
) -> ExportReport:
    """Writes the header for these entries, one for each combination of sizes, and says what is in it.

    `fallback` serves sizes farther than `FAR` octaves from all of them. Raises InputError where the kernel
    cannot be exported.
    """
    text = header_text(spec, gpu, entries, fallback)
    write_atomically(path, text)
    return ExportReport(
        path=path,
        kernels=len({entry.config for entry in (*entries, *([fallback] if fallback else []))}),
        sizes=len(entries),
        predicted=not all(entry.measured for entry in entries),
        bytes=len(text.encode()),
    )


def header_text(
    spec: KernelSpec, gpu: GpuSpec, entries: Sequence[ExportEntry], fallback: ExportEntry | None = None
) -> str:
    """The text of the header.

    Where the entries' problems differ in a class that a call does not show, the functions get an argument for it.
    """
    if not entries:
        raise InputError("there is nothing to export", key="entries")
    name, scope = cxx_name(spec.name), cxx_name(f"{spec.name}_{gpu.table}")
    classes = class_rules(spec, [entry.problem for entry in entries])
    rules = CallRules(spec, classes, Strings())
    far = fallback if fallback and fallback.config not in {entry.config for entry in entries} else None
    configs = list(dict.fromkeys(entry.config for entry in entries))
    tuned = [next(entry for entry in entries if entry.config == config) for config in configs]
    chosen = []
    for entry in tuned:
        own = [told(classes, each.problem) for each in entries if each.config == entry.config]
        every = fallback is not None and fallback.config == entry.config
        combinations = all_told(classes) if every else list(dict.fromkeys(own))
        rows = compiled_rows(spec, gpu, entry.problem, entry.config, rules=classes, combinations=combinations)
        chosen.append((entry, rows))
    if far:
        every_told = all_told(classes)
        rows = compiled_rows(spec, gpu, far.problem, far.config, True, classes, every_told)
        chosen.append((far, rows))
    default = len(configs) if far else configs.index(fallback.config) if fallback else None

    digest = hashlib.sha256()
    for entry, rows in chosen:
        for row in rows:
            digest.update(f"{entry.config.key}\0{row.label}\0{row.source.text}\0".encode())
    for entry in entries:
        digest.update(f"{entry.problem.key}\0{entry.config.key}\0".encode())
    tag = digest.hexdigest()[:12]

    bodies: dict[str, Body] = {}
    kernels: list[KernelCode] = []
    for entry, rows in chosen:
        first = sum(len(kernel.rows) for kernel in kernels)
        codes = [
            _row_code(first + i, row, _body(bodies, row, scope, tag, len(kernels)), rules, gpu, entry.config)
            for i, row in enumerate(rows)
        ]
        kernels.append(KernelCode(entry.config.key.replace("\\", "").replace('"', ""), codes))

    values: dict[str, object] = {
        "scope": scope,
        "name": name,
        "version": f"v_{tag}",
        "guard": f"AUTOTUNE_{scope.upper()}_{tag.upper()}_CUH",
        "summary": _summary(spec),
        "helpers": HELPERS,
        "members": rules.members,
        "types": rules.types,
        "parameters": rules.parameters,
        "arguments": ", ".join(rules.names),
        "enumerations": rules.enumerations,
        "told": rules.told_members,
        "scratch": spec.scratch is not None,
        "column_major": column_major(rules),
        "passed": ", ".join(f"const_cast<void*>(static_cast<const void*>(&{each}))" for each in rules.passed),
        "scalars": rules.scalars,
        "checks": rules.checks(),
        "sizes": [cxx_name(size) for size in spec.problem.sizes],
        "table": [_table_row(entry, configs, rules) for entry in entries],
        "kernels": kernels,
        "bodies": list(bodies.values()),
        "variant_count": sum(len(kernel.rows) for kernel in kernels),
        "far": repr(FAR),
        "far_kernel": len(configs) if far else None,
        "default_kernel": default,
        "static_limit": gpu.smem_static_limit_bytes,
    }
    system = [header for body in bodies.values() for header in body.embedded.system_includes]
    includes = ["cuda_runtime.h", *rules.type_headers, *system, "atomic", "cmath"]
    used = {
        *spec.parameter_names,
        *spec.derived,
        *spec.variants,
        *rules.members,
        *rules.names,
        *_COMMON_MACROS,
    }
    first_shield = shielded_names(map(cxx_name, used))
    defined = {macro for body in bodies.values() for macro in body.macros}
    nothing: list[str] = []
    bare = render_layout(
        LAYOUT,
        {**values, "head": nothing, "includes": nothing, "shielded_first": nothing, "shielded": nothing},
    )
    shielded = [each for each in shielded_names(identifiers(bare), defined) if each not in first_shield]
    return render_layout(
        LAYOUT,
        {
            **values,
            "head": head_comment(spec, gpu, entries, far, rules, kernels_text(chosen), tag),
            "includes": list(dict.fromkeys(includes)),
            "shielded_first": first_shield,
            "shielded": [each for each in shielded if not each.startswith("AUTOTUNE_")],
        },
    )


def kernels_text(chosen: Sequence[tuple[ExportEntry, Sequence[Row]]]) -> list[str]:
    """For the head comment: each kernel's configuration and the variants compiled of it."""
    lines = []
    for number, (entry, rows) in enumerate(chosen):
        lines.append(f"kernel {number}: {entry.config.key}")
        lines += [f"    {row.label}" for row in rows]
    return lines


def _body(bodies: dict[str, Body], row: Row, scope: str, tag: str, kernel: int) -> Body:
    known = bodies.get(row.source.text)
    if known is None:
        number = len(bodies)
        embedded = embed(
            row.source, f"autotune_{scope}_{tag}_{number}", f"autotune_smem_{scope}_{tag}_{number}"
        )
        # The comments are the same in every body; the first one keeps them.
        text = embedded.text if not bodies else without_comments(embedded.text)
        known = Body(f"autotune_body_{number}", f"kernel {kernel}, {row.label}", embedded, text.rstrip("\n"))
        bodies[row.source.text] = known
    return known


def _row_code(number: int, row: Row, body: Body, rules: CallRules, gpu: GpuSpec, config: Config) -> RowCode:
    grid, block, smem = rules.launch(row, gpu, config)
    function = f"{body.scope}::{body.embedded.entry}"
    scratch = rules.scratch(row, gpu, config)
    return RowCode(number, row.label, rules.condition(row, gpu, config), function, grid, block, smem, scratch)


def _table_row(entry: ExportEntry, configs: Sequence[Config], rules: CallRules) -> TableRow:
    sizes = tuple(size for _, size in entry.problem.sizes)
    logarithms = [repr(math.log2(max(size, 1))) for size in sizes]
    numbers = rules.told_numbers(told(rules.classes, entry.problem))
    return TableRow(sizes, logarithms, numbers, configs.index(entry.config))


def _summary(spec: KernelSpec) -> str:
    if spec.reference == "matmul" and spec.name == "sgemm":
        return "C[M, N] = alpha * A[M, K] * B[K, N] + beta * C, row-major; C is not read where beta is zero."
    return f"The kernel `{spec.name}`, with its arguments in the order of its specification."

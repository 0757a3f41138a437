"""The comment at the top of an exported header: what it holds, where the figures come from, how to call
it."""

from __future__ import annotations

from collections.abc import Sequence

from autotune import __version__
from autotune.config import value_text
from autotune.exporter.call_rules import CallRules, cxx_name
from autotune.exporter.entries import FAR, ExportEntry
from autotune.gpu import GpuSpec
from autotune.records import TrialRecord
from autotune.render import kernel_hash
from autotune.spec.kernel_spec import KernelSpec

WARNING = "*** PREDICTED, NOT MEASURED *** "
"""Opens the comment where any figure is not a measured one."""


def head_comment(
    spec: KernelSpec,
    gpu: GpuSpec,
    entries: Sequence[ExportEntry],
    fallback: ExportEntry | None,
    rules: CallRules,
    kernels: Sequence[str],
    tag: str,
) -> list[str]:
    """The lines of the comment."""
    scope, name = cxx_name(f"{spec.name}_{gpu.table}"), cxx_name(spec.name)
    lines = [
        f"{spec.name} for {gpu.name} (table {gpu.table}, {gpu.arch}), "
        f"written by autotune {__version__}. Do not edit."
    ]
    lines += _warning(entries)
    lines += ["", "Call", ""]
    lines += [
        f"    #include <this file>          // nvcc -arch={gpu.arch} -std=c++14 or later; or clang as CUDA"
    ]
    lines += [f"    cudaError_t status = autotune::{scope}::{name}(stream, {', '.join(rules.names)});", ""]
    lines += [
        "    All names lie in that namespace, with internal linkage: include the file as often as you like.",
        f"    `autotune::{scope}::{name}_choose(...)`, without the stream, says what a call would run.",
        *_workspace(spec, name),
        "",
        "Figures",
        "",
    ]
    lines += [f"    {text}" for text in _figures(spec, entries)]
    lines += ["", "Rule", ""]
    lines += [
        "    A call of exactly a size in the table runs that size's kernel. Any other runs the kernel of the",
        "    nearest size: least root of the sum of squared binary logarithms of the ratios, the earlier",
        "    in the table on a tie.",
    ]
    if fallback:
        lines += [f"    Where that exceeds {FAR:g}, the last kernel, an untuned default, runs instead."]
    lines += [f"    {text}" for text in _class_lines(rules, entries[0])]
    lines += [
        "    Of a kernel, the first variant listed that may serve the call is launched; one with GUARD=true",
        "    serves any size.",
        "",
        "Kernels and their compiled variants",
        "",
    ]
    lines += [f"    {text}" for text in kernels]
    lines += ["", "Provenance", ""]
    lines += [f"    {text}" for text in _provenance(spec, gpu, entries, tag)]
    lines += [
        "",
        "Licence: what autotune writes around the kernels, and the kernels from its own templates, are under",
        "Apache-2.0; a kernel from a template of yours stays under your terms.",
    ]
    return [line.rstrip() for line in lines]


def _workspace(spec: KernelSpec, name: str) -> list[str]:
    if spec.scratch is None:
        return []
    return [
        f"    A last argument may be device memory of `{name}_workspace_bytes(...)` bytes, zeroed once, for one",
        "    launch at a time; without it, a call that needs some takes it from the stream.",
    ]


def _warning(entries: Sequence[ExportEntry]) -> list[str]:
    unmeasured = [entry for entry in entries if not entry.measured]
    if not unmeasured:
        return []
    if len(unmeasured) == len(entries):
        return ["", f"{WARNING}The configurations come from a model or a default, not from runs on a GPU."]
    return ["", f"{WARNING}holds for {len(unmeasured)} of the {len(entries)} sizes: see the table."]


def _figures(spec: KernelSpec, entries: Sequence[ExportEntry]) -> list[str]:
    header = f"{'x'.join(spec.problem.sizes):>20} {'ms':>10} {'GFLOP/s':>10} {'x vendor':>9}  origin"
    lines = [header]
    for entry in entries:
        time_ms, gflops, ratio = entry.time_ms, entry.gflops(spec), entry.baseline_ratio
        figures = f"{_number(time_ms, '.4g'):>10} {_number(gflops, '.0f'):>10} {_number(ratio, '.2f'):>9}"
        lines.append(f"{entry.problem.label:>20} {figures}  {_origin(entry)}")
    if any(entry.baseline_ratio for entry in entries):
        lines.append(
            "x vendor: how many times as fast as the vendor's library (cuBLAS), measured the same way."
        )
    return lines


def _origin(entry: ExportEntry) -> str:
    if entry.record is None:
        return f"not tried ({entry.match})"
    origin = str(entry.record.outcome.origin)
    if not entry.measured:
        shown = origin.upper() if origin == "predicted" else f"{origin} at {entry.record.problem.label}"
        return f"{shown} ({entry.match})"
    return f"{origin} {entry.record.created:%Y-%m-%d} ({entry.match}, {entry.record.protocol})"


def _class_lines(rules: CallRules, example: ExportEntry) -> list[str]:
    lines = []
    for rule in rules.classes:
        match rule.kind:
            case "alignment":
                arrays = ", ".join(array.name for array in rule.arrays)
                lines.append(
                    f"{rule.name}: the widest of {_listed(rule.problem_class.values)} that address and pitch "
                    f"of {arrays} allow."
                )
            case "scalar":
                pinned = ", ".join(
                    f"{value_text(value)} where {rule.scalar} is {number:g}" for value, number in rule.pinned
                )
                lines.append(f"{rule.name}: {pinned}, else {value_text(rule.rest)}.")
            case "computed":
                lines.append(f"{rule.name}: {rule.problem_class.default.text}.")
            case "told":
                lines.append(
                    f"{rule.name}: an argument, {rules.enumeration(rule)}::{_listed(rule.served)}; a kernel is chosen "
                    "among those tuned for its value."
                )
            case _:
                lines.append(
                    f"{rule.name}: {value_text(dict(example.problem.classes)[rule.name])} in this header."
                )
    return lines


def _provenance(spec: KernelSpec, gpu: GpuSpec, entries: Sequence[ExportEntry], tag: str) -> list[str]:
    lines = [f"kernel {spec.name}, hash {kernel_hash(spec)}; contents {tag}"]
    records = [entry.record for entry in entries if entry.record]
    for text in dict.fromkeys(_environment(record) for record in records):
        lines.append(text)
    if not records:
        lines.append(f"no record; made for {gpu.name}")
    return lines


def _environment(record: TrialRecord) -> str:
    device, software = record.device, record.environment
    driver = (
        f"driver {software.driver} (CUDA {software.cuda})" if software.driver else "no driver (compiled only)"
    )
    mig = f", MIG {device.mig_profile}" if device.mig_profile else ""
    return (
        f"{device.name}{mig}, {device.sm_count} SMs, {driver}, NVRTC {software.nvrtc}, "
        f"autotune {software.autotune}, protocol {record.protocol}, kernel hash {record.kernel_hash}"
    )


def _listed(values: Sequence[object]) -> str:
    return ", ".join(str(value) for value in values)


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)

"""Numbers that describe a configuration on a problem, mostly logarithms, for the learnt correction."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from autotune.columns import Array
from autotune.config import Value
from autotune.model.closed_form import Prepared
from autotune.model.constants import Constants
from autotune.model.terms import RooflineTerms, StepTerms
from autotune.spec.kernel_spec import KernelSpec

NEGLIGIBLE = -5.0
"""Binary logarithms of shares below this are taken for it."""


def describe(spec: KernelSpec, prepared: Prepared, constants: Constants) -> dict[str, Array]:
    """A column for each feature; what a spec derives may be a number for one problem and a text for another."""
    return lasting(spec, prepared) | bounds(prepared.terms, constants)


def lasting(spec: KernelSpec, prepared: Prepared) -> dict[str, Array]:
    """Those that the constants have no part in: what was asked for, how the grid fills the GPU, what a block takes."""
    rows = len(prepared.terms)
    found: dict[str, Array] = {}
    for parameter in spec.parameters:
        if len(parameter.values) > 1:
            found |= _value_columns(parameter.name, parameter.values, prepared.columns, rows)
    for name in [*spec.derived, *spec.variants]:
        column = _numbers(_full(prepared.columns[name], rows))
        if column is not None:
            found[name] = _logs(column)
    for name in spec.problem.sizes:
        found[f"size {name}"] = np.log2(np.maximum(_full(prepared.columns[name], rows), 1))
    for kind in spec.problem.classes:
        if len(kind.values) > 1:
            found |= _value_columns(kind.name, kind.values, prepared.columns, rows)
    use, terms = prepared.use, prepared.terms
    blocks = np.maximum(terms.blocks, 1)
    found |= {
        "log blocks": np.log2(blocks),
        "log blocks per SM": np.log2(use.blocks_per_sm),
        "log threads": np.log2(np.maximum(use.threads, 1)),
        "log registers": np.log2(np.maximum(use.registers, 1)),
        "log spills": np.log2(1 + use.spill_bytes),
    }
    if isinstance(terms, StepTerms):
        waves = blocks / (terms.sm_count * use.blocks_per_sm)
        found |= {
            "log waves": np.log2(waves),
            "log waves begun": np.log2(np.ceil(waves)),
            "log blocks on the fullest SM": np.log2(np.ceil(blocks / terms.sm_count)),
            "log steps": np.log2(np.maximum(terms.steps, 1)),
            "log output": np.log2(1 + terms.output_bytes),
        }
    return found


def bounds(terms: StepTerms | RooflineTerms, constants: Constants) -> dict[str, Array]:
    """What bounds the time by the closed form."""
    found = {"log time": np.log2(terms.time_ms(constants))}
    parts = terms.parts(constants)
    largest = np.maximum(np.max(list(parts.values()), axis=0), 1e-30)
    for name, part in parts.items():
        found[f"share of {name}"] = np.maximum(np.log2(np.maximum(part, 1e-30) / largest), NEGLIGIBLE)
    return found


def _value_columns(
    name: str, values: tuple[Value, ...], columns: Mapping[str, Array | Value], rows: int
) -> dict[str, Array]:
    """One column for numbers, one for each but the first of other values."""
    column = _full(columns[name], rows)
    numbers = _numbers(column) if all(isinstance(value, int | float) for value in values) else None
    if numbers is not None:
        return {name: _logs(numbers)}
    listed = column.tolist()
    return {f"{name}={value}": np.array([float(one == value) for one in listed]) for value in values[1:]}


def _numbers(column: Array) -> Array | None:
    """The column as floats; None where there is a text or a tuple in it."""
    if column.dtype.kind == "O" and not all(isinstance(value, int | float) for value in column.tolist()):
        return None
    return None if column.dtype.kind in "US" else column.astype(float)


def _logs(numbers: Array) -> Array:
    """On a logarithmic scale; with a unit added, since many are 0 for "none"."""
    return np.asarray(np.sign(numbers) * np.log2(1 + np.abs(numbers)))


def _full(column: Array | Value, rows: int) -> Array:
    if isinstance(column, np.ndarray) and column.ndim:
        return column
    value = column.item() if isinstance(column, np.ndarray) else column
    array = np.empty(rows, dtype=object)
    array[:] = [value] * rows
    return array.astype(type(value)) if isinstance(value, bool | int | float) else array

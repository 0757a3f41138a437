"""The same product for column-major callers: C transposed is the product of B and A transposed, so operands swap."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.exporter.call_rules import CallRules, cxx_name


@dataclass(frozen=True)
class ColumnMajor:
    """The function beside the row-major one."""

    parameters: str
    """In the order that BLAS users know: rows of C first."""
    arguments: str
    """What the row-major function gets for them."""


def column_major(rules: CallRules) -> ColumnMajor | None:
    """How to call the kernel for column-major arrays; None for what is no plain matrix product."""
    arrays = rules.spec.arrays
    if rules.spec.reference != "matmul" or len(arrays) != 3:
        return None
    a, b, _ = arrays
    sizes = [[size.text for size in array.shape[-2:]] for array in arrays]
    if any(len(pair) != 2 for pair in sizes):
        return None
    (m, k), (k_too, n), (m_too, n_too) = sizes
    named = {m, n, k} <= set(rules.spec.problem.sizes)
    if not named or (m, n, k) != (m_too, n_too, k_too) or a.dtype != b.dtype:
        return None
    pairs = [(m, n), (a.name, b.name), (a.pitch, b.pitch)]
    pairs += [(a.stride, b.stride), (a.transposed, b.transposed)]
    swapped = {one: other for pair in pairs for one, other in (pair, pair[::-1]) if one and other}
    told = {rule.name: rule for rule in rules.classes if rule.kind == "told"}
    fixed = {rule.name: rule.served for rule in rules.classes if rule.kind == "fixed"}
    # Where one operand may lie in ways that the other may not, it cannot take its place.
    one, other = a.transposed, b.transposed
    if (one in told) != (other in told) or fixed.get(one) != fixed.get(other):
        return None
    back = {cxx_name(name): cxx_name(other) for name, other in swapped.items()}
    values = []
    for kind, name in rules.declared:
        other = back.get(name, name)
        rule = next((rule for rule in told.values() if cxx_name(rule.name) == name), None)
        values.append(_converted(kind, other) if rule is not None and other != name else other)
    return ColumnMajor(rules.parameters, ", ".join(values))


def _converted(kind: str, name: str) -> str:
    """One operand's layout as the other's: the enumerations have the same values in the same order."""
    return f"static_cast<{kind}>(static_cast<int>({name}))"

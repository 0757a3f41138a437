"""Which names and values a spec may use, however it is written: each name means one thing, each value has one text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from autotune.config import Value, value_text
from autotune.errors import InputError
from autotune.expressions import FUNCTIONS

GPU_NAMES = (
    "compute_capability",
    "sm_count",
    "smem_per_block_bytes",
    "smem_per_sm_bytes",
    "max_threads_per_block",
    "max_registers_per_thread",
    "registers_per_sm",
    "l2_bytes",
)
"""What `GpuSpec.names` gives."""
METRIC_NAMES = ("flops", "bytes", "time_ns")
TEMPLATE_WORDS = (
    *("true", "false", "none", "self", "super", "caller", "loop", "varargs", "kwargs"),
    *("range", "dict", "lipsum", "cycler", "joiner", "namespace"),
)
"""Names that have a meaning of their own inside a Jinja template, where a parameter would be hidden or hide them."""

RESERVED: dict[str, str] = (
    dict.fromkeys(GPU_NAMES, "the GPU")
    | {"lane": "shared_accesses"}
    | dict.fromkeys(FUNCTIONS, "a function")
    | dict.fromkeys(METRIC_NAMES, "metrics")
    | dict.fromkeys(TEMPLATE_WORDS, "the template language")
)
"""Names that no spec may give, by whose they are."""


def check_identifier(name: str) -> None:
    """Raises InputError for a text that expressions and templates could not use as a name."""
    if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
        nearest = re.sub("[^A-Za-z0-9_]+", "_", name).lstrip("0123456789")
        raise InputError(f"a name is made of letters, digits and _, got {name!r}", nearest=nearest)
    try:
        word = not isinstance(ast.parse(name, mode="eval").body, ast.Name)
    except SyntaxError:
        word = True
    if word:
        raise InputError(f"a name must not be a word of the language, got {name!r}")


def check_kernel_name(name: str) -> None:
    """Raises InputError unless each part of `folder/name` can be a name; most kernels have one part."""
    for part in name.split("/"):
        try:
            check_identifier(part)
        except InputError as error:
            raise InputError(
                error.rule, nearest=name.replace(part, error.nearest) if error.nearest else ""
            ) from None


def checked_value(data: object) -> Value:
    """A value that a parameter or class may have, lists turned into tuples; else raises ValueError with the rule."""
    if isinstance(data, list | tuple) and data:
        return tuple(checked_value(item) for item in data)
    if isinstance(data, bool | int) or (isinstance(data, float) and abs(data) < float("inf")):
        return data
    # Names and values are written as `A=1,B=(2 x)` on the command line and in the database, and in comments of
    # exported sources, which a backslash or a comment's end would break.
    if (
        isinstance(data, str)
        and data.isprintable()
        and re.fullmatch(r"(?:(?!/\*|\*/)[^\s,=()\"'`\\])+", data)
    ):
        return data
    raise ValueError(
        "a value is a number, true, false, text without blanks, quotes, backslashes, comment marks and , = ( ), or a"
        " list of these"
    )


def checked_values(items: Iterable[object], name: str) -> tuple[Value, ...]:
    """The values of a parameter, each written differently from the others; raises InputError."""
    seen: dict[str, Value] = {}
    for item in items:
        try:
            value = checked_value(item)
        except ValueError as error:
            raise InputError(f"{error}, got {item!r}", key=f"parameters.{name}") from None
        text = value_text(value)
        if text in seen:
            raise InputError(f"values must differ in writing, got {text} twice", key=f"parameters.{name}")
        seen[text] = value
    if not seen:
        raise InputError("must have at least one value, got none", key=f"parameters.{name}")
    return tuple(seen.values())


def check_distinct(sections: Iterable[tuple[str, Iterable[str]]]) -> None:
    """Raises InputError unless every name is an identifier, is not reserved, and stands in one section only.

    A section comes with its key, e.g. `problem.sizes`.
    """
    taken = dict(RESERVED)
    for section, names in sections:
        for name in names:
            try:
                check_identifier(name)
            except InputError as error:
                raise InputError(error.rule, key=f"{section}.{name}", nearest=error.nearest) from None
            if name in taken:
                raise InputError(f"the name {name!r} is taken by {taken[name]}", key=f"{section}.{name}")
            taken[name] = section

"""Options that several commands share, and how their texts become values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from autotune.config import Config, Value, value_text
from autotune.errors import InputError, nearest_name

if TYPE_CHECKING:
    from autotune.gpu import GpuSpec
    from autotune.problem import Problem
    from autotune.spec.kernel_spec import KernelSpec

Command = TypeVar("Command", bound=Callable[..., Any])


class WholeNumber(click.IntRange):
    """A whole number within limits, with a message of our own form."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number; fails with the rule and the value."""
        try:
            return int(super().convert(value, param, ctx))
        except click.BadParameter:
            limits = f"of at least {self.min}" if self.max is None else f"from {self.min} to {self.max}"
            self.fail(f"must be a whole number {limits}, got {str(value)!r}", param, ctx)


gpu_help = (
    "Table name (a6000), a GPU's own name ('NVIDIA RTX A6000'), or 'local' for the one in this machine."
)
gpu_option = click.option("--gpu", required=True, metavar="GPU", help=gpu_help)
kernel_option = click.option(
    "--kernel", default="sgemm", show_default=True, metavar="NAME|YAML", help="Kernel to work on."
)
size_option = click.option(
    "--size",
    "sizes",
    multiple=True,
    metavar="SIZE",
    help="4096 for all sizes equal, or one number per size: 4096x4096x1024. Repeatable.",
)
suite_option = click.option("--suite", metavar="NAME|FILE", help="All sizes of a suite, e.g. sgemm.")
class_option = click.option(
    "--class",
    "classes",
    multiple=True,
    metavar="NAME=VALUE",
    help="A problem class other than the default, e.g. beta=general or align_a=1. Repeatable.",
)
db_option = click.option(
    "--db",
    envvar="AUTOTUNE_DB",
    metavar="URL|FILE",
    help="Database: a SQLite file or a PostgreSQL URL. Default: AUTOTUNE_DB, else the user data folder.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
project_option = click.option(
    "--project",
    "projects",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder with your own configs/ and templates/, searched first. Default: here, if it has both.",
)


def missing_file(db: str | None) -> str:
    """The database file that is named and does not exist; empty where it does, or none is named."""
    from autotune.store.engine import Database

    path = Database.of(db).path if db is not None else None
    return "" if path is None or path.exists() else str(path)


def must_exist(db: str | None) -> None:
    """Raises InputError where a database file is named that does not exist."""
    if missing := missing_file(db):
        raise InputError(f"no such file: {missing}", key="--db")


def project_folders(projects: Sequence[Path]) -> tuple[Path, ...]:
    """The folders to search before the shipped ones."""
    for path in projects:
        if not path.is_dir():
            raise InputError(f"must be a folder with configs/ and templates/, got '{path}'", key="--project")
    if projects:
        return tuple(path.resolve() for path in projects)
    here = Path.cwd()
    return (here,) if (here / "configs").is_dir() and (here / "templates").is_dir() else ()


def parse_classes(pairs: Sequence[str], spec: KernelSpec) -> dict[str, Value]:
    """The classes that `--class NAME=VALUE` options name, with values of the declared type."""
    declared = {problem_class.name: problem_class.values for problem_class in spec.problem.classes}
    return _parse_pairs(pairs, declared, "--class")


def parse_class_lists(pairs: Sequence[str], spec: KernelSpec) -> dict[str, list[Value]]:
    """Like `parse_classes`, where a class may have several values: `NAME=VALUE,VALUE`."""
    lists: dict[str, list[Value]] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if name.strip() in lists:
            raise InputError(f"{name.strip()} is given twice", key="--class")
        for value in text.split(","):
            for own, parsed in parse_classes([f"{name}{equals}{value}"], spec).items():
                lists.setdefault(own, []).append(parsed)
    return lists


def parse_config(text: str, spec: KernelSpec, base: Mapping[str, Value]) -> Config:
    """The configuration `BM=128,BN=64,...`; names not given keep the value of `base`."""
    declared = {parameter.name: parameter.values for parameter in spec.parameters}
    pairs = [part for part in text.split(",") if part.strip()]
    given = _parse_pairs(pairs, declared, "--config", listed_only=False)
    return Config.of({name: given.get(name, base[name]) for name in declared})


def problems_of(
    sizes: Sequence[str], suite: str | None, classes: Sequence[str], spec: KernelSpec, folders: Sequence[Path]
) -> list[Problem]:
    """The problems that `--size` and `--suite` name together."""
    from autotune.problems import make_problem, parse_size
    from autotune.suites import load_suite

    chosen = parse_classes(classes, spec)
    wanted = [parse_size(text, spec) for text in sizes]
    if suite:
        wanted += [shape.sizes for shape in load_suite(suite, spec, folders).shapes]
    if not wanted:
        raise InputError("say which size, e.g. --size 4096 or --size 4096x4096x1024", key="--size")
    # The same size twice is one problem.
    return [make_problem(spec, size, classes=chosen) for size in dict.fromkeys(wanted)]


def resolve_gpu(name: str, folders: Sequence[Path]) -> GpuSpec:
    """The table of a named GPU, or of the one in this machine for `local`."""
    from autotune.target import find_target

    return find_target(name, folders).gpu


def parse_duration(text: str) -> float:
    """Seconds in `90`, `90s`, `10m`, `1.5h` or `1h30m`; raises InputError for anything else."""
    import re

    match = re.fullmatch(r"(?:([\d.]+)h)?(?:([\d.]+)m)?(?:([\d.]+)s?)?", text.strip())
    try:
        if not match or not any(match.groups()):
            raise ValueError(text)
        hours, minutes, seconds = (float(part or 0) for part in match.groups())
    except ValueError:
        raise InputError(
            f"must be a duration, got {text!r}", key="--time", nearest="90s, 10m or 1h30m"
        ) from None
    total = hours * 3600 + minutes * 60 + seconds
    if total <= 0:
        raise InputError(f"must be longer than zero, got {text!r}", key="--time", nearest="10m")
    return total


def _parse_pairs(
    pairs: Sequence[str], declared: Mapping[str, Sequence[Value]], key: str, listed_only: bool = True
) -> dict[str, Value]:
    parsed: dict[str, Value] = {}
    for pair in pairs:
        name, equals, text = (part.strip() for part in pair.partition("="))
        if not equals:
            raise InputError(f"must be NAME=VALUE, got {pair!r}", key=key)
        if name not in declared:
            raise InputError(f"no such name {name!r}", key=key, nearest=nearest_name(name, declared))
        if name in parsed:
            raise InputError(f"{name} is given twice", key=key)
        by_text = {value_text(value).lower(): value for value in declared[name]}
        if text.lower() in by_text:
            parsed[name] = by_text[text.lower()]
        elif not listed_only and text.lstrip("-").isdigit() and _holds_integers(declared[name]):
            # A number the space does not list can still be asked about: the answer says what it breaks.
            parsed[name] = int(text)
        else:
            raise InputError(
                f"{name} cannot be {text!r}; it may be {', '.join(by_text)}",
                key=key,
                nearest=nearest_name(text, by_text),
            )
    return parsed


def _holds_integers(values: Sequence[Value]) -> bool:
    return all(isinstance(value, int) and not isinstance(value, bool) for value in values)

"""Where files lie: what ships with the package, a user's project folders, the user's data and cache."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PurePath

from autotune.errors import InputError, nearest_name

KINDS = ("templates", "configs", "studies")
"""The folders that a project may have; those beside the package ship inside its wheel."""


def shipped(kind: str) -> Path:
    """The shipped folder of this kind: inside the installed package, else at the top of the checkout."""
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    package = Path(__file__).resolve().parent
    installed = package / "shipped" / kind
    return installed if installed.is_dir() else package.parent / kind


def find(kind: str, relative: str, folders: Sequence[Path] = ()) -> Path:
    """The file `relative` in the first folder of this kind that has it, user folders before the shipped one.

    Raises InputError with the places searched and the nearest name that exists.
    """
    asked = PurePath(relative)
    if asked.is_absolute() or ".." in asked.parts:
        raise InputError(f"must be a path below a {kind} folder, got {relative!r}")
    roots = [*(Path(folder) / kind for folder in folders), shipped(kind)]
    for root in roots:
        if (root / asked).is_file():
            return root / asked
    beside = [
        path.relative_to(root).as_posix()
        for root in roots
        for path in sorted((root / asked).parent.glob(f"*{asked.suffix}"))
    ]
    searched = ", ".join(str(root) for root in roots)
    raise InputError(f"no file {relative!r} in {searched}", nearest=nearest_name(relative, beside))


def user_data_dir() -> Path:
    """Where the user's results lie: `$XDG_DATA_HOME/autotune`, else below `~/.local/share`; not created."""
    return _xdg("XDG_DATA_HOME", ".local/share")


def user_cache_dir() -> Path:
    """Where compiled kernels lie: `$AUTOTUNE_CACHE`, else the user's cache folder. Not created.

    That is `autotune` below `$XDG_CACHE_HOME`, else below `~/.cache`.
    """
    own = os.environ.get("AUTOTUNE_CACHE")
    return Path(own).expanduser() if own else _xdg("XDG_CACHE_HOME", ".cache")


def _xdg(variable: str, below_home: str) -> Path:
    base = os.environ.get(variable, "")
    # The base directory specification asks to ignore relative paths.
    return (Path(base) if Path(base).is_absolute() else Path.home() / below_home) / "autotune"

"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from autotune.errors import InputError


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes beside the target and renames; an existing file is replaced, with its permissions kept."""
    data = content.encode() if isinstance(content, str) else content
    if path.is_dir():
        raise InputError(f"must be a file, {path} is a folder", key="output")
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise InputError(f"cannot write to {path.parent}: {error.strerror}", key="output") from error
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        temporary.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise InputError(f"cannot write {path}: {error.strerror}", key="output") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

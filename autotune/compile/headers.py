"""Where `#include` finds its files, and which files a source includes: their text counts as its own."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>|(\w+))', re.MULTILINE)
_MISSING = re.compile(r'(?:cannot|could not) open source file "([^"]+)"')
_STANDARD_CPP = re.compile(r"c?[a-z_]+(\.h)?")


@dataclass(frozen=True)
class Included:
    """The files a source includes, directly or not."""

    digests: Mapping[str, str]
    """Hash of each file's text, by the path as found."""
    complete: bool
    """False where an `#include` names a macro: what it stands for is not known before compiling."""


def toolkit_folders() -> tuple[Path, ...]:
    """The folders with CUDA headers on this machine, the best first.

    Headers of pip packages come first, then `CUDA_HOME`, `CUDA_PATH`, a conda environment, the toolkit of the
    `nvcc` on the path, and `/usr/local/cuda`.
    """
    return tuple(dict.fromkeys(folder.resolve() for folder in toolkit_candidates() if folder.is_dir()))


def toolkit_candidates() -> tuple[Path, ...]:
    """Every folder where CUDA headers are looked for, whether it exists or not."""
    folders: list[Path] = []
    for entry in dict.fromkeys(sys.path):
        if Path(entry).name in ("site-packages", "dist-packages"):
            vendor = Path(entry) / "nvidia"
            folders += sorted(vendor.glob("cu[0-9]*/include"), reverse=True)
            folders += [vendor / "cuda_runtime/include", vendor / "cuda_cccl/include"]
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if root := os.environ.get(variable):
            folders.append(Path(root) / "include")
    if root := os.environ.get("CONDA_PREFIX"):
        folders += [Path(root) / "targets/x86_64-linux/include", Path(root) / "include"]
    if nvcc := shutil.which("nvcc"):
        folders.append(Path(nvcc).resolve().parent.parent / "include")
    folders.append(Path("/usr/local/cuda/include"))
    # CUDA 13 keeps the C++ core libraries (cuda/std, nv/target) one folder further down.
    return tuple(place for folder in folders for place in (folder, folder / "cccl"))


def included_files(text: str, beside: Path, folders: Sequence[Path]) -> Included:
    """The files that `text` includes; quoted names are searched in `beside` first, then all in `folders`.

    Files that are not found are left out: the compiler says so, or has them built in.
    """
    digests: dict[str, str] = {}
    complete = True
    pending = [(beside, _includes(text))]
    while pending:
        folder, includes = pending.pop()
        for quoted, angled, macro in includes:
            if macro:
                complete = False
                continue
            places = (folder, beside, *folders) if quoted else folders
            found = _first(quoted or angled, places)
            if found is not None and str(found) not in digests:
                state = found.stat()
                digest, nested = _scan(found, state.st_mtime_ns, state.st_size)
                digests[str(found)] = digest
                pending.append((found.parent, nested))
    return Included(dict(sorted(digests.items())), complete)


def missing_header(log: str, searched: Sequence[Path]) -> str | None:
    """For a header the compiler did not find: where it looked and what supplies it; else None."""
    match = _MISSING.search(log)
    if match is None:
        return None
    places = ", ".join(str(folder) for folder in searched) or "no folder"
    return f'header "{match[1]}" not found; searched: {places}; {_supplier(match[1])}'


def _supplier(header: str) -> str:
    if header.startswith(("cuda/", "cub/", "thrust/", "nv/")):
        return "it comes with: pip install nvidia-cuda-cccl (or set CUDA_HOME to a CUDA toolkit)"
    if header.startswith("crt/"):
        return "it comes with: pip install nvidia-cuda-crt (or set CUDA_HOME to a CUDA toolkit)"
    if header.startswith("curand"):
        return "it comes with: pip install nvidia-curand (or set CUDA_HOME to a CUDA toolkit)"
    if (
        header.startswith(("cuda", "cooperative_groups", "mma.h", "vector_", "device_", "sm_"))
        and "/" not in header
    ):
        return "it comes with: pip install nvidia-cuda-runtime (or set CUDA_HOME to a CUDA toolkit)"
    if _STANDARD_CPP.fullmatch(header) and header in _STANDARD_HEADERS:
        return "NVRTC has no C++ standard library: use <cuda/std/...> (pip install nvidia-cuda-cccl)"
    return "put it beside the template, or name its folder with --include-path"


_STANDARD_HEADERS = frozenset(
    [
        "algorithm",
        "array",
        "cassert",
        "cfloat",
        "climits",
        "cmath",
        "cstddef",
        "cstdint",
        "cstdio",
        "cstdlib",
        "cstring",
        "functional",
        "initializer_list",
        "iostream",
        "limits",
        "memory",
        "numeric",
        "string",
        "tuple",
        "type_traits",
        "utility",
        "vector",
        "assert.h",
        "float.h",
        "limits.h",
        "math.h",
        "stddef.h",
        "stdint.h",
        "stdio.h",
        "stdlib.h",
        "string.h",
    ]
)


def _first(name: str, places: Sequence[Path]) -> Path | None:
    for place in places:
        path = Path(os.path.normpath(place / name))
        if path.is_file():
            return path
    return None


@lru_cache(maxsize=1024)
def _scan(path: Path, _changed_ns: int, _size: int) -> tuple[str, tuple[tuple[str, str, str], ...]]:
    """Hash and includes of one file; remembered until the file changes."""
    data = path.read_bytes()
    return hashlib.sha256(data).hexdigest(), _includes(data.decode(errors="replace"))


def _includes(text: str) -> tuple[tuple[str, str, str], ...]:
    """(quoted, angled, macro) of each include line; also of one that is switched off: that does no harm."""
    return tuple(_INCLUDE.findall(text))

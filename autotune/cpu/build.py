"""Compiles a rendered kernel with the host compiler into a program that runs launches from files."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Literal

from autotune.candidate import Source
from autotune.compile.headers import included_files
from autotune.errors import StageFailure
from autotune.paths import user_cache_dir
from autotune.records import Status

Sanitize = Literal["address", "thread"] | None

COMPILE_LIMIT_S = 120.0
EXCERPT_CHARS = 2000
_HEADERS = Path(__file__).parent
_FLAGS = (
    "-std=c++20",
    "-O1",
    "-g1",
    "-fno-strict-aliasing",
    "-Wall",
    "-Wno-unknown-pragmas",
    "-ffp-contract=off",
)
_POISON = "-ftrivial-auto-var-init=pattern"
"""Fills variables that nobody initialises, which a stack of zeros would make pass for zero (GCC 12, Clang 8)."""
_SANITIZE_FLAGS = {
    None: (),
    # A vector access that the alignment does not allow is an error on the GPU too.
    "address": ("-fsanitize=address,alignment", "-fno-sanitize-recover=all"),
    "thread": ("-fsanitize=thread", "-DAUTOTUNE_THREADS", "-pthread"),
}


def build(source: Source, sanitize: Sanitize = None) -> Path:
    """The program for this source, from the cache where it was built before.

    Raises StageFailure (`compile_error`, `compile_timeout`) with an excerpt of what the compiler said.
    """
    compiler = os.environ.get("CXX", "g++")
    main = f'#include "launch.hpp"\n#include "kernel.cu"\n{_MAIN.replace("ENTRY", source.entry)}'
    beside = source.template.resolve().parent
    included = included_files(main + source.text, beside, (_HEADERS, beside)).digests
    flags = (*_FLAGS, *_poison(compiler), *_SANITIZE_FLAGS[sanitize])
    parts = (compiler, *flags, main, source.text, *included.values())
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    folder = user_cache_dir() / "cpu" / key
    program = folder / "kernel"
    if program.exists():
        return program
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        (aside / "kernel.cu").write_text(source.text)
        (aside / "main.cpp").write_text(main)
        includes = [f"-I{aside}", f"-I{_HEADERS}", f"-I{beside}"]
        options = [*flags, *includes, "-o", str(aside / "kernel")]
        _compile([compiler, *options, str(aside / "main.cpp")])
        try:
            aside.rename(folder)
        except OSError:  # another process was first
            if not program.exists():
                raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return program


@cache
def _poison(compiler: str) -> tuple[str, ...]:
    """The flag where the compiler knows it; an older one does without."""
    command = [compiler, _POISON, "-x", "c++", "-E", os.devnull]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(command, capture_output=True, timeout=COMPILE_LIMIT_S, check=False)
        return (_POISON,) if done.returncode == 0 else ()
    return ()


_SHARED_HINT = (
    "to run on the CPU too, take dynamic shared memory from dynamic_shared() of lib/shared.cuh in place of "
    "an extern array; "
)
_MAIN = """
int main(int, char** arguments) {
  return autotune_host::launch_from_file(&ENTRY, arguments[1], arguments[2]);
}
"""


def _compile(command: list[str]) -> None:
    try:
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
    except OSError as error:
        reason = f"no host compiler {command[0]!r} ({error}); set CXX"
        raise StageFailure(Status.COMPILE_ERROR, reason) from error
    with process:
        try:
            _, said = process.communicate(timeout=COMPILE_LIMIT_S)
        except subprocess.TimeoutExpired:
            reason = f"the host compiler took longer than {COMPILE_LIMIT_S:g} s"
            raise StageFailure(Status.COMPILE_TIMEOUT, reason) from None
        finally:
            # The driver's own children do the work, and would go on for as long as they like.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode != 0:
        hint = _SHARED_HINT if "conflicting specifiers" in said else ""
        raise StageFailure(Status.COMPILE_ERROR, hint + said[:EXCERPT_CHARS])

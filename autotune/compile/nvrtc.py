"""NVIDIA's run-time compiler, NVRTC: source text in, native code and the compiler's log out.

Needs neither a GPU nor a driver. The library comes from the `nvidia-cuda-nvrtc` package or a CUDA toolkit,
whichever `cuda.bindings` finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from pathlib import PurePath
from typing import Any

from autotune.errors import AutotuneError, InputError


class NvrtcMissing(AutotuneError):
    """The compiler's library cannot be loaded."""


class Verdict(Enum):
    """How a compilation ended."""

    DONE = auto()
    ERRORS = auto()
    """The source does not compile; the log says why."""
    OUT_OF_MEMORY = auto()


@dataclass(frozen=True)
class Compilation:
    """What one run of the compiler left."""

    verdict: Verdict
    log: str
    image: bytes = b""
    """The cubin; empty unless done."""
    lowered_name: str = ""
    """Of the name that was asked for."""


@cache
def library() -> Any:
    """The module `cuda.bindings.nvrtc`, with its library loaded; raises `NvrtcMissing`."""
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, OSError, RuntimeError) as error:
        why = (str(error).splitlines() or [repr(error)])[0]
        raise NvrtcMissing(
            f"the CUDA compiler NVRTC cannot be loaded ({why}); "
            "install it with: pip install nvidia-cuda-nvrtc cuda-bindings"
        ) from error
    return nvrtc


def version() -> str:
    """`major.minor` of the compiler, e.g. `13.5`."""
    result, major, minor = library().nvrtcVersion()
    _check(result, "asking NVRTC for its version")
    return f"{major}.{minor}"


@cache
def architectures() -> tuple[str, ...]:
    """The targets this version compiles for, e.g. `sm_75`, from the oldest."""
    result, numbers = library().nvrtcGetSupportedArchs()
    _check(result, "asking NVRTC for its architectures")
    return tuple(f"sm_{number}" for number in numbers)


def compile_text(text: str, name: str, flags: Sequence[str], entry: str | None) -> Compilation:
    """Native code for `text`; `name` is a path: its last part stands in messages, quoted includes lie beside.

    `entry` is a C++ name whose lowered name is looked up; None for no look-up. Raises `InputError` for flags
    that the compiler refuses.
    """
    nvrtc = library()
    result, program = nvrtc.nvrtcCreateProgram(text.encode(), name.encode(), 0, [], [])
    _check(result, "creating an NVRTC program")
    try:
        if entry is not None:
            (result,) = nvrtc.nvrtcAddNameExpression(program, entry.encode())
            _check(result, f"naming the entry {entry!r}")
        arguments = [flag.encode() for flag in flags]
        (result,) = nvrtc.nvrtcCompileProgram(program, len(arguments), arguments)
        log = _log(program).replace(f"{PurePath(name).parent}/", "")
        if result == nvrtc.nvrtcResult.NVRTC_ERROR_INVALID_OPTION:
            raise InputError(f"NVRTC {version()} refuses its options: {log.strip()}", where="compiler flags")
        if result == nvrtc.nvrtcResult.NVRTC_ERROR_OUT_OF_MEMORY:
            return Compilation(Verdict.OUT_OF_MEMORY, log)
        if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            return Compilation(Verdict.ERRORS, log or f"NVRTC gives no reason but {result.name}")
        lowered = b""
        if entry is not None:
            result, lowered = nvrtc.nvrtcGetLoweredName(program, entry.encode())
            _check(result, f"looking up the entry {entry!r}")
        return Compilation(Verdict.DONE, log, _image(program), lowered.decode())
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _log(program: object) -> str:
    result, size = library().nvrtcGetProgramLogSize(program)
    _check(result, "asking for the compiler's log")
    log = bytearray(size)
    (result,) = library().nvrtcGetProgramLog(program, log)
    _check(result, "asking for the compiler's log")
    # Each phase of the compiler ends its part of the log with a zero byte.
    return log.decode(errors="replace").replace("\0", "").rstrip()


def _image(program: object) -> bytes:
    result, size = library().nvrtcGetCUBINSize(program)
    _check(result, "asking for the compiled code")
    image = bytearray(size)
    (result,) = library().nvrtcGetCUBIN(program, image)
    _check(result, "asking for the compiled code")
    return bytes(image)


def _check(result: Any, act: str) -> None:
    if result != 0:
        raise AutotuneError(f"{act} failed: {result.name}")

"""One rendered source becomes native code for one architecture, with the exact resources it takes.

Always native code, never PTX: what a newer toolkit makes then loads under any driver of the same major
version.
"""

from __future__ import annotations

import re
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from autotune.candidate import CompiledKernel, Source
from autotune.compile.cache import Artifact, Cache, key_of
from autotune.compile.cubin import kernel_names
from autotune.compile.headers import included_files, missing_header, toolkit_folders
from autotune.compile.nvrtc import Compilation, Verdict, architectures, compile_text, version
from autotune.compile.ptxas import parse_log
from autotune.errors import InputError, StageFailure
from autotune.paths import user_cache_dir
from autotune.records import Status

EXCERPT_CHARS = 2000
"""What a recorded reason keeps of a compiler's log."""
# A compilation that NVRTC's own cache answers has no report of resources.
_FLAGS = ("-std=c++17", "--ptxas-options=-v", "--no-cache")
_ARCH = re.compile(r"sm_\d+[af]?")
_BORING = re.compile(r"^ptxas (info| {8}\.)")


@dataclass(frozen=True)
class CompileOptions:
    """How to compile, beside source and architecture."""

    include_paths: tuple[Path, ...] = ()
    """Searched after the template's own folder and before the toolkit's."""
    flags: tuple[str, ...] = ()
    """Further NVRTC options."""
    line_info: bool = False
    """Keeps source lines for profilers; does not change the code."""
    cache: Path | None = None
    """Where compiled kernels are kept; None for `kernels` in the user's cache folder."""

    @property
    def cache_folder(self) -> Path:
        """The folder of compiled kernels."""
        return self.cache or user_cache_dir() / "kernels"

    @property
    def all_flags(self) -> tuple[str, ...]:
        """NVRTC options except architecture and folders."""
        line_info = ("--generate-line-info",) if self.line_info else ()
        return (*_FLAGS, *line_info, *self.flags)


DEFAULT_OPTIONS = CompileOptions()


@dataclass(frozen=True)
class CompileJob:
    """One compilation for another process to do."""

    compiler: str
    """`module:function`, called with the other three."""
    source: Source
    arch: str
    options: CompileOptions


def compile_source(source: Source, arch: str, options: CompileOptions = DEFAULT_OPTIONS) -> CompiledKernel:
    """The native code of `source` for `arch` (e.g. `sm_86`), from the cache or compiled now in this process.

    Raises StageFailure where the source does not compile, InputError where no source could (architecture,
    flags, cache folder), and NvrtcMissing.
    """
    if not _ARCH.fullmatch(arch):
        raise InputError(
            f"an architecture is written like sm_86, got {arch!r}", nearest=", ".join(architectures())
        )
    folders = _include_folders(source, options)
    key = _key(source, arch, options, folders)
    cache = Cache(options.cache_folder)
    if kernel := cache.find(key):
        return kernel

    started = time.perf_counter()
    flags = [f"--gpu-architecture={arch}", *options.all_flags]
    flags += [f"--include-path={folder}" for folder in folders]
    # By a full path, quoted includes are searched beside the template; by a bare name, in the current folder.
    name = f"{folders[0]}/{source.template.name.split('.')[0]}.cu"
    compilation = _compile(source, name, flags, arch)
    compile_s = time.perf_counter() - started
    log = compilation.log
    if compilation.verdict is Verdict.OUT_OF_MEMORY:
        raise StageFailure(Status.COMPILE_OOM, f"the compiler ran out of memory; {excerpt(log)}")
    if compilation.verdict is Verdict.ERRORS:
        missing = missing_header(log, folders)
        raise StageFailure(
            Status.COMPILE_ERROR, missing or _entry_problem(source, name, flags, log) or excerpt(log)
        )
    resources = parse_log(log).get(compilation.lowered_name)
    if resources is None:
        raise StageFailure(
            Status.COMPILE_ERROR,
            f"the compiler's report has no resources for {compilation.lowered_name}: {excerpt(log)}",
        )
    artifact = Artifact(
        compilation.image, source.text, log, compilation.lowered_name, arch, resources, _compiler(), compile_s
    )
    return cache.store(key, artifact)


def compile_key(source: Source, arch: str, options: CompileOptions = DEFAULT_OPTIONS) -> str:
    """Hash of all that decides the code: source, text of included files, compiler, flags, architecture."""
    return _key(source, arch, options, _include_folders(source, options))


def _key(source: Source, arch: str, options: CompileOptions, folders: tuple[Path, ...]) -> str:
    included = included_files(source.text, folders[0], folders)
    return key_of(
        {
            "source": source.text,
            "entry": source.entry,
            "included": included.digests,
            # What an included macro stands for is unknown, so such a kernel is compiled afresh each time.
            "nonce": "" if included.complete else uuid.uuid4().hex,
            "compiler": _compiler(),
            "flags": options.all_flags,
            "arch": arch,
        }
    )


def _include_folders(source: Source, options: CompileOptions) -> tuple[Path, ...]:
    """Where includes are searched; the template's own folder comes first."""
    toolkit = toolkit_folders() if "include" in source.text else ()
    return (source.template.resolve().parent, *options.include_paths, *toolkit)


def excerpt(log: str, limit: int = EXCERPT_CHARS) -> str:
    """The part of a compiler's log that says what went wrong, its middle left out when long."""
    lines = [line.rstrip() for line in log.splitlines() if line.strip() and not _BORING.match(line)]
    text = "\n".join(lines)
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


def toolkit_too_new(driver_cuda: str, nvrtc: str) -> str | None:
    """Why code that does not load may be too new for the driver, with both versions; else None.

    `driver_cuda` is the CUDA version the driver supports, e.g. `13.0`; `nvrtc` the compiler's, with or
    without the word `nvrtc` before it.
    """
    supported, used = _version(driver_cuda), _version(nvrtc)
    if supported is None or used is None or used <= supported:
        return None
    major, minor = supported
    return (
        f"the code was made by NVRTC {used[0]}.{used[1]}, and the driver supports CUDA {major}.{minor}; "
        f"install a newer driver, or: pip install 'nvidia-cuda-nvrtc<={major}.{minor}.9999'"
    )


def _compile(source: Source, name: str, flags: list[str], arch: str) -> Compilation:
    try:
        return compile_text(source.text, name, flags, source.entry)
    except InputError as error:
        if "gpu-architecture" not in error.rule:
            raise
        raise InputError(
            f"NVRTC {version()} cannot compile for {arch}",
            where="architecture",
            nearest=", ".join(architectures()),
        ) from error


def _entry_problem(source: Source, name: str, flags: list[str], log: str) -> str | None:
    """What is wrong where only the look-up of the entry failed, with the entries the compiled code has."""
    if "__nv_name_map" not in log:
        return None
    without = compile_text(source.text, name, flags, None)
    if without.verdict is not Verdict.DONE:
        return excerpt(without.log)
    names = kernel_names(without.image)
    there_are = f"the compiled code has: {', '.join(names)}" if names else "the compiled code has no kernel"
    why = log.split("error: ", 1)[1].splitlines()[0]
    return f"no entry {source.entry!r} ({why}); {there_are}"


def _compiler() -> str:
    return f"nvrtc {version()}"


def _version(text: str) -> tuple[int, int] | None:
    match = re.search(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None

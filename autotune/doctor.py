"""What is installed and in this machine, what will work with it, and the command that mends the rest."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

PYTHON_NEEDED = (3, 11)
PACKAGES = [
    "alembic",
    "click",
    "cuda-bindings",
    "jinja2",
    "numpy",
    "nvidia-ml-py",
    "optuna",
    "psutil",
    "pydantic",
    "pyyaml",
    "rich",
    "sqlalchemy",
]
COMPILE_LIMIT_S = 120.0
_NO_GPU = "searching with predicted times, compiling and exporting work without; measuring does not"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    name: str
    ok: bool
    """False where something that users may want will not work."""
    detail: str
    cure: str = ""
    """The command or step that mends it; empty where nothing is to be mended."""


def diagnose(database: str | None = None) -> list[Finding]:
    """Everything worth knowing before a search, in the order things are needed; never raises.

    `database` is a URL or path as for `--db`; None for the user's own file.
    """
    probes: dict[str, Callable[[], Iterator[Finding]]] = {
        "Python": _python,
        "packages": _packages,
        "compiler": _nvrtc,
        "test compile": _test_compile,
        "CUDA headers": _headers,
        "nvcc": _nvcc,
        "C++ compiler": _host_compiler,
        "driver": _driver,
        "GPUs": _gpus,
        "toolkit and driver": _fit,
        "CuPy": _cupy,
        "database": lambda: _database(database),
        "cache": _cache,
    }
    findings: list[Finding] = []
    for name, probe in probes.items():
        try:
            findings += probe()
        except Exception as error:  # noqa: BLE001  a doctor that falls ill himself helps nobody
            findings.append(Finding(name, False, f"could not be looked at: {type(error).__name__}: {error}"))
    return findings


def _python() -> Iterator[Finding]:
    ok = sys.version_info >= PYTHON_NEEDED
    needed = ".".join(map(str, PYTHON_NEEDED))
    cure = "" if ok else f"use Python {needed} or newer"
    yield Finding("Python", ok, f"{platform.python_version()} at {sys.executable}", cure)


def _packages() -> Iterator[Finding]:
    versions = {name: _version_of(name) for name in PACKAGES}
    missing = [name for name, version in versions.items() if version is None]
    detail = ", ".join(f"{name} {version or 'MISSING'}" for name, version in versions.items())
    yield Finding("packages", not missing, detail, f"pip install {' '.join(missing)}" if missing else "")


def _nvrtc() -> Iterator[Finding]:
    from autotune.compile import nvrtc

    try:
        version = nvrtc.version()
    except nvrtc.NvrtcMissing as error:
        yield Finding("compiler", False, str(error), "pip install nvidia-cuda-nvrtc cuda-bindings")
        return
    known = nvrtc.architectures()
    place = _loaded_library("libnvrtc.so")
    yield Finding("compiler", True, f"NVRTC {version} ({place}), for {known[0]} to {known[-1]}")


def _test_compile() -> Iterator[Finding]:
    """A real compilation, in a process of its own like all compilations of a search."""
    from autotune.candidate import Source
    from autotune.compile import nvrtc
    from autotune.compile.cubin import read_cubin
    from autotune.compile.pool import CompilePool
    from autotune.errors import AutotuneError

    try:
        known = nvrtc.architectures()
    except nvrtc.NvrtcMissing:
        return
    text = (
        'extern "C" __global__ void probe(float* p) {\n'
        "    __shared__ float tile[64];\n"
        "    tile[threadIdx.x] = p[threadIdx.x];\n"
        "    __syncthreads();\n"
        "    p[threadIdx.x] = tile[63 - threadIdx.x];\n"
        "}\n"
    )
    arch = "sm_90" if "sm_90" in known else known[-1]
    with tempfile.TemporaryDirectory(prefix="autotune-doctor-") as folder:
        with CompilePool(workers=1, timeout_s=COMPILE_LIMIT_S, cache=Path(folder)) as pool:
            try:
                kernel = pool.submit(Source(text, "probe", Path(folder) / "probe.cu"), arch).result()
            except AutotuneError as error:
                yield Finding(
                    "test compile", False, str(error), "pip install --force-reinstall nvidia-cuda-nvrtc"
                )
                return
        binary = read_cubin(kernel.image.read_bytes())["probe"]
    took = f"for {arch} in {kernel.compile_s:.2f} s: {kernel.resources.registers} registers"
    told = (kernel.resources.registers, kernel.resources.static_smem_bytes, kernel.resources.stack_bytes)
    if told != (binary.registers, binary.static_smem_bytes, binary.stack_bytes):
        detail = f"{took}; but the compiler's report {kernel.resources} and the binary {binary} disagree"
        yield Finding(
            "test compile", False, detail, "use a version of NVRTC that this version of autotune knows"
        )
        return
    yield Finding("test compile", True, f"{took}, the same in report and binary")


def _headers() -> Iterator[Finding]:
    from autotune.compile.headers import toolkit_folders

    for folder in toolkit_folders():
        if (folder / "cuda_fp16.h").is_file():
            yield Finding("CUDA headers", True, str(folder))
            return
    yield Finding(
        "CUDA headers",
        False,
        "none found: kernels that include cuda_fp16.h and the like do not compile; others do",
        "pip install nvidia-cuda-runtime",
    )


def _nvcc() -> Iterator[Finding]:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        yield Finding("nvcc", True, "not on the path; needed only to build programs with an exported header")
        return
    release = re.search(r"release (\d+\.\d+)", _output(nvcc, "--version"))
    yield Finding("nvcc", True, f"{release[1] if release else 'unknown version'} at {nvcc}")


def _host_compiler() -> Iterator[Finding]:
    compiler = os.environ.get("CXX", "g++")
    path = shutil.which(compiler)
    if path is None:
        detail = f"{compiler} not found: kernels cannot be run on the CPU for checking"
        yield Finding("C++ compiler", False, detail, "apt install g++ (or name another in CXX)")
        return
    version = (_output(path, "--version").splitlines() or ["unknown version"])[0]
    yield Finding("C++ compiler", True, f"{version} at {path}")


def _driver() -> Iterator[Finding]:
    from autotune.device import nvml

    versions = nvml.driver_versions()
    if not versions.driver:
        yield Finding(
            "driver", False, f"no NVIDIA driver: {_NO_GPU}", "install NVIDIA's driver (see nvidia-smi)"
        )
        return
    yield Finding("driver", True, f"{versions.driver}, for CUDA up to {versions.cuda}")


def _gpus() -> Iterator[Finding]:
    from autotune.compile import nvrtc
    from autotune.device import nvml
    from autotune.device.local import local_gpus

    boards = nvml.boards()
    if not boards:
        yield Finding("GPUs", False, f"none: {_NO_GPU}", "search on a machine with an NVIDIA GPU")
        return
    usable = local_gpus()
    for gpu in usable:
        detail = f"{gpu.identity.name}, {gpu.spec.arch}, table {gpu.spec.table}, at {gpu.pci_bus_id}"
        if gpu.watchdog:
            detail += ", with a display watchdog that ends kernels after about 2 s"
        ok = gpu.spec.arch in nvrtc.architectures()
        cure = (
            ""
            if ok
            else "install the newest nvidia-cuda-nvrtc that still compiles for it (12.x for sm_50 to sm_70)"
        )
        detail += "" if ok else f"; NVRTC {nvrtc.version()} does not compile for {gpu.spec.arch}"
        yield Finding(f"GPU {gpu.index}", ok, detail, cure)
    if not usable:
        names = ", ".join(board.name for board in boards)
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        because = f" (CUDA_VISIBLE_DEVICES={hidden})" if hidden is not None else ""
        yield Finding(
            "GPUs", False, f"{names}, but none that CUDA may use{because}", "unset CUDA_VISIBLE_DEVICES"
        )


def _fit() -> Iterator[Finding]:
    from autotune.compile import nvrtc
    from autotune.compile.compiler import toolkit_too_new
    from autotune.device import nvml

    cuda = nvml.driver_versions().cuda
    if not cuda:
        return
    version = nvrtc.version()
    newer = toolkit_too_new(cuda, version)
    if newer is None:
        yield Finding("toolkit and driver", True, f"NVRTC {version} under a driver for CUDA {cuda}")
    elif version.split(".")[0] == cuda.split(".")[0]:
        detail = f"NVRTC {version} under a driver for CUDA {cuda}: native code loads within a major version"
        yield Finding("toolkit and driver", True, detail)
    else:
        major = cuda.split(".")[0]
        cure = (
            f"pip install 'nvidia-cuda-nvrtc-cu{major}' 'cuda-bindings=={major}.*', or install a newer driver"
        )
        yield Finding("toolkit and driver", False, newer, cure)


def _cupy() -> Iterator[Finding]:
    from autotune.device import nvml

    cuda = nvml.driver_versions().cuda
    major = cuda.split(".")[0] or "13"
    installed = {name: _version_of(name) for name in ("cupy-cuda13x", "cupy-cuda12x", "cupy")}
    found = [f"{name} {version}" for name, version in installed.items() if version is not None]
    extra = f"pip install 'cuda-autotune[cuda{major}]'"
    if not found:
        yield Finding("CuPy", False, "not installed: measuring on a GPU does not work", extra)
    elif len(found) > 1:
        detail = f"{' and '.join(found)} overwrite each other"
        yield Finding(
            "CuPy", False, detail, f"pip uninstall {' '.join(name.split()[0] for name in found)}; {extra}"
        )
    elif cuda and installed[f"cupy-cuda{major}x"] is None and installed["cupy"] is None:
        yield Finding("CuPy", False, f"{found[0]}, which is not for the driver's CUDA {cuda}", extra)
    else:
        yield Finding("CuPy", True, found[0])


def _database(name: str | None) -> Iterator[Finding]:
    from autotune.errors import AutotuneError
    from autotune.store.engine import Database, check_answers
    from autotune.store.hosts import CURE, Host

    try:
        database = Database.of(name)
        if database.path is not None:
            yield _writable("database", database.path, "name another place with --db or AUTOTUNE_DB")
            host = Host.current()
            if host.on_network(database.path):
                kind = host.filesystem(database.path)
                yield Finding(
                    "database", False, f"{database.path} lies on a network file system ({kind})", CURE
                )
        else:
            check_answers(database)
            yield Finding("database", True, f"{database} answers")
    except AutotuneError as error:
        yield Finding("database", False, str(error), "check the URL and that the server runs")
    psycopg = _version_of("psycopg")
    yield Finding(
        "PostgreSQL",
        True,
        f"psycopg {psycopg}" if psycopg else "psycopg not installed; needed only for PostgreSQL",
    )


def _cache() -> Iterator[Finding]:
    from autotune.compile.compiler import DEFAULT_OPTIONS

    yield _writable(
        "cache", DEFAULT_OPTIONS.cache_folder, "set AUTOTUNE_CACHE to a folder that can be written"
    )


def _writable(name: str, path: Path, cure: str) -> Finding:
    """Whether a file or folder can be written, or made where it does not exist yet; nothing is made."""
    existing = next(place for place in (path, *path.parents) if place.exists())
    free = shutil.disk_usage(existing).free
    needs = os.W_OK if existing.is_file() else os.W_OK | os.X_OK
    if not os.access(existing, needs) or (existing != path and not existing.is_dir()):
        return Finding(name, False, f"{path} cannot be written ({existing})", cure)
    if free < 100 << 20:
        return Finding(name, False, f"{path}: only {free >> 20} MiB free", cure)
    return Finding(
        name, True, f"{path}{'' if path.exists() else ' (not made yet)'}, {free / 1e9:.1f} GB free"
    )


def _version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _loaded_library(name: str) -> str:
    """The path from which this process has loaded a library."""
    maps = Path("/proc/self/maps").read_text()
    paths = {line.split()[-1] for line in maps.splitlines() if name in line}
    return min(paths, default="place unknown")


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return done.stdout

"""What the tests of exported code need: small kernels, compilers, and programs built with either."""

from __future__ import annotations

import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from autotune.config import Config
from autotune.exporter import ExportEntry
from autotune.gpu import GpuSpec
from autotune.problems import make_problem
from autotune.records import (
    DeviceIdentity,
    Environment,
    Measurement,
    Origin,
    Outcome,
    Round,
    Status,
    TrialRecord,
)
from autotune.spec.kernel_spec import KernelSpec
from autotune.spec.load import load_spec

TESTS = Path(__file__).resolve().parents[1]
HOST_FLAGS = [
    "-x",
    "c++",
    "-std=c++20",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unknown-pragmas",
    "-D__CUDACC__",
]

SCALE_YAML = """\
kernel: {name}
template: {name}/{name}.cu.j2
entry: scale
problem:
  sizes: [M, N]
  dtype: {dtype}
  flops: M*N
  bytes: 8*M*N
  classes:
    align: {{values: [4, 2, 1], default: "4 if ld % 4 == 0 else 2 if ld % 2 == 0 else 1"}}
parameters:
  BM: {{values: [32, 64]}}
  V: {{values: [1, 2, 4]}}
defaults: {{BM: 32, V: 4}}
derived: {{threads: BM, smem_bytes: 1024}}
variants:
  LOAD: min(V, align)
  GUARD: not (M % BM == 0)
launch: {{grid: ["ceil_div(M, BM)"], block: [threads], smem: smem_bytes}}
arguments:
  - {{size: M}}
  - {{size: N}}
  - {{scalar: factor, dtype: {scalar}, value: 2.0}}
  - {{inout: X, shape: [M, N], pitch: ld, align: align}}
  - {{pitch: ld}}
reference: {reference}
metrics: {{gflops: flops / time_ns}}
"""

# Deliberately unkind: a shared array named like everybody's, macros, CUDA's own min.
SCALE_TEMPLATE = """\
#include <{header}>
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
constexpr int BM = {{{{ BM }}}}, BN = {{{{ LOAD }}}};
__device__ int rows_of(int M) {{ return min(max(M, 0), CEIL_DIV(M, 1)); }}
extern "C" __global__ void scale(int M, int N, {type} factor, {type}* X, int ld) {{
  extern __shared__ __align__(16) {shared} smem[];
  smem[threadIdx.x % BN] = {shared}();
  const int row = blockIdx.x * BM + threadIdx.x;
  const int K = rows_of(M);
  if ({{{{ GUARD }}}} && row >= K) return;
  {type}* x = X + static_cast<long long>(row) * ld;
  for (int TN = 0; TN < N; ++TN) x[TN] = x[TN] * factor;
}}
"""


def scale_spec(folder: Path, name: str, dtype: str = "float32", scalar: str | None = None) -> KernelSpec:
    """A small kernel that scales a matrix, in an element type of choice, written below `folder`."""
    types = {
        "float32": ("float", "float4"),
        "float64": ("double", "double2"),
        "float16": ("__half", "__half2"),
    }
    element, shared = types[dtype]
    yaml = folder / "configs" / "kernels" / f"{name}.yaml"
    template = folder / "templates" / name / f"{name}.cu.j2"
    for file in (yaml, template):
        file.parent.mkdir(parents=True, exist_ok=True)
    yaml.write_text(SCALE_YAML.format(name=name, dtype=dtype, scalar=scalar or dtype, reference="matmul"))
    template.write_text(SCALE_TEMPLATE.format(header="cuda_fp16.h", type=element, shared=shared))
    return load_spec(name, [folder])


def entry(
    spec: KernelSpec,
    size: int | tuple[int, ...],
    config: Config | None = None,
    time_ms: float | None = None,
    gpu: GpuSpec | None = None,
    predicted: bool = False,
) -> ExportEntry:
    """An entry for a size; with a time also the record behind it."""
    problem = make_problem(spec, size)
    config = config or Config.of(spec.defaults)
    if time_ms is None or gpu is None:
        return ExportEntry(problem, config, None, "default")
    outcome = (
        Outcome(Status.OK, Origin.PREDICTED, predicted_ms=time_ms)
        if predicted
        else Outcome(Status.OK, Origin.MEASURED, measurement=Measurement((time_ms,), 1))
    )
    record = TrialRecord(
        uid="00",
        study="study",
        session="session",
        round=Round.FINAL,
        kernel=spec.name,
        kernel_hash="k" * 32,
        space_hash="s",
        config=config,
        problem=problem,
        device=DeviceIdentity(gpu.table, gpu.name, "8.6", gpu.sm_count, gpu.memory_bytes),
        environment=Environment("580.1", "13.0", "13.5", "0.1.0"),
        protocol="cold/normal-1/1",
        outcome=outcome,
        board="",
        created=datetime(2026, 1, 2, tzinfo=UTC),
    )
    return ExportEntry(problem, config, record, "predicted" if predicted else "exact")


def host_program(folder: Path, sources: list[Path], *flags: str) -> Path:
    """A program built by the host compiler with a stand-in for the CUDA runtime; skips without g++."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")
    program = folder / "program"
    includes = [f"-I{TESTS / 'fakes' / 'cuda_host'}", f"-I{TESTS.parent / 'autotune' / 'cpu'}", f"-I{folder}"]
    done = subprocess.run(
        [compiler, *HOST_FLAGS, *includes, *flags, *map(str, sources), "-o", str(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[:4000]
    return program


def find_nvcc() -> str:
    """nvcc on the path, in its usual place or from a wheel; skips where there is none."""
    wheels = (path for entry in sys.path for path in Path(entry).glob("nvidia/*/bin/nvcc"))
    found = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin") or next(wheels, None)
    if found is None:
        pytest.skip("needs nvcc on PATH, in /usr/local/cuda/bin or from the package nvidia-cuda-nvcc")
    return str(found)


def nvcc(*arguments: str | Path) -> str:
    """What nvcc prints on standard output; fails the test with its messages where it fails."""
    done = subprocess.run([find_nvcc(), *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[:4000]
    assert "warning" not in done.stderr, done.stderr[:4000]
    return done.stdout

"""Exported headers with scratch memory, transposed operands, batches and epilogues, run on a stand-in for CUDA."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from fakes.exported import TESTS, host_program, nvcc

from autotune.exporter import ExportEntry, default_entry
from autotune.exporter.entries import unique_sizes
from autotune.exporter.header import header_text
from autotune.gpu_tables import find_gpu
from autotune.problems import make_problem
from autotune.spec.kernel_spec import KernelSpec
from autotune.spec.load import load_spec

FAMILY = TESTS / "data" / "family"
MATVEC = load_spec("matvec", [FAMILY])
GPU = find_gpu("a6000")
FORWARD = {
    "LOAD": "sync",
    "STAGES": 1,
    "BM": 32,
    "BN": 64,
    "BK": 8,
    "WM": 32,
    "WN": 32,
    "TM": 8,
    "TN": 4,
    "MINB": 0,
}


def entry(spec: KernelSpec, sizes: object, changes: dict[str, object], **classes: object) -> ExportEntry:
    problem = make_problem(spec, sizes, classes=classes)  # type: ignore[arg-type]
    return ExportEntry(problem, spec.default_config("a6000").replace(changes), None, "default")  # type: ignore[arg-type]


def run(folder: Path, text: str, program: str, *flags: str) -> str:
    (folder / "header.cuh").write_text(text)
    (folder / "main.cu").write_text(program)
    built = host_program(folder, [folder / "main.cu"], "-O0", *flags)
    done = subprocess.run([built], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


MATVEC_MAIN = """\
#include "header.cuh"
#include <cstdio>
namespace own = autotune::matvec_a6000;
int main() {
  alignas(16) float a[6 * 70], x[70], y[6], scratch[64] = {};
  int bad = 0, streamed = 0;
  for (int turned = 0; turned < 2; ++turned) {
    const auto trans = turned ? own::matvec_trans_a::t : own::matvec_trans_a::n;
    const int lda = turned ? 6 : 70;
    for (int i = 0; i < 6; ++i) for (int k = 0; k < 70; ++k) a[turned ? k * 6 + i : i * 70 + k] = i + k % 5;
    for (int k = 0; k < 70; ++k) x[k] = k % 3;
    const std::size_t bytes = own::matvec_workspace_bytes(trans, 6, 70, a, lda, x, y);
    if (bytes != (turned ? 48 : 0)) return 10 + turned;  // n runs one block a row, t two
    for (int with = 0; with < 2; ++with) {
      for (float& value : y) value = -1;
      if (own::matvec(nullptr, trans, 6, 70, a, lda, x, y, with ? scratch : nullptr) != cudaSuccess) return 2;
      for (int i = 0; i < 6; ++i) {
        float sum = 0;
        for (int k = 0; k < 70; ++k) sum += (i + k % 5) * (k % 3);
        bad += sum != y[i];
      }
      for (float value : scratch) bad += value != 0;
      streamed += fake_cuda::streamed, fake_cuda::streamed = 0;
    }
  }
  if (own::matvec(nullptr, own::matvec_trans_a::n, 6, 70, a, 69, x, y) != cudaErrorInvalidValue) return 3;
  if (own::matvec(nullptr, own::matvec_trans_a::t, 6, 70, a, 5, x, y) != cudaErrorInvalidValue) return 4;
  if (own::matvec(nullptr, own::matvec_trans_a::t, 6, 70, a, 6, x, y, scratch + 1) != cudaErrorInvalidValue) return 5;
  if (fake_cuda::held != 0) return 6;
  std::printf("%d wrong, %d taken", bad, streamed);
}
"""
MATVEC_SIGNATURE = "-DFAKE_CUDA_SIGNATURE=int, int, const float*, int, const float*, float*, void*"


def matvec_text() -> str:
    plain = entry(MATVEC, (6, 70), {})
    turned = entry(MATVEC, (6, 70), {"SPLIT": 2}, trans_a="t")
    return header_text(MATVEC, GPU, [plain, turned], default_entry(MATVEC, GPU, plain))


def test_workspace_is_taken_where_none_is_given_and_layouts_are_told(tmp_path: Path) -> None:
    printed = run(tmp_path, matvec_text(), MATVEC_MAIN, MATVEC_SIGNATURE)
    assert printed == "0 wrong, 1 taken"


def test_one_layout_needs_no_argument() -> None:
    text = header_text(MATVEC, GPU, [entry(MATVEC, (6, 70), {})])
    assert "enum class" not in text
    assert "trans_a: n in this header" in text
    assert len(matvec_text()) < 2.5 * len(text)


def test_each_layout_has_its_own_size_in_the_table() -> None:
    entries = [entry(MATVEC, 64, {}), entry(MATVEC, 64, {"SPLIT": 2}, trans_a="t")]
    assert len(unique_sizes(entries)) == 1
    assert len(unique_sizes(entries, ["trans_a"])) == 2


SGEMM_MAIN = """\
#include "header.cuh"
#include <cstdio>
namespace own = autotune::sgemm_a6000;
// Column-major: element (i, j) at i + j * ld, of op(X).
static float at(const float* x, int ld, bool turned, int i, int j) { return turned ? x[j + i * ld] : x[i + j * ld]; }
int main() {
  const int m = 33, n = 20, k = 17;
  alignas(16) static float a[64 * 64], b[64 * 64], c[64 * 64];
  for (int i = 0; i < 64 * 64; ++i) a[i] = i * 7 % 11 - 5, b[i] = i * 5 % 13 - 6;
  int bad = 0;
  for (int turned = 0; turned < 4; ++turned) {
    const bool ta = turned & 1, tb = turned & 2;
    const auto first = ta ? own::sgemm_trans_a::t : own::sgemm_trans_a::n;
    const auto second = tb ? own::sgemm_trans_b::t : own::sgemm_trans_b::n;
    const int lda = (ta ? k : m) + 2, ldb = (tb ? n : k) + 1, ldc = m + 3;
    if (own::sgemm_column_major(nullptr, first, second, m, n, k, 1, a, lda, b, ldb, 0, c, ldc) != cudaSuccess) return 2;
    for (int i = 0; i < m; ++i) for (int j = 0; j < n; ++j) {
      float sum = 0;
      for (int p = 0; p < k; ++p) sum += at(a, lda, ta, i, p) * at(b, ldb, tb, p, j);
      bad += c[i + j * ldc] != sum;
    }
  }
  std::printf("%d wrong", bad);
}
"""


def sgemm_entries() -> list[ExportEntry]:
    spec = load_spec("sgemm")
    return [entry(spec, 64, FORWARD, trans_a=a, trans_b=b) for a in "nt" for b in "nt"]


def test_column_major_callers_with_all_layouts(tmp_path: Path) -> None:
    text = header_text(load_spec("sgemm"), GPU, sgemm_entries())
    assert run(tmp_path, text, SGEMM_MAIN) == "0 wrong"


BATCHED_MAIN = """\
#include "header.cuh"
#include <cstdio>
namespace own = autotune::sgemm_batched_a6000;
int main() {
  const auto invalid = cudaErrorInvalidValue;
  const int batch = 3, m = 5, n = 6, k = 7;
  alignas(16) static float a[512], b[512], c[512];
  for (int i = 0; i < 512; ++i) a[i] = i * 7 % 11 - 5, b[i] = i * 5 % 13 - 6, c[i] = -1;
  // One B for all of them.
  if (own::sgemm_batched(nullptr, m, n, k, 1, a, k, b, n, 0, c, n, batch, m * k + 1, 0, m * n + 2)) return 2;
  int bad = 0;
  for (int z = 0; z < batch; ++z) for (int i = 0; i < m; ++i) for (int j = 0; j < n; ++j) {
    float sum = 0;
    for (int p = 0; p < k; ++p) sum += a[z * (m * k + 1) + i * k + p] * b[p * n + j];
    bad += c[z * (m * n + 2) + i * n + j] != sum;
  }
  bad += c[m * n] != -1;
  const auto odd = own::sgemm_batched_choose(m, n, k, 1, a, 8, b, 8, 0, c, 8, batch, 41, 56, 40);
  if (odd.status != cudaSuccess) return 3;
  // Results that lie over each other.
  if (own::sgemm_batched(nullptr, m, n, k, 1, a, k, b, n, 0, c, n, batch, 64, 64, 29) != invalid) return 4;
  if (own::sgemm_batched(nullptr, m, n, k, 1, a, k, b, n, 0, c, n, batch, -1, 64, 64) != invalid) return 5;
  std::printf("%d wrong", bad);
}
"""
BATCHED_SIGNATURE = (
    "-DFAKE_CUDA_SIGNATURE=int, int, int, float, const float*, int, const float*, int, float, float*, int, float*, int,"
    " long long, long long, long long"
)


def test_batches_with_strides(tmp_path: Path) -> None:
    spec = load_spec("sgemm_batched")
    text = header_text(spec, GPU, [entry(spec, 64, FORWARD)])
    assert run(tmp_path, text, BATCHED_MAIN, BATCHED_SIGNATURE) == "0 wrong"


EPILOGUE_MAIN = """\
#include "header.cuh"
#include <cstdio>
namespace own = autotune::sgemm_epilogue_a6000;
int main() {
  const int m = 5, n = 6, k = 7;
  alignas(16) static float a[64], b[64], c[64], bias[6] = {1, -2, 3, -4, 5, -60};
  for (int i = 0; i < 64; ++i) a[i] = i * 7 % 11 - 5, b[i] = i * 5 % 13 - 6;
  if (own::sgemm_epilogue(nullptr, m, n, k, 1, a, k, b, n, 0, c, n, bias) != cudaSuccess) return 2;
  if (own::sgemm_epilogue(nullptr, m, n, k, 1, a, k, b, n, 0, c, n, nullptr) != cudaErrorInvalidValue) return 3;
  int bad = 0;
  for (int i = 0; i < m; ++i) for (int j = 0; j < n; ++j) {
    float sum = bias[j];
    for (int p = 0; p < k; ++p) sum += a[i * k + p] * b[p * n + j];
    bad += c[i * n + j] != (sum > 0 ? sum : 0);
  }
  std::printf("%d wrong", bad);
}
"""
EPILOGUE_SIGNATURE = (
    "-DFAKE_CUDA_SIGNATURE=int, int, int, float, const float*, int, const float*, int, float, float*, int, float*,"
    " const float*"
)


def test_bias_and_activation(tmp_path: Path) -> None:
    spec = load_spec("sgemm_epilogue")
    text = header_text(spec, GPU, [entry(spec, 64, FORWARD, activation="relu")])
    assert run(tmp_path, text, EPILOGUE_MAIN, EPILOGUE_SIGNATURE) == "0 wrong"
    assert "_column_major" not in text


@pytest.mark.slow
@pytest.mark.parametrize("standard", ["c++14", "c++20"])
def test_the_family_compiles_and_links_twice(tmp_path: Path, standard: str) -> None:
    texts = {
        "matvec": matvec_text(),
        "sgemm": header_text(load_spec("sgemm"), GPU, sgemm_entries()),
        "batched": header_text(
            load_spec("sgemm_batched"), GPU, [entry(load_spec("sgemm_batched"), 64, FORWARD)]
        ),
        "epilogue": header_text(
            load_spec("sgemm_epilogue"),
            GPU,
            [entry(load_spec("sgemm_epilogue"), 64, FORWARD, activation="gelu")],
        ),
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.cuh").write_text(text)
    includes = "".join(f'#include "{name}.cuh"\n' for name in texts)
    (tmp_path / "one.cu").write_text(f"{includes}int other();\nint main() {{ return other(); }}\n")
    (tmp_path / "two.cu").write_text(f"{includes}int other() {{ return 0; }}\n")
    nvcc(
        f"-arch={GPU.arch}", f"-std={standard}", "-Xcompiler=-Wall,-Wextra,-Werror", f"-I{tmp_path}",
        tmp_path / "one.cu", tmp_path / "two.cu", "-o", tmp_path / "program",
    )  # fmt: skip

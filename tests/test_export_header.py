from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from fakes.exported import TESTS, entry, find_nvcc, host_program, nvcc, scale_spec

from autotune.config import Config
from autotune.exporter import default_entry, export
from autotune.exporter.entries import FAR, ExportEntry
from autotune.exporter.header import header_text
from autotune.gpu_tables import find_gpu
from autotune.legality import violations
from autotune.problem import octaves
from autotune.problems import make_problem
from autotune.spec.kernel_spec import KernelSpec
from autotune.spec.load import load_spec

GPU = find_gpu("a6000")
EXAMPLE = TESTS.parent / "examples" / "cpp"

SMALL = {
    "BM": 32,
    "BN": 64,
    "BK": 8,
    "WM": 32,
    "WN": 32,
    "TM": 8,
    "TN": 4,
    "LOAD": "sync",
    "STAGES": 1,
    "MINB": 0,
}
"""A tile unlike the default's, as changes to it."""

HOSTILE = """\
#define min(a, b) hostile
#define max(a, b) hostile
#define BM 3
#define BN hostile
#define BK hostile
#define TM hostile
#define TN hostile
#define M hostile
#define N hostile
#define K hostile
#define CEIL_DIV(a) hostile
"""
STILL_THERE = """\
static_assert(BM == 3, "the user's macro is as it was");
#define CHECK_TEXT_(x) #x
#define CHECK_TEXT(x) CHECK_TEXT_(x)
static_assert(sizeof(CHECK_TEXT(K)) == 8 && sizeof(CHECK_TEXT(min(1, 2))) == 8, "");
static_assert(sizeof(CHECK_TEXT(CEIL_DIV(1))) == 8, "");
#undef CHECK_TEXT
#undef CHECK_TEXT_
"""


@pytest.fixture(scope="module")
def sgemm() -> KernelSpec:
    return load_spec("sgemm")


def small(spec: KernelSpec) -> Config:
    return Config.of({**spec.defaults, **SMALL})


def example_flags(scope: str) -> list[str]:
    return ['-DAUTOTUNE_HEADER="header.cuh"', f"-DAUTOTUNE_SCOPE={scope}"]


# --- run on the CPU, with a stand-in for the CUDA runtime


@pytest.mark.parametrize("changes", [{}, pytest.param(SMALL, marks=pytest.mark.slow)])
def test_example_links_the_header_twice_and_gets_right_results(
    sgemm: KernelSpec, tmp_path: Path, changes: dict[str, object]
) -> None:
    """Odd sizes, pitches, offsets, alpha, beta over NaN, empty sizes and arguments without meaning."""
    config = Config.of({**sgemm.defaults, **changes})  # type: ignore[dict-item]
    (tmp_path / "header.cuh").write_text(header_text(sgemm, GPU, [entry(sgemm, 4096, config)]))
    program = host_program(
        tmp_path, [EXAMPLE / "main.cu", EXAMPLE / "second.cu"], *example_flags("sgemm_a6000"), "-O0"
    )
    done = subprocess.run([program, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    passed, total = map(int, re.findall(r"(\d+) of (\d+) checks passed", done.stderr)[0])
    assert passed == total > 70


DISPATCH = """\
#include "header.cuh"
#include <cstdio>
namespace own = autotune::sgemm_a6000;
int main() {
  fake_cuda::run = false;
  const auto& launches = fake_cuda::launches;
  long long m, n, k, lda, ldb, ldc, at;
  float beta;
  while (std::scanf("%lld %lld %lld %f %lld %lld %lld %lld", &m, &n, &k, &beta, &at, &lda, &ldb, &ldc) == 8) {
    float* const p = (float*)at;
    const auto choice = own::sgemm_choose(m, n, k, 1, p, lda, p, ldb, beta, p, ldc);
    fake_cuda::launches.clear();
    const int status = own::sgemm(nullptr, m, n, k, 1, p, lda, p, ldb, beta, p, ldc);
    std::printf("%d %d %d ", choice.status, choice.kernel, choice.variant);
    std::printf("%d %.17g ", choice.exact, choice.distance);
    std::printf("%d %d %u\\n", status, (int)launches.size(), launches.empty() ? 0 : launches[0].grid.x);
  }
  fake_cuda::attribute_calls = 0;
  float* const p = (float*)1024;
  for (int device : {1, 1, 2, 1, 70, 70}) {
    fake_cuda::device = device;
    if (own::sgemm(nullptr, 4096, 4096, 4096, 1, p, 4096, p, 4096, 0, p, 4096) != cudaSuccess) return 1;
  }
  std::printf("%d\\n", fake_cuda::attribute_calls);
}
"""


def test_dispatcher_chooses_kernel_and_variant_as_stated(sgemm: KernelSpec, tmp_path: Path) -> None:
    default = Config.of(sgemm.defaults)
    entries = [
        entry(sgemm, (4096, 64, 4096), small(sgemm)),
        entry(sgemm, 4096, default),
        entry(sgemm, 256, small(sgemm)),
    ]
    other = Config.of({**sgemm.defaults, "BM": 64, "WM": 32, "TM": 8})
    far = ExportEntry(entries[0].problem, other, None, "default")
    text = header_text(sgemm, GPU, entries, far)
    (tmp_path / "header.cuh").write_text(text)
    (tmp_path / "main.cpp").write_text(DISPATCH)
    program = host_program(tmp_path, [tmp_path / "main.cpp"], "-O0", "-Wno-error", "-w")
    kernels = {0: small(sgemm), 1: default, 2: other}

    aligned, off_by_two, off_by_one = 1024, 1032, 1028
    calls: list[tuple[tuple[int, int, int], int, float, int]] = [
        ((4096, 4096, 4096), aligned, 0, 0),
        ((4096, 64, 4096), aligned, 1, 0),
        ((4096, 64, 4096), off_by_one, 1, 0),
        ((4092, 4092, 4092), aligned, 0, 0),
        ((4095, 4095, 4095), aligned, 0, 0),
        ((300, 200, 250), off_by_two, 0.5, 0),
        ((3, 1000000, 2), aligned, 0, 0),  # far from all
        ((4096, 4096, 4096), aligned, 0, 1),  # odd pitches
        ((64, 64, 0), aligned, 1, 0),
        ((0, 64, 64), aligned, 0, 0),
        ((1024, 1024, 1024), aligned, 0, 0),
    ]
    lines = []
    for (m, n, k), pointer, beta, extra in calls:
        ld = (k + extra, n + extra, n + extra)
        lines.append(f"{m} {n} {k} {beta} {pointer} {ld[0]} {ld[1]} {ld[2]}")
    output = subprocess.run(
        [program], input="\n".join(lines), capture_output=True, text=True, check=True
    ).stdout
    answers = [line.split() for line in output.splitlines()]
    assert len(answers) == len(calls) + 1

    variants = {
        int(number): dict(pair.split("=") for pair in label.split())
        for number, label in re.findall(r"return (\d+);  // (\w+=.*)", text)
    }
    for (sizes, pointer, beta, extra), answer in zip(calls, answers, strict=False):
        named = dict(zip("MNK", sizes, strict=True))
        apart = [octaves(dict(each.problem.sizes), named) for each in entries]
        nearest = apart.index(min(apart))
        exact = min(apart) == 0
        want = other if min(apart) > FAR else entries[nearest].config
        assert kernels[int(answer[1])] == want, sizes
        assert (int(answer[0]), answer[3]) == (0, str(int(exact))), sizes
        assert float(answer[4]) == pytest.approx(min(apart), abs=1e-12), sizes

        variant = variants[int(answer[2])]
        config = dict(want)
        whole = all(
            size % int(str(config[tile])) == 0 for size, tile in zip(sizes, ("BM", "BN", "BK"), strict=True)
        )
        # Asynchronous copies of A go element by element, so that its pitch does not matter.
        pitches = [sizes[1] + extra] + [sizes[2] + extra] * (config["LOAD"] == "sync")
        wide = pointer == aligned and all(ld % 4 == 0 for ld in pitches)
        assert variant["BETA_ZERO"] == str(beta == 0).lower(), sizes
        assert variant["STORE_C"] == ("4" if wide else "1"), sizes
        assert variant["GUARD"] == str(not (whole and wide and want != other)).lower(), sizes

        tiles = -(-sizes[0] // int(str(config["BM"]))) * -(-sizes[1] // int(str(config["BN"])))
        assert answer[5:8] == ["0", str(int(tiles > 0)), str(tiles)], sizes
    # Four times: devices 1 and 2 once each, the one whose number has no bit at each of its two calls.
    assert answers[-1] == ["4"]


def test_call_that_no_variant_may_serve_is_refused(tmp_path: Path) -> None:
    """A spec may have variants whose values an export cannot enumerate."""
    spec = scale_spec(tmp_path, "scale")
    file = tmp_path / "configs" / "kernels" / "scale.yaml"
    file.write_text(file.read_text().replace("  GUARD: not", "  REST: M % 7\n  GUARD: not"))
    spec = load_spec("scale", [tmp_path])
    template = tmp_path / "templates" / "scale" / "scale.cu.j2"
    template.write_text("".join(line for line in template.open() if "smem" not in line))
    (tmp_path / "header.cuh").write_text(header_text(spec, GPU, [entry(spec, 64)]))
    (tmp_path / "cuda_fp16.h").write_text("")
    (tmp_path / "main.cpp").write_text(
        '#include "header.cuh"\n#include <cstdio>\nint main() {\n'
        "  fake_cuda::run = false;\n  float* p = (float*)1024;\n"
        "  for (int m : {64, 65, 71, 224, 70})\n"
        '    std::printf("%d ", autotune::scale_a6000::scale(nullptr, m, 8, 1, p, 8));\n}\n'
    )
    program = host_program(tmp_path, [tmp_path / "main.cpp"], "-O0", "-w")
    codes = subprocess.check_output([program], text=True).split()
    # The probing sizes leave the rests 1, with and without guards, and 0 without.
    assert codes == ["0", "801", "0", "0", "801"]


# --- what the header says


def test_header_is_the_same_for_the_same_input_and_another_for_another(sgemm: KernelSpec) -> None:
    entries = [entry(sgemm, 4096, time_ms=6.0, gpu=GPU)]
    text = header_text(sgemm, GPU, entries)
    assert header_text(load_spec("sgemm"), GPU, entries) == text
    other = header_text(sgemm, GPU, [entry(sgemm, 4096, small(sgemm))])
    guards = [re.search(r"#ifndef (\w+)", each) for each in (text, other)]
    assert guards[0]
    assert guards[1]
    assert guards[0][1] != guards[1][1]


def test_head_comment_gives_figures_and_provenance(sgemm: KernelSpec) -> None:
    fast = entry(sgemm, 4096, time_ms=6.0, gpu=GPU)
    vendor = entry(sgemm, 4096, time_ms=6.6, gpu=GPU).record
    head = header_text(
        sgemm, GPU, [ExportEntry(fast.problem, fast.config, fast.record, "exact", vendor)]
    ).split("#ifndef")[0]
    assert "PREDICTED" not in head
    assert re.search(r"4096x4096x4096 +6 +22906 +1\.10  measured 2026-01-02 \(exact, cold/normal-1/1\)", head)
    assert "NVIDIA RTX A6000, 84 SMs, driver 580.1 (CUDA 13.0), NVRTC 13.5" in head
    assert fast.config.key in head
    assert "cuBLAS" in head
    assert "Apache-2.0" in head


def test_predicted_figures_are_announced(sgemm: KernelSpec) -> None:
    guess = entry(sgemm, 4096, time_ms=6.0, gpu=GPU, predicted=True)
    head = header_text(sgemm, GPU, [guess]).split("#ifndef")[0]
    assert "*** PREDICTED, NOT MEASURED ***" in head
    assert re.search(r"4096x4096x4096 +6 +22906 +-  PREDICTED", head)
    both = header_text(sgemm, GPU, [entry(sgemm, 256, time_ms=1.0, gpu=GPU), guess]).split("#ifndef")[0]
    assert "holds for 1 of the 2 sizes" in both


def test_far_sizes_get_the_default_unless_it_is_there_already(sgemm: KernelSpec, tmp_path: Path) -> None:
    own = entry(sgemm, 64, small(sgemm))
    report = export(sgemm, GPU, [own], tmp_path / "a.cuh")
    assert (report.kernels, report.sizes) == (2, 1)
    assert f"if (distance > {FAR}) return 1;" in (tmp_path / "a.cuh").read_text()
    report = export(sgemm, GPU, [entry(sgemm, 64)], tmp_path / "b.cuh")
    assert report.kernels == 1
    assert "distance >" not in (tmp_path / "b.cuh").read_text()


def test_default_is_made_legal_for_the_gpu(sgemm: KernelSpec) -> None:
    turing = find_gpu("t4")
    bare = dataclasses.replace(sgemm, gpu_defaults={})
    chosen = default_entry(bare, turing, entry(bare, 64)).config
    assert chosen["LOAD"] != "cpasync"
    assert not violations(bare, turing, make_problem(bare, 64), chosen)


def test_class_that_a_call_does_not_show_is_fixed(tmp_path: Path) -> None:
    spec = scale_spec(tmp_path, "scale")
    file = tmp_path / "configs" / "kernels" / "scale.yaml"
    file.write_text(
        file.read_text().replace(
            "parameters:", "    order: {values: [row, column], default: \"'row'\"}\nparameters:"
        )
    )
    spec = load_spec("scale", [tmp_path])
    row, column = (
        make_problem(spec, size, classes={"order": order}) for size, order in ((64, "row"), (128, "column"))
    )
    config = Config.of(spec.defaults)
    assert "order: row in this header" in header_text(spec, GPU, [ExportEntry(row, config, None, "default")])
    both = header_text(spec, GPU, [ExportEntry(each, config, None, "default") for each in (row, column)])
    assert "enum class scale_order { row, column };" in both
    assert "order: an argument, scale_order::row, column" in both


# --- compiled by nvcc


@pytest.mark.parametrize("standard", ["c++14", pytest.param("c++20", marks=pytest.mark.slow)])
def test_T41_headers_of_two_element_types_and_the_users_own_shared_array(
    tmp_path: Path, standard: str
) -> None:
    for name, dtype in (("single", "float32"), ("half", "float16"), ("double", "float64")):
        spec = scale_spec(tmp_path, f"scale_{name}", dtype)
        (tmp_path / f"{name}.cuh").write_text(header_text(spec, GPU, [entry(spec, 64)]))
    own = (
        "__global__ void own(int* y) {\n  extern __shared__ int smem[];\n  smem[threadIdx.x] = 1;\n"
        "  __syncthreads();\n  *y = smem[0];\n}\n"
    )
    use = (
        "int all_{number}(float* x, __half* h, double* d) {{\n"
        "  return autotune::scale_single_a6000::scale_single(nullptr, 4, 4, 2.0f, x, 4) ||\n"
        "         autotune::scale_double_a6000::scale_double(nullptr, 4, 4, 2.0, d, 4) ||\n"
        "         autotune::scale_half_a6000::scale_half(nullptr, 4, 4, __float2half(2.0f), h, 4);\n}}\n"
    )
    orders = (("single", "half", "double"), ("double", "half", "single"))
    objects = []
    for number, order in enumerate(orders):
        includes = "".join(f'#include "{name}.cuh"\n' for name in order)
        array = own.replace("own", f"own_{number}")
        file = tmp_path / f"order_{number}.cu"
        file.write_text((includes + array if number else array + includes) + use.format(number=number))
        objects.append(tmp_path / f"order_{number}.o")
        nvcc(f"-std={standard}", "-arch=sm_86", "-Xcompiler=-Wall,-Wextra", "-c", file, "-o", objects[-1])
    # Both files hold all three headers.
    (tmp_path / "main.cpp").write_text("int main() {}\n")
    nvcc(*objects, tmp_path / "main.cpp", "-o", tmp_path / "program")


def macros(folder: Path, text: str) -> set[str]:
    file = folder / "macros.cu"
    file.write_text(text)
    return set(nvcc("-std=c++17", "-arch=sm_86", "-E", "-Xcompiler=-dM", file).splitlines())


@pytest.mark.parametrize(
    "standard", ["c++14", *(pytest.param(f"c++{n}", marks=pytest.mark.slow) for n in (17, 20))]
)
def test_T42_users_macros_change_nothing(tmp_path: Path, standard: str) -> None:
    spec = scale_spec(tmp_path, "scale")
    (tmp_path / "header.cuh").write_text(header_text(spec, GPU, [entry(spec, 64)]))
    use = "#undef min\n#undef max\n#include <algorithm>\n#include <limits>\n#include <mutex>\n"
    (tmp_path / "use.cu").write_text(f'{HOSTILE}#include "header.cuh"\n{STILL_THERE}{use}')
    nvcc(f"-std={standard}", "-arch=sm_90", "-c", tmp_path / "use.cu", "-o", tmp_path / "use.o")


def test_T42_users_macros_are_left_alone(tmp_path: Path) -> None:
    spec = scale_spec(tmp_path, "scale")
    (tmp_path / "header.cuh").write_text(header_text(spec, GPU, [entry(spec, 64)]))
    same = "#include <cuda_runtime.h>\n#include <cuda_fp16.h>\n#include <atomic>\n#include <cmath>\n"
    before = macros(tmp_path, same + HOSTILE)
    after = macros(tmp_path, same + HOSTILE + '#include "header.cuh"\n')
    assert before - after == set()
    new = {line.split()[1] for line in after - before}
    assert len(new) == 1
    assert new.pop().startswith("AUTOTUNE_SCALE_A6000_")


@pytest.mark.slow
@pytest.mark.parametrize("standard", ["c++14", "c++17", "c++20"])
@pytest.mark.parametrize("gpu", ["a6000", "h200"])
def test_sgemm_header_compiles_without_warnings_and_links_twice(
    sgemm: KernelSpec, tmp_path: Path, gpu: str, standard: str
) -> None:
    spec = find_gpu(gpu)
    entries = [entry(sgemm, 4096), entry(sgemm, 256, small(sgemm))]
    (tmp_path / "header.cuh").write_text(
        HOSTILE
        + "\n"
        + header_text(sgemm, spec, entries)
        + "\n"
        + STILL_THERE
        + "".join(f"#undef {line.split()[1].split('(')[0]}\n" for line in HOSTILE.splitlines())
    )
    nvcc(
        f"-std={standard}",
        f"-arch={spec.arch}",
        "-Xcompiler=-Wall,-Wextra",
        f"-I{tmp_path}",
        *example_flags(f"sgemm_{gpu}"),
        EXAMPLE / "main.cu",
        EXAMPLE / "second.cu",
        "-o",
        tmp_path / "program",
    )


@pytest.mark.slow
def test_the_example_builds_with_cmake(sgemm: KernelSpec, tmp_path: Path) -> None:
    cmake, compiler = shutil.which("cmake"), find_nvcc()
    if cmake is None:
        pytest.skip("needs cmake")
    header = tmp_path / "sgemm_a6000.cuh"
    header.write_text(header_text(sgemm, find_gpu("a6000"), [entry(sgemm, 256, small(sgemm))]))
    build = tmp_path / "build"
    options = [f"-DAUTOTUNE_HEADER={header}", f"-DCMAKE_CUDA_COMPILER={compiler}"]
    for command in ([cmake, "-S", str(EXAMPLE), "-B", str(build), *options], [cmake, "--build", str(build)]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert (build / "sgemm_check").exists()

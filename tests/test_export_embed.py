from __future__ import annotations

from pathlib import Path

import pytest

from autotune.candidate import Source
from autotune.errors import InputError
from autotune.exporter.embed import embed, identifiers, shielded_names, without_comments


def source(text: str, entry: str = "sgemm", folder: Path = Path("/nowhere")) -> Source:
    return Source(text, entry, folder / "sgemm.cu.j2")


def test_kernel_loses_c_linkage_and_its_names_are_the_exports_own() -> None:
    embedded = embed(
        source(
            'extern "C" __global__ void __launch_bounds__(32) sgemm(int M) {\n'
            "  extern __shared__ __align__(16) float smem[];  // smem of sgemm\n"
            '  asm("bar.sync 0; // smem");\n'
            "  smem[M] = 1e-5f;\n}\n"
        ),
        "own_kernel",
        "own_smem",
    )
    assert 'extern "C"' not in embedded.text
    assert "void __launch_bounds__(32) own_kernel(int M)" in embedded.text
    assert "float own_smem[];  // smem of sgemm" in embedded.text
    assert '"bar.sync 0; // smem"' in embedded.text
    assert "own_smem[M] = 1e-5f;" in embedded.text
    assert embedded.entry == "own_kernel"


def test_templated_entry_keeps_its_arguments() -> None:
    embedded = embed(source("template <int T> __global__ void sgemm(int) {}", "sgemm<128>"), "own", "smem")
    assert embedded.entry == "own<128>"
    assert "void own(int)" in embedded.text


def test_own_includes_are_taken_in_and_system_includes_moved_out(tmp_path: Path) -> None:
    (tmp_path / "inner.cuh").write_text("#pragma once\n#include <cuda_fp16.h>\nconstexpr int kInner = 3;\n")
    text = '#include "inner.cuh"\n#include <cuda_fp16.h>\n__global__ void sgemm(int) {}\n'
    embedded = embed(source(text, folder=tmp_path), "own", "smem")
    assert embedded.system_includes == ("cuda_fp16.h",)
    assert "constexpr int kInner = 3;" in embedded.text
    assert "#include" not in embedded.text
    assert "once" not in embedded.text


def test_macros_of_the_kernel_are_listed() -> None:
    text = "#define TILE(a) ((a) * 2)\n// #define NOT_ONE\n#  define TWO 2\n__global__ void sgemm(int) {}\n"
    assert embed(source(text), "own", "smem").macros == ("TILE", "TWO")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("__global__ void other(int) {}", "no function 'sgemm'"),
        ('extern "C" {\n__global__ void sgemm(int) {}\n}', "block"),
        ("#if X\n#include <cuda_fp16.h>\n#endif\n__global__ void sgemm(int) {}", "under a condition"),
        ('#include "absent.cuh"\n__global__ void sgemm(int) {}', "cannot read"),
        ("// sgemm\n", "no function"),
    ],
)
def test_what_cannot_stand_in_a_header_is_refused(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        embed(source(text), "own", "smem")


def test_names_are_found_outside_comments_strings_and_numbers() -> None:
    text = 'int alpha = 0x1F + 1\'000e5; // beta\n/* gamma */ const char* delta = "epsilon"; R"(zeta)";'
    assert identifiers(text) == {"alpha", "delta"}


def test_only_names_that_the_toolkit_may_define_are_left_to_it() -> None:
    names = [
        "BM",
        "min",
        "threadIdx",
        "INFINITY",
        "FLT_MAX",
        "__shared__",
        "cudaMalloc",
        "assert",
        "UINT32_MAX",
    ]
    assert shielded_names(names) == ["BM", "min", "threadIdx"]
    assert shielded_names(names, own=["FLT_MAX"]) == ["BM", "FLT_MAX", "min", "threadIdx"]


def test_comments_are_taken_out_without_joining_words() -> None:
    assert without_comments("int/* a */b; // c\n\n  // d\nint e;\n") == "int b;\nint e;\n"

"""Real compilations, without a GPU: names, headers, resources, cache, and what a failure says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fakes.exported import nvcc

from autotune.candidate import Source
from autotune.compile import headers
from autotune.compile.compiler import CompileOptions, compile_key, compile_source, excerpt, toolkit_too_new
from autotune.compile.cubin import architecture, kernel_names, read_cubin
from autotune.compile.nvrtc import architectures, version
from autotune.compile.ptxas import parse_log
from autotune.errors import InputError, StageFailure
from autotune.records import Status

PLAIN = 'extern "C" __global__ void plain(float* p) { p[threadIdx.x] *= 2; }\n'
TEMPLATED = "template <int N> __global__ void scale(float* p) { p[threadIdx.x] *= N; }\n"
SHARED = """
extern "C" __global__ void __launch_bounds__(256) turn(float* p) {
    __shared__ float tile[300];
    tile[threadIdx.x] = p[threadIdx.x];
    __syncthreads();
    p[threadIdx.x] = tile[255 - threadIdx.x];
}
"""
SPILLING = """
extern "C" __global__ void __launch_bounds__(1024) spilling(float* p, int n) {
    float v[100];
    #pragma unroll
    for (int i = 0; i < 100; i++) v[i] = p[i * 1024 + threadIdx.x];
    for (int k = 0; k < n; k++) {
        #pragma unroll
        for (int i = 0; i < 100; i++) v[i] = v[i] * v[(i * 7 + 3) % 100] + p[k];
    }
    #pragma unroll
    for (int i = 0; i < 100; i++) p[i * 1024 + threadIdx.x] = v[i];
}
"""


@pytest.fixture
def options(tmp_path: Path) -> CompileOptions:
    return CompileOptions(cache=tmp_path / "cache")


@pytest.fixture
def template(tmp_path: Path) -> Path:
    folder = tmp_path / "templates" / "kernel"
    folder.mkdir(parents=True)
    return folder / "kernel.cu.j2"


def failure(source: Source, options: CompileOptions, arch: str = "sm_86") -> StageFailure:
    with pytest.raises(StageFailure) as failed:
        compile_source(source, arch, options)
    assert list(options.cache_folder.glob("??/*")) == []  # a failure is never kept as a success
    return failed.value


@pytest.mark.parametrize("arch", ["sm_75", "sm_86", "sm_90", "sm_120"])
@pytest.mark.parametrize("text", [SHARED, SPILLING], ids=["shared", "spilling"])
def test_the_report_and_the_binary_agree(
    text: str, arch: str, template: Path, options: CompileOptions
) -> None:
    entry = "turn" if text is SHARED else "spilling"
    kernel = compile_source(Source(text, entry, template), arch, options)
    image = kernel.image.read_bytes()
    binary = read_cubin(image)[entry]
    assert architecture(image) == arch
    assert binary.registers == kernel.resources.registers > 0
    assert binary.stack_bytes == kernel.resources.stack_bytes
    assert binary.static_smem_bytes == kernel.resources.static_smem_bytes == (1200 if text is SHARED else 0)
    assert (kernel.resources.spill_store_bytes > 0) == (text is SPILLING)
    assert kernel.compiler == f"nvrtc {version()}"


def test_the_second_time_comes_from_the_cache(template: Path, options: CompileOptions) -> None:
    source = Source(PLAIN, "plain", template)
    first = compile_source(source, "sm_86", options)
    made = first.image.stat().st_mtime_ns
    assert compile_source(source, "sm_86", options) == first
    assert first.image.stat().st_mtime_ns == made
    first.image.write_bytes(b"damage")
    assert compile_source(source, "sm_86", options).key == first.key
    assert kernel_names(first.image.read_bytes()) == ("plain",)


def test_whatever_decides_the_code_decides_the_key(
    template: Path, options: CompileOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = template.with_name("helper.cuh")
    helper.write_text("#define TWO 2\n")
    source = Source('#include "helper.cuh"\n' + PLAIN, "plain", template)
    keys = [compile_key(source, "sm_86", options)]
    assert compile_key(source, "sm_86", options) == keys[0]
    keys.append(compile_key(Source(source.text + " ", "plain", template), "sm_86", options))
    keys.append(compile_key(Source(source.text, "other", template), "sm_86", options))
    keys.append(compile_key(source, "sm_90", options))
    keys.append(compile_key(source, "sm_86", CompileOptions(flags=("--use_fast_math",))))
    helper.write_text("#define TWO 2.0f\n")
    keys.append(compile_key(source, "sm_86", options))
    monkeypatch.setattr("autotune.compile.compiler.version", lambda: "99.9")
    keys.append(compile_key(source, "sm_86", options))
    assert len(set(keys)) == len(keys)


def test_an_included_macro_is_never_taken_from_the_cache(template: Path, options: CompileOptions) -> None:
    source = Source(f'#define H "x.cuh"\n#include H\n{PLAIN}', "plain", template)
    template.with_name("x.cuh").write_text("")
    assert compile_source(source, "sm_86", options).key != compile_source(source, "sm_86", options).key


def test_T22_a_user_header_is_found_beside_the_template_and_by_include_path(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = "__device__ float twice(float x) { return 2 * x; }\n"
    text = '#include "helper.cuh"\nextern "C" __global__ void k(float* p) { *p = twice(*p); }\n'
    own, elsewhere = template.with_name("helper.cuh"), tmp_path / "elsewhere"
    own.write_text(helper)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "helper.cuh").write_text("#error the current folder must not matter\n")
    assert (
        compile_source(Source(text, "k", template), "sm_86", CompileOptions(cache=tmp_path / "a")).entry
        == "k"
    )
    elsewhere.mkdir()
    own.rename(elsewhere / "helper.cuh")
    found = CompileOptions(cache=tmp_path / "b", include_paths=(elsewhere,))
    assert compile_source(Source(text, "k", template), "sm_86", found).entry == "k"
    lost = failure(Source(text, "k", template), CompileOptions(cache=tmp_path / "c"))
    assert lost.status is Status.COMPILE_ERROR
    assert "helper.cuh" in lost.reason
    assert str(template.parent) in lost.reason
    assert "--include-path" in lost.reason


HALF = '#include <cuda_fp16.h>\nextern "C" __global__ void k(__half* p) { *p = __hadd(*p, *p); }\n'


def test_T22_the_half_precision_header_comes_from_a_toolkit_or_one_message_says_what_supplies_it(
    template: Path, options: CompileOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source(HALF, "k", template)
    # Nothing but the compiler's own package, and no toolkit anywhere.
    bare = tmp_path / "site-packages/nvidia/cu13/include"
    bare.mkdir(parents=True)
    monkeypatch.setattr(headers, "toolkit_candidates", lambda: (bare,))
    lost = failure(source, options)
    assert lost.status is Status.COMPILE_ERROR
    assert str(bare) in lost.reason
    assert "pip install nvidia-cuda-runtime" in lost.reason
    # The runtime's package puts its headers into the same folder.
    (bare / "cuda_fp16.h").write_text(
        "struct __half { unsigned short x; };\n__device__ __half __hadd(__half a, __half) { return a; }\n"
    )
    assert compile_source(source, "sm_86", options).entry == "k"


@pytest.mark.skipif(
    not any((folder / "cuda_fp16.h").exists() for folder in headers.toolkit_folders()),
    reason="no CUDA headers here",
)
def test_T22_the_real_half_precision_header_compiles(template: Path, options: CompileOptions) -> None:
    assert compile_source(Source(HALF, "k", template), "sm_86", options).entry == "k"


def test_T23_the_code_is_native_for_the_named_device(template: Path, options: CompileOptions) -> None:
    image = compile_source(Source(PLAIN, "plain", template), "sm_86", options).image.read_bytes()
    assert image[:4] == b"\x7fELF"
    assert architecture(image) == "sm_86"
    assert b".target" not in image  # no PTX that the driver would have to compile


def test_T23_both_versions_are_named() -> None:
    """Where a driver refuses to load code: tests/test_cuda_device.py."""
    assert (why := toolkit_too_new("13.4", "nvrtc 13.5"))
    assert "NVRTC 13.5" in why
    assert "CUDA 13.4" in why
    assert "pip install 'nvidia-cuda-nvrtc<=13.4" in why


@pytest.mark.parametrize(
    ("driver", "nvrtc", "too_new"),
    [("13.0", "13.5", True), ("13.5", "nvrtc 13.5", False), ("13.10", "13.9", False), ("", "13.5", False)],
)
def test_T23_versions_compare_as_numbers(driver: str, nvrtc: str, too_new: bool) -> None:
    assert (toolkit_too_new(driver, nvrtc) is not None) == too_new


@pytest.mark.parametrize(
    ("text", "entry", "lowered"),
    [
        (PLAIN, "plain", "plain"),
        (TEMPLATED, "scale<4>", "_Z5scaleILi4EEvPf"),
        ("namespace n { __global__ void inner(int) {} }", "n::inner", "_ZN1n5innerEi"),
    ],
)
def test_T43_the_entry_is_found_by_its_documented_name(
    text: str, entry: str, lowered: str, template: Path, options: CompileOptions
) -> None:
    kernel = compile_source(Source(text, entry, template), "sm_86", options)
    assert kernel.entry == lowered
    assert lowered in kernel_names(kernel.image.read_bytes())


def test_T43_the_offline_compiler_makes_the_same_names(
    tmp_path: Path, template: Path, options: CompileOptions
) -> None:
    offline = tmp_path / "offline.cu"
    offline.write_text(PLAIN + TEMPLATED + "template __global__ void scale<4>(float*);\n")
    nvcc("-arch=sm_86", "-cubin", "-o", tmp_path / "offline.cubin", offline)
    names = kernel_names((tmp_path / "offline.cubin").read_bytes())
    for text, entry in ((PLAIN, "plain"), (TEMPLATED, "scale<4>")):
        assert compile_source(Source(text, entry, template), "sm_86", options).entry in names


def test_T43_a_missing_entry_lists_those_that_exist(template: Path, options: CompileOptions) -> None:
    text = PLAIN + TEMPLATED + "template __global__ void scale<4>(float*);\n"
    failed = failure(Source(text, "plane", template), options)
    assert failed.status is Status.COMPILE_ERROR
    assert "'plane'" in failed.reason
    assert "plain" in failed.reason
    assert "_Z5scaleILi4EEvPf" in failed.reason
    assert "function template" in failure(Source(text, "scale", template), options).reason
    assert "no kernel" in failure(Source("struct x {};", "k", template), options).reason


def test_a_wrong_source_and_a_wrong_entry_report_the_source(template: Path, options: CompileOptions) -> None:
    failed = failure(
        Source('extern "C" __global__ void k() { undefined_thing; }', "other", template), options
    )
    assert 'kernel.cu(1): error: identifier "undefined_thing" is undefined' in failed.reason
    assert "__nv_name_map" not in failed.reason


def test_too_much_static_shared_memory_is_a_compile_error_with_the_numbers(
    template: Path, options: CompileOptions
) -> None:
    text = SHARED.replace("300", "20000")
    assert (
        "too much shared data (0x13880 bytes, 0xc000 max)"
        in failure(Source(text, "turn", template), options).reason
    )


def test_an_endless_log_is_cut(template: Path, options: CompileOptions) -> None:
    text = PLAIN + "".join(f"int a{n} = b{n};\n" for n in range(90))
    assert len(failure(Source(text, "plain", template), options).reason) < 2200
    assert excerpt("x" * 50_000_000).count("x") == 2000


def test_what_no_source_could_mend_is_an_input_error(template: Path, options: CompileOptions) -> None:
    source = Source(PLAIN, "plain", template)
    with pytest.raises(InputError, match="sm_30") as wrong:
        compile_source(source, "sm_30", options)
    assert architectures()[0] in str(wrong.value)
    with pytest.raises(InputError, match="written like sm_86"):
        compile_source(source, "compute_86", options)
    with pytest.raises(InputError, match="--no-such-flag"):
        compile_source(source, "sm_86", CompileOptions(cache=options.cache, flags=("--no-such-flag",)))


def test_line_info_leaves_the_code_as_it_is(template: Path, options: CompileOptions) -> None:
    source = Source(SHARED, "turn", template)
    plain = compile_source(source, "sm_86", options)
    lined = compile_source(source, "sm_86", CompileOptions(cache=options.cache, line_info=True))
    assert lined.resources == plain.resources
    assert len(lined.image.read_bytes()) > len(plain.image.read_bytes())


def test_importing_loads_no_compiler() -> None:
    program = (
        "import sys, autotune.compile.compiler, autotune.compile.pool\n"
        "sys.exit(any(name.startswith('cuda') for name in sys.modules))"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", program], cwd=Path(__file__).parent.parent, check=False
        ).returncode
        == 0
    )


def test_the_log_is_kept_beside_the_code(template: Path, options: CompileOptions) -> None:
    kernel = compile_source(Source(SHARED, "turn", template), "sm_86", options)
    assert parse_log(kernel.image.with_name("compile.log").read_text()) == {"turn": kernel.resources}
    assert kernel.image.with_name("kernel.cu").read_text() == SHARED

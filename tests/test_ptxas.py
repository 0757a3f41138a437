"""The assembler's report is read per kernel, whatever stands between."""

from __future__ import annotations

from autotune.compile.ptxas import parse_log
from autotune.records import Resources

LOG = """\
k.cu(3): warning #177-D: variable "x" was declared but never referenced
ptxas warning : Value of threads per SM for entry spilly is out of range. .minnctapersm will be ignored
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'spilly' for 'sm_86'
ptxas info    : Function properties for spilly
ptxas         .     312 bytes stack frame, 596 bytes spill stores, 616 bytes spill loads
ptxas info    : Used 64 registers, used 0 barriers, 320 bytes cumulative stack size, 364 bytes cmem[0]
ptxas info    : Compile time = 77.161 ms
ptxas info    : Compiling entry function '_Z5scaleILi256EEvPff' for 'sm_86'
ptxas info    : Function properties for _Z5scaleILi256EEvPff
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 1 barriers, 1024 bytes smem, 364 bytes cmem[0]
ptxas info    : Function properties for _Z6helperf
ptxas         .     40 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads
ptxas info    : Compiling entry function 'last' for 'sm_86'
ptxas info    : Function properties for last
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers
"""


def test_each_kernel_has_its_own_figures() -> None:
    assert parse_log(LOG) == {
        "spilly": Resources(64, 0, 596, 616, 320),
        "_Z5scaleILi256EEvPff": Resources(10, 1024, 0, 0, 0),
        "last": Resources(8, 0, 0, 0, 0),
    }


def test_a_log_without_a_report_has_no_kernels() -> None:
    assert parse_log("k.cu(1): error: expected a declaration\n") == {}

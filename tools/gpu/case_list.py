"""The GPU cases by id: correctness first, then crashes and hangs, measuring, resources, and whole studies."""

from __future__ import annotations

from case import Case, NotChecked
from case_correctness import t02, t03, t05, t06
from case_crashes import t07, t09, t12, t60
from case_resources import t20, t29, t41_t42, t43
from case_timing import t13, t14, t17, t56
from case_whole import load_case, trouble

__all__ = ["CASES", "Case", "NotChecked"]

CASES = (
    Case(
        "T02", "NaN and infinities in C with beta zero; such results and stray writes are rejected", 90, t02
    ),
    Case("T03", "K=0, alpha=0 with NaN, empty outputs", 60, t03),
    Case("T05", "leading dimensions and offsets; the winner's thorough check", 120, t05),
    Case("T06", "summation orders pass, a lost K-slice fails", 90, t06),
    Case("T07", "an illegal address as 5th of 20", 90, t07),
    Case("T09", "no measurement before a killed kernel is gone", 60, t09),
    Case("T12", "600 trials, a third failing: memory stays", 60, t12),
    Case("T13", "cold ranking against an independent one", 40, t13),
    Case("T14", "random data by default; zeros and ones beside it", 60, t14),
    Case("T17", "short kernels under host load", 70, t17),
    Case("T20", "registers and launch bounds", 40, t20),
    Case("T29", "legality against the truth", 150, t29),
    Case("T41_T42", "exported headers compile", 110, t41_t42),
    Case("T43", "entries by name from both compilers", 60, t43),
    Case("T56", "A/A test of the vendor's routine", 60, t56),
    Case("T60", "watchdog hint; the reference in steps", 60, t60),
    Case("load", "the Python callable on CuPy and PyTorch arrays", 60, load_case),
    Case("trouble", "20 trials with four troubles, killed and resumed", 170, trouble),
)

"""Reads what the assembler `ptxas -v` says of each kernel: registers, spills, stack, static shared memory."""

from __future__ import annotations

import re
from collections.abc import Mapping

from autotune.records import Resources

_FUNCTION = re.compile(
    r"(?:Compiling entry function '(?P<entry>[^']+)'|Function properties for (?P<function>\S+))"
)
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_CUMULATIVE_STACK = re.compile(r"(\d+) bytes cumulative stack size")
_SHARED = re.compile(r"(\d+) bytes smem")


def parse_log(log: str) -> Mapping[str, Resources]:
    """Resources by lowered name for every kernel the log describes in full.

    Shared memory is what the kernel declares: without the 1,024 bytes that the system takes from sm_90 on,
    which the binary counts in.
    """
    found: dict[str, Resources] = {}
    entry = function = ""
    stack = stores = loads = 0
    for line in log.splitlines():
        if names := _FUNCTION.search(line):
            entry = names["entry"] or entry
            function = names["function"] or entry
        elif (frame := _STACK.search(line)) and function == entry:
            # Device functions that were not inlined have a block of properties each, without registers.
            stack, stores, loads = map(int, frame.groups())
        elif used := _REGISTERS.search(line):
            cumulative = _CUMULATIVE_STACK.search(line)
            shared = _SHARED.search(line)
            found[entry] = Resources(
                registers=int(used[1]),
                static_smem_bytes=int(shared[1]) if shared else 0,
                spill_store_bytes=stores,
                spill_load_bytes=loads,
                stack_bytes=max(stack, int(cumulative[1]) if cumulative else 0),
            )
            stack = stores = loads = 0
    return found

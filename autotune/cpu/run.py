"""Runs one launch of a rendered kernel on the CPU, in a process of its own."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.candidate import BufferPlan, LaunchPlan, ScalarPlan, ScratchPlan, Source
from autotune.cpu.build import EXCERPT_CHARS, Sanitize, build
from autotune.errors import StageFailure
from autotune.records import Status

RUN_LIMIT_S = 120.0
_REPORT = re.compile(
    r"(WARNING: ThreadSanitizer|ERROR: AddressSanitizer|(?:\S+: )?runtime error:|autotune: ).*", re.DOTALL
)
_OUR_FRAME = re.compile(r"\s*#\d+ .*(autotune_host|/lib/|/usr/include/|\(BuildId)")
_KERNEL_PLACE = re.compile(r"\S*/kernel\.cu:(\d+)(?::\d+)?")
_OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0:exitcode=4",
    "TSAN_OPTIONS": "halt_on_error=1:exitcode=4",
}


def run_on_cpu(
    source: Source,
    launch: LaunchPlan,
    arrays: Mapping[str, npt.NDArray[Any]],
    sanitize: Sanitize = None,
    limit_s: float = RUN_LIMIT_S,
) -> dict[str, npt.NDArray[Any]]:
    """The output arrays after one launch on these arrays, which hold the elements without padding.

    Buffers get the pitch and alignment of the plan and end with their last element. With `sanitize`
    "address", an access outside the elements or past the alignment is found; with "thread", races between the
    threads of a block. Raises StageFailure: `wrong_result` for a race and for scratch memory that is not left zero,
    `timeout`, and `crashed` otherwise.
    """
    if launch.empty:
        return {plan.name: arrays[plan.name].copy() for plan in launch.buffers if plan.role != "in"}
    program = build(source, sanitize)
    with tempfile.TemporaryDirectory(prefix="autotune-cpu-") as folder:
        before, after = Path(folder, "launch"), Path(folder, "result")
        before.write_bytes(_packed(launch, arrays))
        _run([*_launcher(sanitize), str(program), str(before), str(after)], limit_s, source.text)
        return _outputs(launch, after.read_bytes())


def _packed(launch: LaunchPlan, arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    parts = [
        struct.pack("<8q", *launch.grid, *launch.block, launch.dynamic_smem_bytes, len(launch.arguments))
    ]
    for argument in launch.arguments:
        if isinstance(argument, ScalarPlan):
            value = np.array(argument.value, dtype=argument.dtype).tobytes()
            parts.append(struct.pack("<q", 0) + value.ljust(8, b"\0"))
            continue
        if isinstance(argument, ScratchPlan):
            parts.append(struct.pack("<2q", 2, argument.nbytes))
            continue
        rows, columns, item = _extent(argument)
        array = np.asarray(arrays[argument.name], dtype=argument.dtype)
        if array.shape != argument.shape:
            raise ValueError(f"{argument.name}: the launch has shape {argument.shape}, got {array.shape}")
        if argument.transposed:
            array = array.swapaxes(-1, -2)
        layout = (rows, columns * item, argument.pitch * item, argument.offset * item)
        parts.append(struct.pack("<5q", 1, *layout) + array.tobytes())
    return b"".join(parts)


def _outputs(launch: LaunchPlan, data: bytes) -> dict[str, npt.NDArray[Any]]:
    outputs: dict[str, npt.NDArray[Any]] = {}
    position = 0
    for plan in launch.buffers:
        rows, columns, item = _extent(plan)
        end = position + rows * columns * item
        if plan.role != "in":
            lies = np.frombuffer(data[position:end], dtype=plan.dtype).reshape(plan.stored_shape).copy()
            outputs[plan.name] = lies.swapaxes(-1, -2) if plan.transposed else lies
        position = end
    return outputs


def _extent(plan: BufferPlan) -> tuple[int, int, int]:
    """Rows, elements of a row and bytes of an element."""
    shape = plan.stored_shape
    columns = shape[-1] if shape else 1
    rows = int(np.prod(shape[:-1], dtype=np.int64))
    return rows, columns, np.dtype(plan.dtype).itemsize


def _run(command: list[str], limit_s: float, code: str) -> None:
    environment = {**os.environ, **_OPTIONS}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        raise StageFailure(Status.TIMEOUT, f"the kernel ran longer than {limit_s:g} s on the CPU") from None
    if done.returncode == 0:
        return
    report = _REPORT.search(done.stderr)
    excerpt = _readable((report[0] if report else done.stderr).strip(), code)[:EXCERPT_CHARS]
    wrong = "ThreadSanitizer: data race" in excerpt or "scratch memory dirty" in excerpt
    status = Status.WRONG_RESULT if wrong else Status.CRASHED
    raise StageFailure(status, excerpt or f"the kernel ended with status {done.returncode}")


def _readable(report: str, code: str) -> str:
    """The report without the frames of our own launcher, and with the text of the kernel's lines.

    The file that the sanitizers name is gone by then, and its lines are those of the rendered template.
    """
    lines = code.splitlines()

    def with_text(place: re.Match[str]) -> str:
        number = int(place[1])
        text = f": {lines[number - 1].strip()}" if 1 <= number <= len(lines) else ""
        return f"line {number} of the rendered kernel{text}"

    kept = [line for line in report.partition("\nShadow bytes")[0].splitlines() if not _OUR_FRAME.match(line)]
    return _KERNEL_PLACE.sub(with_text, "\n".join(kept))


@lru_cache
def _launcher(sanitize: Sanitize) -> tuple[str, ...]:
    """ThreadSanitizer wants its own place in the address space, which strong randomisation may take."""
    if sanitize != "thread":
        return ()
    fixed = ("setarch", os.uname().machine, "-R")
    try:
        works = subprocess.run([*fixed, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        works = False
    return fixed if works else ()

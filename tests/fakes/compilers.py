"""A compiler that misbehaves as the source's text says: `CompilePool(compiler="fakes.compilers:obey")`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from autotune.candidate import CompiledKernel, Source
from autotune.compile.compiler import CompileOptions
from autotune.errors import StageFailure
from autotune.records import Resources, Status

RESOURCES = Resources(
    registers=32, static_smem_bytes=0, spill_store_bytes=0, spill_load_bytes=0, stack_bytes=0
)


class OddError(BaseException):
    """Not even an Exception."""


class UnpicklableError(Exception):
    """Holds what cannot cross a process boundary."""

    def __init__(self) -> None:
        super().__init__("odd", lambda: None)


def obey(source: Source, arch: str, options: CompileOptions) -> CompiledKernel:
    """Does what the first word of the source says."""
    act, *words = source.text.split()
    if act == "abort":
        os.abort()
    elif act == "segv":
        os.kill(os.getpid(), signal.SIGSEGV)
        time.sleep(60)
    elif act == "raise":
        raise ZeroDivisionError("x" * 100_000)
    elif act == "odd":
        raise OddError("odd")
    elif act == "unpicklable":
        raise UnpicklableError
    elif act == "exit":
        sys.exit(3)
    elif act == "flood":
        line = b"error: something is wrong here, again and again\n" * 1000
        for _ in range(50_000_000 // len(line)):
            os.write(2, line)
        raise StageFailure(Status.COMPILE_ERROR, "flooded")
    elif act == "flood-and-die":
        os.write(1, b"error: spam\n" * 4_500_000)
        os._exit(1)
    elif act == "sleep":
        time.sleep(float(words[0]))
    elif act == "spawn":
        hanging = [sys.executable, "-c", "import time; time.sleep(600)"]
        pids = [subprocess.Popen(hanging).pid, subprocess.Popen(hanging, start_new_session=True).pid]
        Path(words[0]).write_text(" ".join(map(str, [os.getpid(), *pids])))
        time.sleep(600)
    elif act == "allocate":
        hoard = []
        while True:
            hoard.append(bytearray(b"x" * (8 << 20)))
            time.sleep(0.002)
    elif act == "child-allocates":
        program = "import time\nhoard = []\nwhile True: hoard.append(b'x' * (8 << 20)); time.sleep(0.02)"
        subprocess.run([sys.executable, "-c", program], check=False)
    elif act == "at-once":
        return bytearray(1 << 45)  # type: ignore[return-value]
    elif act == "nonsense":
        return 7  # type: ignore[return-value]
    image = options.cache_folder / "fake.cubin"
    return CompiledKernel(act, image, source.entry, arch, RESOURCES, "fake 1.0", 0.0)

"""What an error of the driver means for a trial: refused, crashed, or ended by the display watchdog."""

from __future__ import annotations

from autotune.errors import StageFailure
from autotune.records import Status

# Numbers of CUresult, which the runtime API shares; CUDA driver API, "Data types used by CUDA driver".
REFUSED = {
    1: "invalid value",
    2: "out of memory",
    9: "invalid configuration",
    98: "invalid device function",
    200: "invalid image",
    209: "no binary for this GPU",
    218: "invalid PTX",
    222: "unsupported PTX version",
    500: "not found",
    701: "too many resources requested for launch",
    720: "cooperative launch too large",
    801: "not supported",
}
"""Errors after which the context still works."""
UNLOADABLE = (200, 209, 218, 222)
"""What loading gives for code that the driver does not know."""
WATCHDOG = 702
WATCHDOG_HINT = (
    "a display watchdog on this GPU ends kernels that run for about 2 s; tune on a GPU without a display, or "
    'the limit (TdrDelay on Windows, Interactive "off" in the X server\'s device section on Linux)'
)


def failure(error: Exception, act: str) -> StageFailure:
    """The outcome of a trial in which CuPy raised this; all but refusals leave a context that is lost."""
    status = int(getattr(error, "status", 0) or 0)
    if status == WATCHDOG:
        return StageFailure(Status.TIMEOUT, f"{act}: {error}; {WATCHDOG_HINT}")
    if status in REFUSED:
        return StageFailure(Status.LAUNCH_ERROR, f"{act}: {error}")
    return StageFailure(Status.CRASHED, f"{act}: {error}")

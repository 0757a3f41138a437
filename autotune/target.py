"""Which GPU a user means, and whether it is in this machine."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.errors import GpuUnavailable, InputError
from autotune.gpu import GpuSpec

if TYPE_CHECKING:
    from autotune.device.local import LocalGpu


@dataclass(frozen=True)
class Target:
    """The GPU to tune for; `local` is the board in this machine to measure on, None where there is none."""

    gpu: GpuSpec
    local: LocalGpu | None


def find_target(name: str, folders: Sequence[Path] = ()) -> Target:
    """The target of `--gpu`: `local`, an index or UUID of a board here, a table name, or a GPU's own name.

    Raises GpuUnavailable for `local` and boards that are not here, InputError for names that no table knows.
    """
    from autotune.device.local import local_gpus, select_gpu
    from autotune.gpu_tables import find_gpu

    boards = local_gpus(folders)
    # A board that is here is taken first: it needs no table.
    if boards:
        with suppress(InputError):
            board = select_gpu(name, boards)
            return Target(board.spec, board)
    if name.lower() == "local":
        rule = "no NVIDIA GPU in this machine; what does not measure takes a name instead, e.g. --gpu a6000"
        raise GpuUnavailable(rule)
    if name.isdigit() or name.upper().startswith(("GPU-", "MIG-")):
        here = ", ".join(f"{board.index}: {board.uuid}" for board in boards) or "none"
        raise GpuUnavailable(f"no GPU {name} in this machine (here: {here})")
    try:
        gpu = find_gpu(name, folders)
    except InputError as error:
        error.key = error.key or "--gpu"
        raise
    return Target(gpu, next((board for board in boards if board.spec.table == gpu.table), None))

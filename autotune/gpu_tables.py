"""The GPU tables in `configs/gpus`: one file per board, and what boards of one compute capability share.

Each number of a board names its source, which the file spells out under `sources`. Boards of a project folder
come first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)

from autotune.errors import InputError, nearest_name
from autotune.gpu import GpuSpec
from autotune.paths import shipped
from autotune.spec.yaml_file import Key, YamlFile, read_yaml, shortened

CAPABILITIES_FILE = "compute_capabilities.yaml"

REGISTERS_PER_SM = 65_536
MAX_REGISTERS_PER_THREAD = 255
MAX_THREADS_PER_BLOCK = 1024
"""The same on every compute capability since 7.0, CUDA C++ Programming Guide."""

VISIBLE_MEMORY = (0.88, 1.02)
"""What a board reports as memory over its nominal size: the driver and ECC on GDDR boards keep a share."""

Number = TypeVar("Number")
Shape = TypeVar("Shape", bound=BaseModel)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Sourced(_Strict, Generic[Number]):
    """A number with the name of its source."""

    value: Number
    source: str


class BoardTable(_Strict):
    """One board's file."""

    table: str = Field(pattern="^[a-z][a-z0-9_]*$")
    name: str = Field(min_length=1)
    aliases: list[str] = []
    compute_capability: str = Field(pattern="^[0-9]+[.][0-9]$")
    mig_profile: str = ""
    sm_count: Sourced[PositiveInt]
    max_clock_mhz: Sourced[PositiveInt]
    memory_bytes: Sourced[PositiveInt]
    memory_gbps: Sourced[PositiveFloat]
    l2_bytes: Sourced[PositiveInt]
    quoted_fp32_tflops: Sourced[PositiveFloat] | None = None
    sources: dict[str, str]

    @model_validator(mode="after")
    def _every_source_is_given(self) -> BoardTable:
        used = {getattr(self, name).source for name in type(self).model_fields if _is_sourced(self, name)}
        if missing := used - set(self.sources):
            raise ValueError(f"sources must spell out {', '.join(sorted(missing))}")
        return self


class Capability(_Strict):
    """What every GPU of one compute capability has."""

    fp32_lanes_per_sm: PositiveInt
    smem_per_sm_bytes: PositiveInt
    smem_per_block_bytes: PositiveInt
    smem_reserved_bytes: int = Field(ge=0)
    smem_allocation_unit_bytes: PositiveInt
    max_threads_per_sm: PositiveInt
    max_blocks_per_sm: PositiveInt


def find_gpu(name: str, folders: Sequence[Path] = ()) -> GpuSpec:
    """The GPU that a user means by a table name, a CUDA name or an alias; case, spaces and dashes aside.

    Raises InputError with the choices where several boards fit, and with the nearest name where none does.
    """
    tables = list_gpus(folders)
    wanted = _plain(name)
    for gpu in tables:
        if wanted == _plain(gpu.table):
            return gpu
    matches = [gpu for gpu in tables if wanted in _plain_names(gpu)]
    if len(matches) == 1:
        return matches[0]
    # `a100` and `h100` stand for several boards, whose clocks, memories or SMs differ.
    family = matches or [gpu for gpu in tables if _words(name) and _words(name) <= _all_words(gpu)]
    if len(family) == 1:
        return family[0]
    if family:
        choices = ", ".join(gpu.table for gpu in family)
        raise InputError(f"{name!r} may be several GPUs: say which of {choices}", nearest=family[0].table)
    names = {_plain(text): gpu.table for gpu in tables for text in (gpu.table, gpu.name, *gpu.aliases)}
    nearest = nearest_name(wanted, names)
    raise InputError(
        f"no GPU table for {name!r}", nearest=names.get(nearest, ", ".join(gpu.table for gpu in tables))
    )


def list_gpus(folders: Sequence[Path] = ()) -> tuple[GpuSpec, ...]:
    """All known boards by table name; a project folder's table replaces a shipped one of the same name."""
    return tuple(sorted(_boards(folders), key=lambda gpu: gpu.table))


def table_for_device(
    name: str,
    compute_capability: tuple[int, int],
    sm_count: int,
    memory_bytes: int,
    mig_profile: str = "",
    folders: Sequence[Path] = (),
) -> str | None:
    """The table of a device in this machine; None where no table describes it.

    Name, compute capability, SM count, memory and MIG profile must all fit: a slice of a GPU, or a board sold
    under one name in several builds, never passes for another. Where several fit, a project folder's comes first.
    """
    low, high = VISIBLE_MEMORY
    for gpu in _boards(folders):
        same_kind = gpu.compute_capability == tuple(compute_capability) and gpu.sm_count == sm_count
        same_memory = low * gpu.memory_bytes <= memory_bytes <= high * gpu.memory_bytes
        if same_kind and same_memory and gpu.mig_profile == mig_profile and _plain(name) in _plain_names(gpu):
            return gpu.table
    return None


def capability_of(compute_capability: str) -> Capability:
    """What GPUs of one compute capability share; raises InputError for one that the table does not have."""
    known = _capabilities(_capabilities_file())
    if compute_capability not in known:
        raise InputError(
            f"compute capability must be one of {', '.join(known)}, got {compute_capability!r}",
            key="compute_capability",
        )
    return known[compute_capability]


def _boards(folders: Sequence[Path]) -> Iterable[GpuSpec]:
    """One board for each table name, those of earlier folders first, the shipped ones last."""
    boards: dict[str, GpuSpec] = {}
    for root in (*(Path(folder) / "configs" for folder in folders), shipped("configs")):
        for file in sorted((root / "gpus").glob("*.yaml")):
            if file.name != CAPABILITIES_FILE:
                boards.setdefault(file.stem, _load_board(file, file.stat().st_mtime_ns))
    return boards.values()


@cache
def _load_board(file: Path, _modified_ns: int) -> GpuSpec:
    content = read_yaml(file)
    board = _validated(BoardTable, content, ())
    try:
        capability = capability_of(board.compute_capability)
    except InputError as error:
        error.where = content.where(("compute_capability",))
        raise
    if board.table != file.stem:
        raise content.error(("table",), f"must be the file's name {file.stem!r}, got {board.table!r}")
    major, minor = board.compute_capability.split(".")
    return GpuSpec(
        table=board.table,
        name=board.name,
        aliases=tuple(board.aliases),
        mig_profile=board.mig_profile,
        compute_capability=(int(major), int(minor)),
        sm_count=board.sm_count.value,
        max_clock_mhz=board.max_clock_mhz.value,
        memory_bytes=board.memory_bytes.value,
        memory_gbps=board.memory_gbps.value,
        l2_bytes=board.l2_bytes.value,
        quoted_fp32_tflops=board.quoted_fp32_tflops.value if board.quoted_fp32_tflops else None,
        registers_per_sm=REGISTERS_PER_SM,
        max_registers_per_thread=MAX_REGISTERS_PER_THREAD,
        max_threads_per_block=MAX_THREADS_PER_BLOCK,
        **capability.model_dump(),
    )


def _capabilities_file() -> Path:
    return shipped("configs") / "gpus" / CAPABILITIES_FILE


@cache
def _capabilities(file: Path) -> dict[str, Capability]:
    content = read_yaml(file)
    return {version: _validated(Capability, content, (version,)) for version in content.data}


def _validated(shape: type[Shape], content: YamlFile, key: Key) -> Shape:
    """The part of the file under `key`; raises InputError about the first fault in it."""
    data = content.data
    for part in key:
        data = data[part]
    try:
        return shape.model_validate(data)
    except ValidationError as invalid:
        # A misspelt key also leaves the right one missing: the misspelling is what to report.
        fault = min(invalid.errors(include_url=False), key=lambda error: error["type"] != "extra_forbidden")
    place = (*key, *fault["loc"])
    message = fault["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    if fault["type"] == "extra_forbidden":
        known = shape.model_fields if len(fault["loc"]) == 1 else Sourced.model_fields
        raise content.error(place, "unknown key", nearest_name(str(place[-1]), known))
    if fault["type"] == "missing":
        raise content.error(place, "is required")
    raise content.error(place, f"{message}, got {shortened(fault['input'])}")


def _is_sourced(board: BoardTable, field: str) -> bool:
    return isinstance(getattr(board, field), Sourced)


def _plain(name: str) -> str:
    """A name without case, spaces, dashes and the vendor's prefix."""
    return re.sub("[^a-z0-9]", "", name.lower()).removeprefix("nvidia")


def _plain_names(gpu: GpuSpec) -> set[str]:
    return {_plain(text) for text in (gpu.table, gpu.name, *gpu.aliases)}


def _words(name: str) -> set[str]:
    return set(re.split("[^a-z0-9]+", name.lower())) - {"", "nvidia"}


def _all_words(gpu: GpuSpec) -> set[str]:
    return set().union(*(_words(text) for text in (gpu.table, gpu.name, *gpu.aliases)))

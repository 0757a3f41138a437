"""The NVIDIA GPUs in this machine, found without making a CUDA context in this process.

The management library lists the boards; a short-lived child asks CUDA for their properties. Both are joined
by PCI bus id, since they may number the boards differently.
"""

from __future__ import annotations

import dataclasses
import os
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import autotune
from autotune.device import nvml
from autotune.device.messages import DeviceFacts, ListDevices
from autotune.errors import AutotuneError, GpuUnavailable, InputError, nearest_name
from autotune.gpu import GpuSpec
from autotune.gpu_tables import MAX_REGISTERS_PER_THREAD, capability_of, find_gpu, table_for_device
from autotune.records import DeviceIdentity, Environment

LIST_LIMIT_S = 60.0
WORKER = "autotune.device.worker"


@dataclass(frozen=True)
class LocalGpu:
    """A GPU in this machine that CUDA may use."""

    spec: GpuSpec
    identity: DeviceIdentity
    environment: Environment
    uuid: str
    pci_bus_id: str
    index: int
    """In the order of PCI bus ids, as `nvidia-smi` numbers them."""
    watchdog: bool = False
    """Whether a display watchdog ends kernels that run for seconds."""

    def worker_env(self) -> dict[str, str]:
        """What makes a child process see this board and no other, however CUDA would number them."""
        return {
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_VISIBLE_DEVICES": self.uuid,
            # FP32 emulation on tensor cores would no longer be the FP32 baseline.
            "CUBLAS_EMULATE_SINGLE_PRECISION": "0",
        }


def local_gpus(folders: Sequence[Path] = ()) -> list[LocalGpu]:
    """The GPUs here in the order of their PCI bus ids, those that `CUDA_VISIBLE_DEVICES` hides left out.

    The tables of project folders come before the shipped ones. Empty without an NVIDIA driver, and, with a
    warning, where CUDA cannot use what is there. The answer is kept, so that asking again is cheap.
    """
    return list(_local_gpus(os.environ.get("CUDA_VISIBLE_DEVICES"), tuple(folders)))


def select_gpu(name: str, gpus: Sequence[LocalGpu]) -> LocalGpu:
    """The GPU of an index, a UUID (or the beginning of one), a CUDA name, or a table name.

    Raises GpuUnavailable where there is none at all, InputError with the choices where none fits.
    """
    if not gpus:
        raise GpuUnavailable("no NVIDIA GPU in this machine")
    wanted = name.strip().lower()
    for gpu in gpus:
        if wanted in (
            "local",
            str(gpu.index),
            gpu.uuid.lower(),
            gpu.spec.name.lower(),
            gpu.spec.table.lower(),
        ):
            return gpu
    beginning = [
        gpu for gpu in gpus if wanted.startswith(("gpu-", "mig-")) and gpu.uuid.lower().startswith(wanted)
    ]
    if len(beginning) == 1:
        return beginning[0]
    choices = [text for gpu in gpus for text in (str(gpu.index), gpu.spec.table, gpu.uuid)]
    raise InputError(
        f"no GPU {name!r} in this machine (here: {', '.join(choices)})",
        key="gpu",
        nearest=nearest_name(name, choices),
    )


def describe_device(ordinal: int) -> DeviceFacts:
    """The facts of one CUDA device as this process numbers them; makes no context.

    Raises GpuUnavailable where the driver is missing or refuses.
    """
    from cuda.bindings import driver

    _initialise()
    device = _value(driver.cuDeviceGet(ordinal))
    kinds = driver.CUdevice_attribute

    def ask(name: str) -> int:
        return int(_value(driver.cuDeviceGetAttribute(getattr(kinds, f"CU_DEVICE_ATTRIBUTE_{name}"), device)))

    name = _value(driver.cuDeviceGetName(256, device)).split(b"\0")[0].decode().strip()
    return DeviceFacts(
        pci_bus_id=nvml.pci_text(ask("PCI_DOMAIN_ID"), ask("PCI_BUS_ID"), ask("PCI_DEVICE_ID")),
        uuid=uuid_text(bytes(_value(driver.cuDeviceGetUuid(device)).bytes), name),
        name=name,
        compute_capability=(ask("COMPUTE_CAPABILITY_MAJOR"), ask("COMPUTE_CAPABILITY_MINOR")),
        sm_count=ask("MULTIPROCESSOR_COUNT"),
        memory_bytes=int(_value(driver.cuDeviceTotalMem(device))),
        memory_clock_khz=ask("MEMORY_CLOCK_RATE"),
        memory_bus_bits=ask("GLOBAL_MEMORY_BUS_WIDTH"),
        clock_khz=ask("CLOCK_RATE"),
        l2_bytes=ask("L2_CACHE_SIZE"),
        smem_per_sm_bytes=ask("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        smem_per_block_bytes=ask("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        smem_reserved_bytes=ask("RESERVED_SHARED_MEMORY_PER_BLOCK"),
        registers_per_sm=ask("MAX_REGISTERS_PER_MULTIPROCESSOR"),
        max_threads_per_sm=ask("MAX_THREADS_PER_MULTIPROCESSOR"),
        max_threads_per_block=ask("MAX_THREADS_PER_BLOCK"),
        max_blocks_per_sm=ask("MAX_BLOCKS_PER_MULTIPROCESSOR"),
        watchdog=bool(ask("KERNEL_EXEC_TIMEOUT")),
    )


def describe_devices() -> tuple[DeviceFacts, ...]:
    """The facts of every CUDA device that this process may see."""
    from cuda.bindings import driver

    _initialise()
    return tuple(describe_device(ordinal) for ordinal in range(int(_value(driver.cuDeviceGetCount()))))


def uuid_text(raw: bytes, name: str) -> str:
    """The driver's 16 bytes as the management library spells them."""
    digits = raw.hex()
    groups = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    return f"{'MIG' if mig_profile(name) else 'GPU'}-{groups}"


def mig_profile(name: str) -> str:
    """The slice in a MIG device's name, e.g. `3g.71gb`; empty for a whole GPU."""
    found = re.search(r"\bMIG (\d+g\.\d+gb\S*)", name)
    return found.group(1) if found else ""


def as_local_gpu(
    facts: DeviceFacts,
    board: nvml.Board | None,
    versions: nvml.DriverVersions,
    folders: Sequence[Path] = (),
) -> LocalGpu:
    """A device's specification and identity: its table's where one fits, with what the device itself says."""
    profile = mig_profile(facts.name)
    plain_name = facts.name.split(" MIG ")[0]
    table = table_for_device(
        plain_name, facts.compute_capability, facts.sm_count, facts.memory_bytes, profile, folders
    )
    spec = _own_properties(facts, board, find_gpu(table, folders) if table else None, profile)
    identity = DeviceIdentity(
        table=spec.table,
        name=facts.name,
        compute_capability=f"{facts.compute_capability[0]}.{facts.compute_capability[1]}",
        sm_count=facts.sm_count,
        memory_bytes=facts.memory_bytes,
        mig_profile=profile,
    )
    environment = Environment(versions.driver, versions.cuda, _nvrtc_version(), autotune.__version__)
    return LocalGpu(
        spec=spec,
        identity=identity,
        environment=environment,
        uuid=facts.uuid,
        pci_bus_id=facts.pci_bus_id,
        index=board.index if board else 0,
        watchdog=facts.watchdog,
    )


@cache
def _local_gpus(visible: str | None, folders: tuple[Path, ...]) -> tuple[LocalGpu, ...]:
    boards = {board.pci_bus_id: board for board in nvml.boards()}
    if not boards:
        return ()
    versions = nvml.driver_versions()
    try:
        devices = _ask_child()
    except GpuUnavailable as error:
        # All that needs no GPU goes on; whoever asked for the local one learns why there is none.
        warnings.warn(str(error), stacklevel=3)
        return ()
    found = [as_local_gpu(facts, boards.get(facts.pci_bus_id), versions, folders) for facts in devices]
    return tuple(sorted(found, key=lambda gpu: (gpu.pci_bus_id, gpu.uuid)))


def _ask_child() -> tuple[DeviceFacts, ...]:
    from autotune.child.process import ChildProcess

    child = ChildProcess(WORKER)
    try:
        reply = child.request(ListDevices(), LIST_LIMIT_S)
    except AutotuneError as error:
        raise GpuUnavailable(
            f"there is an NVIDIA driver, but CUDA cannot list its devices: {error}"
        ) from error
    finally:
        child.close()
    assert isinstance(reply, tuple)
    return reply


def _own_properties(
    facts: DeviceFacts, board: nvml.Board | None, table: GpuSpec | None, profile: str
) -> GpuSpec:
    major, minor = facts.compute_capability
    own = GpuSpec(
        table=re.sub("[^a-z0-9]+", "_", facts.name.lower().removeprefix("nvidia ")),
        name=facts.name,
        compute_capability=(major, minor),
        sm_count=facts.sm_count,
        fp32_lanes_per_sm=capability_of(f"{major}.{minor}").fp32_lanes_per_sm,
        max_clock_mhz=max(board.max_sm_clock_mhz if board else 0, facts.clock_khz // 1000),
        memory_bytes=facts.memory_bytes,
        memory_gbps=2 * facts.memory_clock_khz * facts.memory_bus_bits / 8 / 1e6,
        l2_bytes=facts.l2_bytes,
        smem_per_sm_bytes=facts.smem_per_sm_bytes,
        smem_per_block_bytes=facts.smem_per_block_bytes,
        smem_reserved_bytes=facts.smem_reserved_bytes,
        registers_per_sm=facts.registers_per_sm,
        max_registers_per_thread=MAX_REGISTERS_PER_THREAD,
        max_threads_per_sm=facts.max_threads_per_sm,
        max_threads_per_block=facts.max_threads_per_block,
        max_blocks_per_sm=facts.max_blocks_per_sm,
        mig_profile=profile,
    )
    if table is None:
        return own
    return dataclasses.replace(
        own,
        table=table.table,
        name=table.name,
        aliases=table.aliases,
        max_clock_mhz=max(own.max_clock_mhz, table.max_clock_mhz),
        memory_gbps=table.memory_gbps,
        quoted_fp32_tflops=table.quoted_fp32_tflops,
        smem_allocation_unit_bytes=table.smem_allocation_unit_bytes,
    )


def _nvrtc_version() -> str:
    from autotune.compile import nvrtc

    try:
        return nvrtc.version()
    except AutotuneError:
        return ""


def _initialise() -> None:
    from cuda.bindings import driver

    try:
        _value(driver.cuInit(0))
    except (RuntimeError, ImportError) as error:  # what the bindings raise where the library is missing
        raise GpuUnavailable(f"no usable NVIDIA driver: {error}") from error


def _value(result: tuple[Any, ...]) -> Any:
    """The value of a driver call that gives (error, value); raises GpuUnavailable on an error."""
    code = int(result[0])
    if code:
        raise GpuUnavailable(f"the NVIDIA driver answers {result[0]!s}")
    return result[1] if len(result) > 1 else None

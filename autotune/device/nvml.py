"""Boards, versions and clocks from the driver's management library, which makes no CUDA context.

Boards are known by PCI bus id everywhere, since the library and CUDA may number them differently.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from autotune.records import ClockReading

REASONS = {
    "nvmlClocksThrottleReasonApplicationsClocksSetting": "application clocks",
    "nvmlClocksThrottleReasonSwPowerCap": "power cap",
    "nvmlClocksThrottleReasonHwSlowdown": "hardware slowdown",
    "nvmlClocksThrottleReasonSyncBoost": "sync boost",
    "nvmlClocksThrottleReasonSwThermalSlowdown": "temperature (driver)",
    "nvmlClocksThrottleReasonHwThermalSlowdown": "temperature (hardware)",
    "nvmlClocksThrottleReasonHwPowerBrakeSlowdown": "power brake",
    "nvmlClocksThrottleReasonDisplayClockSetting": "display clocks",
}
"""All reasons but idling."""


@dataclass(frozen=True)
class Board:
    """One board as the management library lists it."""

    index: int
    """In the order of PCI bus ids, as `nvidia-smi` numbers them."""
    uuid: str
    name: str
    pci_bus_id: str
    """`domain:bus:device` in hexadecimal, e.g. `0000:18:00`."""
    max_sm_clock_mhz: int


@dataclass(frozen=True)
class DriverVersions:
    """What the installed driver is, and the newest CUDA it runs."""

    driver: str
    cuda: str


def library() -> Any | None:
    """The initialised library; None where there is no NVIDIA driver."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def boards() -> tuple[Board, ...]:
    """The boards in this machine in the order of their PCI bus ids; empty without a driver."""
    nvml = library()
    if nvml is None:
        return ()
    found = []
    for number in range(_ask(nvml.nvmlDeviceGetCount) or 0):
        handle = _ask(nvml.nvmlDeviceGetHandleByIndex, number)
        if handle is None:
            continue
        pci = nvml.nvmlDeviceGetPciInfo(handle)
        found.append(
            Board(
                index=0,
                uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
                name=_text(nvml.nvmlDeviceGetName(handle)),
                pci_bus_id=pci_text(pci.domain, pci.bus, pci.device),
                max_sm_clock_mhz=_ask(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM) or 0,
            )
        )
    found.sort(key=lambda board: board.pci_bus_id)
    return tuple(
        Board(index, board.uuid, board.name, board.pci_bus_id, board.max_sm_clock_mhz)
        for index, board in enumerate(found)
    )


def driver_versions() -> DriverVersions:
    """The driver's version and its CUDA version; empty texts without a driver."""
    nvml = library()
    if nvml is None:
        return DriverVersions("", "")
    cuda = _ask(nvml.nvmlSystemGetCudaDriverVersion_v2) or 0
    return DriverVersions(
        driver=_text(_ask(nvml.nvmlSystemGetDriverVersion) or ""),
        cuda=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else "",
    )


def clock_reader(pci_bus_id: str) -> Callable[[], ClockReading | None]:
    """A function that reads the clocks of the board at a PCI bus id; None where they cannot be read."""
    nvml = library()
    handle = _handle_at(nvml, pci_bus_id) if nvml is not None else None
    highest = (
        _ask(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM)
        if nvml and handle is not None
        else None
    )

    def read() -> ClockReading | None:
        if nvml is None or handle is None:
            return None
        clock = _ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM)
        if clock is None or highest is None:
            return None
        temperature = _ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU)
        bits = _ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle) or 0
        reasons = [text for name, text in REASONS.items() if bits & getattr(nvml, name)]
        return ClockReading(int(clock), int(highest), int(temperature or 0), ",".join(reasons))

    return read


def pci_text(domain: int, bus: int, device: int) -> str:
    """One spelling of a PCI bus id for the management library and CUDA alike."""
    return f"{domain:04x}:{bus:02x}:{device:02x}"


def _handle_at(nvml: Any, pci_bus_id: str) -> Any | None:
    for number in range(_ask(nvml.nvmlDeviceGetCount) or 0):
        handle = _ask(nvml.nvmlDeviceGetHandleByIndex, number)
        if handle is None:
            continue
        pci = nvml.nvmlDeviceGetPciInfo(handle)
        if pci_text(pci.domain, pci.bus, pci.device) == pci_bus_id:
            return handle
    return None


def _ask(function: Callable[..., Any], *arguments: object) -> Any | None:
    """The answer, or None where this board or this driver does not know."""
    import pynvml

    try:
        return function(*arguments)
    except pynvml.NVMLError:
        return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value

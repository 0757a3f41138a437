"""Boards and a management library that are not there."""

from __future__ import annotations

from types import SimpleNamespace

from autotune.device.messages import DeviceFacts

GIB = 2**30


def facts(pci_bus_id, name="NVIDIA H200", uuid="GPU-aa", **changes):
    values = {
        "pci_bus_id": pci_bus_id,
        "uuid": uuid,
        "name": name,
        "compute_capability": (9, 0),
        "sm_count": 132,
        "memory_bytes": 150_110_011_392,
        "memory_clock_khz": 3_201_000,
        "memory_bus_bits": 6144,
        "clock_khz": 1_980_000,
        "l2_bytes": 60 * 2**20,
        "smem_per_sm_bytes": 228 * 1024,
        "smem_per_block_bytes": 227 * 1024,
        "smem_reserved_bytes": 1024,
        "registers_per_sm": 65_536,
        "max_threads_per_sm": 2048,
        "max_threads_per_block": 1024,
        "max_blocks_per_sm": 32,
        "watchdog": False,
    }
    return DeviceFacts(**{**values, **changes})


class FakeNvmlError(Exception):
    pass


class FakeNvml:
    """Enough of `pynvml`: boards are dicts, handles are their positions."""

    NVMLError = FakeNvmlError
    NVML_CLOCK_SM = 1
    NVML_TEMPERATURE_GPU = 0
    nvmlClocksThrottleReasonApplicationsClocksSetting = 2  # noqa: N815
    nvmlClocksThrottleReasonSwPowerCap = 4  # noqa: N815
    nvmlClocksThrottleReasonHwSlowdown = 8  # noqa: N815
    nvmlClocksThrottleReasonSyncBoost = 16  # noqa: N815
    nvmlClocksThrottleReasonSwThermalSlowdown = 32  # noqa: N815
    nvmlClocksThrottleReasonHwThermalSlowdown = 64  # noqa: N815
    nvmlClocksThrottleReasonHwPowerBrakeSlowdown = 128  # noqa: N815
    nvmlClocksThrottleReasonDisplayClockSetting = 256  # noqa: N815

    def __init__(self, boards, driver=True):
        self.boards = boards
        self.driver = driver

    def nvmlInit(self):
        if not self.driver:
            raise FakeNvmlError("library not found")

    def nvmlDeviceGetCount(self):
        return len(self.boards)

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetPciInfo(self, handle):
        domain, bus, device = (int(part, 16) for part in self.boards[handle]["pci"].split(":"))
        return SimpleNamespace(domain=domain, bus=bus, device=device)

    def nvmlDeviceGetUUID(self, handle):
        return self.boards[handle]["uuid"]

    def nvmlDeviceGetName(self, handle):
        return self.boards[handle]["name"].encode()  # older versions give bytes

    def nvmlDeviceGetMaxClockInfo(self, handle, kind):
        return self._known(handle, "max_clock")

    def nvmlDeviceGetClockInfo(self, handle, kind):
        return self._known(handle, "clock")

    def nvmlDeviceGetTemperature(self, handle, sensor):
        return self._known(handle, "temperature")

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle):
        return self._known(handle, "reasons")

    def nvmlSystemGetDriverVersion(self):
        return "580.159.03"

    def nvmlSystemGetCudaDriverVersion_v2(self):
        return 13000

    def _known(self, handle, key):
        if key not in self.boards[handle]:
            raise FakeNvmlError("not supported")
        return self.boards[handle][key]

"""What verifying and measuring need of a GPU: the seam between them and CUDA, faked in tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Protocol

from autotune.candidate import CompiledKernel, LaunchPlan
from autotune.device.messages import KernelFacts
from autotune.device.sampling import BusyTime
from autotune.references import Array


class GpuDevice(Protocol):
    """One GPU with one stream, on which everything runs in order.

    Methods raise StageFailure: `launch_error` for what the driver refuses, `crashed` where the context is
    lost, `timeout` where the display watchdog ended a kernel.
    """

    xp: ModuleType
    """The array module whose arrays live on the device."""
    busy: BusyTime
    """Noted by `synchronize`."""

    def allocate(self, nbytes: int) -> Array:
        """An uninitialised array of bytes that starts on a 256-byte boundary."""
        ...

    def address(self, array: Array) -> int:
        """The array's first byte as a pointer."""
        ...

    def loaded(self, kernel: CompiledKernel) -> AbstractContextManager[object]:
        """A function handle, unloaded on leaving."""
        ...

    def bind(self, function: object, launch: LaunchPlan, addresses: Mapping[str, int]) -> Callable[[], None]:
        """A call that queues one launch over these buffers."""
        ...

    def inspect(self, function: object, launch: LaunchPlan) -> KernelFacts:
        """What the driver says of a function and its launch."""
        ...

    def graph(self, queue: Callable[[], None]) -> AbstractContextManager[Callable[[], None]]:
        """All that `queue` queues as one graph; calling it queues the graph."""
        ...

    def mark(self) -> object:
        """Queues a time stamp."""
        ...

    def elapsed_ms(self, start: object, end: object) -> float:
        """GPU time between two stamps that have been reached."""
        ...

    def flush(self, nbytes: int) -> None:
        """Queues writes of this many bytes to memory of no other use, which empties the L2."""
        ...

    def synchronize(self) -> None:
        """Waits for everything queued."""
        ...

    def now(self) -> float:
        """Host seconds on a steady clock."""
        ...

    def free_bytes(self) -> int:
        """Device memory that can still be had."""
        ...

    def release(self) -> None:
        """Gives memory of dropped arrays back to the driver."""
        ...

    @property
    def l2_bytes(self) -> int:
        """Size of the L2."""
        ...

    @property
    def memory_gbps(self) -> float:
        """Peak device-memory bandwidth, 1e9 bytes per second."""
        ...

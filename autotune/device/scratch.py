"""Scratch memory of kernels under test: zero before a launch, and held to be zero again after it."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.candidate import LaunchPlan
from autotune.device.gpu_device import GpuDevice

GUARD_BYTES = 64 * 1024
"""Zeros behind the memory, which a kernel must leave alone as well."""


class Scratch:
    """Zeroed device memory that launches share, one after the other; nothing where none of them needs any."""

    def __init__(self, device: GpuDevice, launches: Sequence[LaunchPlan]) -> None:
        """As much as the launch that needs most."""
        self._device = device
        needed = max((launch.scratch.nbytes for launch in launches if launch.scratch), default=0)
        self._memory = device.allocate(-(-needed // 8) * 8 + GUARD_BYTES) if needed else None
        if self._memory is not None:
            self._memory[...] = 0

    def addresses(self, launch: LaunchPlan) -> dict[str, int]:
        """The pointer by the argument's name; empty for a launch that needs none."""
        if launch.scratch is None or self._memory is None:
            return {}
        return {launch.scratch.name: self._device.address(self._memory)}

    def dirt(self, launch: LaunchPlan) -> str | None:
        """Where a launch has left something, as one sentence; None where all is zero."""
        if launch.scratch is None or self._memory is None:
            return None
        words = self._memory.view(self._device.xp.uint64)
        dirty = words != 0
        count = int(dirty.sum())
        if count == 0:
            return None
        first = 8 * int(dirty.argmax())
        name, nbytes = launch.scratch.name, launch.scratch.nbytes
        place = f"at byte {first}" if first < nbytes else f"{first - nbytes} bytes past its end"
        return f"scratch {name} has to be left zero, got {count} words that are not, the first {place} of {nbytes}"

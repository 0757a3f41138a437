"""Launching a compiled kernel in this process's CUDA context, on whatever stream CuPy uses now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.candidate import CompiledKernel, LaunchPlan, ScalarPlan, ScratchPlan
from autotune.device.cuda_errors import failure


@dataclass(frozen=True)
class Packed:
    """A launch's arguments as the driver takes them: pointers to values that live as long as this."""

    pointers: npt.NDArray[np.uintp]
    values: tuple[npt.NDArray[Any], ...]

    @classmethod
    def of(cls, launch: LaunchPlan, addresses: Mapping[str, int]) -> Packed:
        """Scalars in their types, arrays by their addresses, in the order of the signature."""
        values: list[npt.NDArray[Any]] = []
        for argument in launch.arguments:
            if isinstance(argument, ScalarPlan):
                values.append(np.array(argument.value, dtype=argument.dtype))
            elif isinstance(argument, ScratchPlan) and not argument.nbytes:
                values.append(np.array(0, dtype=np.uint64))
            else:
                values.append(np.array(addresses[argument.name], dtype=np.uint64))
        return cls(np.array([value.ctypes.data for value in values], dtype=np.uintp), tuple(values))

    def at(self, launch: LaunchPlan, addresses: Mapping[str, int]) -> Packed:
        """The same arguments with the arrays elsewhere: cheaper than packing all of them anew."""
        pointers, values = self.pointers.copy(), list(self.values)
        for place, argument in enumerate(launch.arguments):
            if argument.name in addresses:
                values[place] = np.array(addresses[argument.name], dtype=np.uint64)
                pointers[place] = values[place].ctypes.data
        return Packed(pointers, tuple(values))

    @property
    def address(self) -> int:
        """Of the pointers."""
        return int(self.pointers.ctypes.data)


class Launcher:
    """One kernel, loaded for good into the current device's context."""

    def __init__(self, kernel: CompiledKernel) -> None:
        """Raises StageFailure where the driver refuses the code."""
        from cupy.cuda import driver

        self._driver: Any = driver
        self._smem_bytes = 0
        try:
            self._module = driver.moduleLoadData(kernel.image.read_bytes())
            self._function = driver.moduleGetFunction(self._module, kernel.entry)
        except driver.CUDADriverError as error:
            raise failure(error, f"loading {kernel.entry} of {kernel.compiler} for {kernel.arch}") from None

    def __call__(self, launch: LaunchPlan, addresses: Mapping[str, int]) -> None:
        """Queues one launch on CuPy's current stream; raises StageFailure where the driver refuses it."""
        import cupy

        driver = self._driver
        packed = Packed.of(launch, addresses)
        stream = cupy.cuda.get_current_stream().ptr
        try:
            if launch.dynamic_smem_bytes > self._smem_bytes:
                attribute = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                driver.funcSetAttribute(self._function, attribute, launch.dynamic_smem_bytes)
                self._smem_bytes = launch.dynamic_smem_bytes
            shape = (*launch.grid, *launch.block, launch.dynamic_smem_bytes)
            driver.launchKernel(self._function, *shape, stream, packed.address, 0)
        except driver.CUDADriverError as error:
            raise failure(error, launch_text(launch)) from None


def launch_text(launch: LaunchPlan) -> str:
    """A launch in words, for messages."""
    grid, block = "x".join(map(str, launch.grid)), "x".join(map(str, launch.block))
    smem = f"{launch.dynamic_smem_bytes} B of dynamic shared memory"
    return f"launching {grid} blocks of {block} threads with {smem}"

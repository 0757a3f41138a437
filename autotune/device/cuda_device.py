"""The GPU of this process through CuPy: memory, modules, launches, graphs and time stamps.

All work goes to one stream, CuPy's own included, so that nothing overlaps and everything is in order. Used in
the worker process alone; CuPy and a driver are needed only when a `CudaDevice` is made.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from autotune.candidate import CompiledKernel, LaunchPlan
from autotune.compile.compiler import toolkit_too_new
from autotune.compile.cubin import CubinError, kernel_names
from autotune.device.cuda_errors import UNLOADABLE, failure
from autotune.device.launcher import Packed, launch_text
from autotune.device.messages import DeviceFacts, KernelFacts
from autotune.device.sampling import BusyTime
from autotune.errors import GpuUnavailable, StageFailure
from autotune.records import Status
from autotune.references import Array

FLUSH_VALUE = 0x5A


class CudaDevice:
    """CUDA device 0 of this process (`CUDA_VISIBLE_DEVICES` has chosen it); see `GpuDevice`."""

    def __init__(self, facts: DeviceFacts) -> None:
        """Makes the context; raises GpuUnavailable where CuPy is missing or the driver refuses."""
        try:
            import cupy
            from cupy.cuda import driver, runtime
        except ImportError as error:
            raise GpuUnavailable(
                f"measuring needs CuPy ({error}); install cuda-autotune[cuda13] or [cuda12]"
            ) from error
        self.xp = cupy
        self.facts = facts
        self.busy = BusyTime()
        self._driver: Any = driver
        self._runtime: Any = runtime
        self.cuda_errors: tuple[type[Exception], ...] = (driver.CUDADriverError, runtime.CUDARuntimeError)
        try:
            cupy.cuda.Device(0).use()
            self._stream = cupy.cuda.Stream(non_blocking=True)
            self._stream.use()
            cupy.zeros(1, dtype=cupy.uint8)
            self._stream.synchronize()
        except self.cuda_errors as error:
            raise GpuUnavailable(f"the driver makes no context on {facts.name}: {error}") from error
        self._scratch: Array | None = None
        self._packed: tuple[LaunchPlan, Packed] | None = None
        self._opted: tuple[object, int] | None = None

    @property
    def stream(self) -> int:
        """The stream's handle, for libraries."""
        return int(self._stream.ptr)

    @property
    def l2_bytes(self) -> int:
        """Size of the L2."""
        return self.facts.l2_bytes

    @property
    def memory_gbps(self) -> float:
        """From the memory clock and the bus width; zero where the driver does not tell."""
        return 2 * self.facts.memory_clock_khz * self.facts.memory_bus_bits / 8 / 1e6

    def allocate(self, nbytes: int) -> Array:
        """An uninitialised array of bytes; CuPy's pool starts blocks on 512-byte boundaries."""
        array: Array = self.xp.empty(nbytes, dtype=self.xp.uint8)
        return array

    def address(self, array: Array) -> int:
        """The device pointer."""
        return int(array.data.ptr)  # type: ignore[attr-defined]

    @contextlib.contextmanager
    def loaded(self, kernel: CompiledKernel) -> Iterator[int]:
        """The function's handle; its module is unloaded on leaving.

        Raises StageFailure (`launch_error`) where the driver refuses the code, naming the compiler, and where
        the entry is missing, naming those that are there; GpuUnavailable where the compiler is too new for the
        driver, since no kernel would load then.
        """
        image = kernel.image.read_bytes()
        try:
            module = self._driver.moduleLoadData(image)
        except self._driver.CUDADriverError as error:
            if error.status in UNLOADABLE and (why := toolkit_too_new(self._cuda_version(), kernel.compiler)):
                raise GpuUnavailable(
                    f"{self.facts.name} does not load the compiled code ({error}): {why}"
                ) from None
            raise failure(
                error, f"loading code of {kernel.compiler} for {kernel.arch} on {self.facts.name}"
            ) from None
        try:
            yield self._function(module, kernel, image)
        finally:
            with contextlib.suppress(*self.cuda_errors):  # a lost context has unloaded it already
                self._driver.moduleUnload(module)
            self._opted = None  # another function may get the same handle

    def _cuda_version(self) -> str:
        """The CUDA version that the driver supports, e.g. `13.0`."""
        number = int(self._runtime.driverGetVersion())
        return f"{number // 1000}.{number % 1000 // 10}"

    def bind(self, function: object, launch: LaunchPlan, addresses: Mapping[str, int]) -> Callable[[], None]:
        """A call that queues one launch; raises StageFailure where the driver refuses the launch."""
        packed = self._pack(launch, addresses)
        launch_kernel, refused, stream = self._driver.launchKernel, self._driver.CUDADriverError, self.stream
        shape = (*launch.grid, *launch.block, launch.dynamic_smem_bytes)
        self._opt_in(function, launch.dynamic_smem_bytes)

        def queue() -> None:
            try:
                launch_kernel(function, *shape, stream, packed.address, 0)
            except refused as error:
                raise failure(error, launch_text(launch)) from None

        return queue

    def inspect(self, function: object, launch: LaunchPlan) -> KernelFacts:
        """Attributes of the function, and the driver's own occupancy for this launch."""
        driver = self._driver
        self._opt_in(function, launch.dynamic_smem_bytes)
        return KernelFacts(
            blocks_per_sm=driver.occupancyMaxActiveBlocksPerMultiprocessor(
                function, launch.threads, launch.dynamic_smem_bytes
            ),
            registers=driver.funcGetAttribute(driver.CU_FUNC_ATTRIBUTE_NUM_REGS, function),
            static_smem_bytes=driver.funcGetAttribute(driver.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function),
            local_bytes=driver.funcGetAttribute(driver.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function),
            max_threads_per_block=driver.funcGetAttribute(
                driver.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function
            ),
        )

    @contextlib.contextmanager
    def graph(self, queue: Callable[[], None]) -> Iterator[Callable[[], None]]:
        """Captures what `queue` queues; the call that this gives queues all of it at once."""
        runtime, stream = self._runtime, self.stream
        with self._reported("capturing calls"):
            runtime.streamBeginCapture(stream)
        try:
            queue()
        except BaseException:
            with contextlib.suppress(*self.cuda_errors):
                runtime.graphDestroy(runtime.streamEndCapture(stream))
            raise
        with self._reported("capturing calls"):
            captured = runtime.streamEndCapture(stream)
            try:
                executable = runtime.graphInstantiate(captured)
            finally:
                runtime.graphDestroy(captured)

        def replay() -> None:
            with self._reported("launching a graph"):
                runtime.graphLaunch(executable, stream)

        try:
            yield replay
        finally:
            with contextlib.suppress(*self.cuda_errors):
                runtime.graphExecDestroy(executable)

    def mark(self) -> object:
        """A recorded event."""
        event = self.xp.cuda.Event()
        with self._reported("recording an event"):
            event.record(self._stream)
        return event

    def elapsed_ms(self, start: object, end: object) -> float:
        """GPU time between two events."""
        with self._reported("reading events"):
            return float(self.xp.cuda.get_elapsed_time(start, end))

    def flush(self, nbytes: int) -> None:
        """Queues memsets over one scratch buffer that is larger than the L2 twice over."""
        if self._scratch is None:
            self._scratch = self.allocate(max(2**20, int(2.1 * self.l2_bytes)))
        address, size = self.address(self._scratch), int(self._scratch.size)
        with self._reported("flushing the L2"):
            for _ in range(max(1, -(-nbytes // size))):
                self._runtime.memsetAsync(address, FLUSH_VALUE, size, self.stream)

    def synchronize(self) -> None:
        """Waits for the stream; raises StageFailure where a kernel crashed or the watchdog ended it."""
        begun = self.now()
        with self._reported("running"):
            self._stream.synchronize()
        self.busy.note(begun, self.now())

    def now(self) -> float:
        """Host seconds."""
        return time.monotonic()

    def free_bytes(self) -> int:
        """Free in the driver's eyes, plus what CuPy's pool holds unused."""
        free, _ = self._runtime.memGetInfo()
        return int(free) + int(self.xp.get_default_memory_pool().free_bytes())

    def used_bytes(self) -> int:
        """In use on the device by everybody."""
        free, total = self._runtime.memGetInfo()
        return int(total) - int(free)

    def release(self) -> None:
        """Returns the pool's unused blocks to the driver."""
        self.xp.get_default_memory_pool().free_all_blocks()

    def _function(self, module: int, kernel: CompiledKernel, image: bytes) -> int:
        try:
            return int(self._driver.moduleGetFunction(module, kernel.entry))
        except self._driver.CUDADriverError as error:
            try:
                names = ", ".join(kernel_names(image)) or "none"
            except CubinError as unreadable:
                names = str(unreadable)
            reason = f"no kernel {kernel.entry!r} in the compiled code ({error}); it has: {names}"
            raise StageFailure(Status.LAUNCH_ERROR, reason) from None

    def _pack(self, launch: LaunchPlan, addresses: Mapping[str, int]) -> Packed:
        """A sample binds one launch over hundreds of buffer sets: only the addresses differ."""
        if self._packed is None or self._packed[0] is not launch:
            self._packed = launch, Packed.of(launch, addresses)
            return self._packed[1]
        return self._packed[1].at(launch, addresses)

    def _opt_in(self, function: object, smem_bytes: int) -> None:
        if smem_bytes and self._opted != (function, smem_bytes):
            attribute = self._driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            with self._reported(f"asking for {smem_bytes} B of dynamic shared memory per block"):
                self._driver.funcSetAttribute(function, attribute, smem_bytes)
            self._opted = (function, smem_bytes)

    @contextlib.contextmanager
    def _reported(self, act: str) -> Iterator[None]:
        try:
            yield
        except self.cuda_errors as error:
            raise failure(error, act) from None

"""The vendor's matrix product as one more call to be measured: cuBLAS in true FP32 on the measuring stream.

Called through ctypes, since CuPy refuses cuBLAS while a stream is captured.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autotune.candidate import BufferPlan
from autotune.device.messages import Workload
from autotune.errors import GpuUnavailable, InputError, StageFailure
from autotune.records import Status
from autotune.references import Array

WORKSPACE_BYTES = 32 * 2**20
"""What cuBLAS recommends from compute capability 9.0 on; fixed, so that capturing allocates nothing."""
NO_TRANSPOSE = 0
TRANSPOSE = 1
POINTER_MODE_HOST = 0
DEFAULT_MATH = 0
"""No TF32 and no emulation: FP32 multiply-adds."""


class Cublas:
    """A handle that is set up once for a stream; its creation is never part of a time."""

    def __init__(
        self, stream: int, workspace: Array, address: Callable[[Array], int], library: Any = None
    ) -> None:
        """`workspace` is `WORKSPACE_BYTES` of device memory, kept as long as the handle."""
        self._workspace = workspace
        self._library = library if library is not None else load_library()
        self._handle = ctypes.c_void_p()
        self._check(self._library.cublasCreate_v2(ctypes.byref(self._handle)), "cublasCreate")
        # Setting the stream resets the workspace, so it comes first.
        self._check(
            self._library.cublasSetStream_v2(self._handle, ctypes.c_void_p(stream)), "cublasSetStream"
        )
        self._check(
            self._library.cublasSetWorkspace_v2(
                self._handle, ctypes.c_void_p(address(workspace)), ctypes.c_size_t(WORKSPACE_BYTES)
            ),
            "cublasSetWorkspace",
        )
        self._check(self._library.cublasSetMathMode(self._handle, DEFAULT_MATH), "cublasSetMathMode")
        self._check(
            self._library.cublasSetPointerMode_v2(self._handle, POINTER_MODE_HOST), "cublasSetPointerMode"
        )

    @property
    def version(self) -> str:
        """E.g. `13.0.2`."""
        number = ctypes.c_int()
        self._check(self._library.cublasGetVersion_v2(self._handle, ctypes.byref(number)), "cublasGetVersion")
        return version_text(number.value)

    @property
    def notes(self) -> tuple[str, ...]:
        """How the algorithm was chosen, for whoever reads the comparison."""
        return (f"cuBLAS {self.version}, cublasSgemm in FP32 (no TF32), algorithm by heuristic",)

    def bind(self, workload: Workload, addresses: Mapping[str, int]) -> Callable[[], None]:
        """A call that queues C = alpha * A @ B + beta * C for row-major arrays, or for a batch of them.

        Row-major C is column-major C transposed, the product of B and A transposed: so the operands swap. An operand
        that lies transposed is column-major in itself.
        """
        a, b, c = matrices(workload.buffers, batches=True)
        (m, k), n = a.shape[-2:], b.shape[-1]
        batch = a.shape[:-2]
        alpha = ctypes.c_float(workload.values.get("alpha", 1.0))
        beta = ctypes.c_float(workload.values.get("beta", 0.0))

        def matrix(plan: BufferPlan) -> tuple[object, ...]:
            distance = (ctypes.c_longlong(plan.stride),) if batch else ()
            return (ctypes.c_void_p(addresses[plan.name]), plan.pitch, *distance)

        arguments = (
            self._handle,
            *(TRANSPOSE if plan.transposed else NO_TRANSPOSE for plan in (b, a)),
            *(n, m, k),
            ctypes.byref(alpha),
            *matrix(b),
            *matrix(a),
            ctypes.byref(beta),
            *matrix(c),
            *batch,
        )
        name = "cublasSgemmStridedBatched" if batch else "cublasSgemm_v2"
        routine, check = getattr(self._library, name), self._check

        def queue() -> None:
            check(routine(*arguments), name.removesuffix("_v2"))

        return queue

    def _check(self, status: int, act: str) -> None:
        if status != 0:
            raise StageFailure(Status.LAUNCH_ERROR, f"{act} returned status {status}")


def matrices(
    buffers: Sequence[BufferPlan], batches: bool = False
) -> tuple[BufferPlan, BufferPlan, BufferPlan]:
    """The three float32 matrices of a product in order, or `batches` of them; raises InputError for other arrays.

    Memory that a kernel asks for beside them is nothing to a library.
    """
    arrays = [plan for plan in buffers if plan.role in ("in", "out", "inout")]
    shapes = {len(plan.shape) for plan in arrays}
    fits = shapes == {2} or (batches and shapes == {3})
    if not fits or len(arrays) != 3 or any(plan.dtype != "float32" for plan in arrays):
        raise InputError("the vendor's matrix product takes three float32 matrices", key="baseline")
    a, b, c = arrays
    return a, b, c


def version_text(number: int) -> str:
    """`130002` as `13.0.2`: cuBLAS numbers its versions as major * 10000 + minor * 100 + patch."""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def load_library() -> Any:
    """The cuBLAS that CuPy would use, from a wheel or the system; raises GpuUnavailable without one."""
    library = find_library("cublas")
    for name in (
        "cublasCreate_v2",
        "cublasSetStream_v2",
        "cublasSetWorkspace_v2",
        "cublasSetMathMode",
        "cublasSetPointerMode_v2",
        "cublasGetVersion_v2",
        "cublasSgemm_v2",
        "cublasSgemmStridedBatched",
    ):
        getattr(library, name).restype = ctypes.c_int
    return library


def find_library(name: str) -> Any:
    """One of the libraries of a cuBLAS installation (`cublas`, `cublasLt`); raises GpuUnavailable without it."""
    from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib

    try:
        found = load_nvidia_dynamic_lib(name)
    except DynamicLibNotFoundError as error:
        raise GpuUnavailable("cuBLAS is not installed (nvidia-cublas, or the CUDA toolkit)") from error
    return ctypes.CDLL(found.abs_path)

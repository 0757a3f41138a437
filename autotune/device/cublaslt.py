"""cuBLASLt's matrix product: every algorithm its heuristic offers, for whoever wants the best of them.

`cublasSgemm` takes one algorithm and says nothing of the others; a user of cuBLASLt can measure all that the
heuristic proposes and keep the fastest. Layouts and numbers of the C interface are those of `cublasLt.h`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from autotune.device.cublas import TRANSPOSE, WORKSPACE_BYTES, find_library, matrices, version_text
from autotune.device.messages import Workload
from autotune.errors import StageFailure
from autotune.records import Status
from autotune.references import Array

COMPUTE_32F = 68
"""`CUBLAS_COMPUTE_32F`: FP32 multiply-adds on FP32 data, neither TF32 nor emulation."""
REAL_32F = 0
"""`CUDA_R_32F`."""
TRANSPOSE_FIRST = 3
TRANSPOSE_SECOND = 4
"""`CUBLASLT_MATMUL_DESC_TRANSA` and `TRANSB`, a `cublasOperation_t` each."""
PREFERENCE_WORKSPACE = 1
PREFERENCE_ALIGNMENTS = (5, 6, 7, 8)
"""Of A, B, C and D, in bytes; 256 is the library's own assumption and its largest."""
MOST_ALIGNMENT = 256
CONFIG_NAMES = {0: "algorithm", 1: "tile", 6: "stages", 2: "split-K", 3: "reduction", 4: "swizzle"}
"""`CUBLASLT_ALGO_CONFIG_*` attributes of 4 bytes that tell algorithms apart."""


class Algorithm(ctypes.Structure):
    """`cublasLtMatmulAlgo_t`: opaque, and copied by value."""

    _fields_ = (("data", ctypes.c_uint64 * 8),)


class HeuristicResult(ctypes.Structure):
    """`cublasLtMatmulHeuristicResult_t`."""

    _fields_ = (
        ("algo", Algorithm),
        ("workspace_bytes", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


@dataclass(frozen=True)
class LtCandidate:
    """One algorithm that the heuristic offers for a problem."""

    algorithm: bytes
    """The opaque value, for `CublasLt.bind`."""
    workspace_bytes: int
    text: str
    """What it is, as far as the library tells, e.g. `algorithm 0, tile 20, stages 5, split-K 4`."""


class CublasLt:
    """A handle of the library; its creation is never part of a time."""

    def __init__(
        self, stream: int, workspace: Array, address: Callable[[Array], int], library: Any = None
    ) -> None:
        """`workspace` is `WORKSPACE_BYTES` of device memory, kept as long as the handle."""
        self._workspace = workspace
        self._workspace_address = address(workspace)
        self._stream = stream
        self._library = library if library is not None else load_library()
        self._handle = ctypes.c_void_p()
        self._call("cublasLtCreate", ctypes.byref(self._handle))
        self._operations: dict[tuple[bool, bool], ctypes.c_void_p] = {}
        self._layouts: dict[tuple[int, int, int], ctypes.c_void_p] = {}

    @property
    def version(self) -> str:
        """E.g. `13.0.2`."""
        return version_text(int(self._library.cublasLtGetVersion()))

    def candidates(
        self, workload: Workload, addresses: Mapping[str, int], count: int
    ) -> tuple[LtCandidate, ...]:
        """Up to `count` algorithms for buffers as aligned as these, the library's first choice first.

        Raises StageFailure (`launch_error`) where it has none.
        """
        a, b, c = (plan.name for plan in matrices(workload.buffers))
        preference = ctypes.c_void_p()
        self._call("cublasLtMatmulPreferenceCreate", ctypes.byref(preference))
        try:
            self._prefer(preference, PREFERENCE_WORKSPACE, ctypes.c_uint64(WORKSPACE_BYTES))
            for attribute, name in zip(PREFERENCE_ALIGNMENTS, (b, a, c, c), strict=True):
                self._prefer(preference, attribute, ctypes.c_uint32(alignment(addresses[name])))
            results = (HeuristicResult * count)()
            found = ctypes.c_int()
            first, second, out = self._described(workload)
            self._call(
                "cublasLtMatmulAlgoGetHeuristic",
                *(self._handle, self._operation(workload), first, second, out, out, preference),
                count,
                results,
                ctypes.byref(found),
            )
        finally:
            self._library.cublasLtMatmulPreferenceDestroy(preference)
        # The library leaves algorithms in the list that it then refuses; their state says so.
        usable = [results[number] for number in range(found.value) if results[number].state == 0]
        if not usable:
            raise StageFailure(Status.LAUNCH_ERROR, "cublasLt offers no algorithm for this problem")
        return tuple(
            LtCandidate(bytes(result.algo), int(result.workspace_bytes), self._describe(result.algo))
            for result in usable
        )

    def bind(self, workload: Workload, algorithm: bytes, addresses: Mapping[str, int]) -> Callable[[], None]:
        """A call that queues C = alpha * A @ B + beta * C for row-major arrays: the operands swap, as for cuBLAS."""
        a, b, c = (plan.name for plan in matrices(workload.buffers))
        first, second, out = self._described(workload)
        alpha = ctypes.c_float(workload.values.get("alpha", 1.0))
        beta = ctypes.c_float(workload.values.get("beta", 0.0))
        opaque = Algorithm.from_buffer_copy(algorithm)
        arguments = (
            self._handle,
            self._operation(workload),
            ctypes.byref(alpha),
            *(ctypes.c_void_p(addresses[b]), first),
            *(ctypes.c_void_p(addresses[a]), second),
            ctypes.byref(beta),
            *(ctypes.c_void_p(addresses[c]), out),
            *(ctypes.c_void_p(addresses[c]), out),
            ctypes.byref(opaque),
            ctypes.c_void_p(self._workspace_address),
            ctypes.c_size_t(WORKSPACE_BYTES),
            ctypes.c_void_p(self._stream),
        )
        return lambda: self._call("cublasLtMatmul", *arguments)

    def _described(self, workload: Workload) -> tuple[ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]:
        """Column-major layouts of the product of B and A transposed, which is C transposed."""
        a, b, c = matrices(workload.buffers)
        first, second, out = (
            self._layout(plan.stored_shape[1], plan.stored_shape[0], plan.pitch) for plan in (b, a, c)
        )
        return first, second, out

    def _operation(self, workload: Workload) -> ctypes.c_void_p:
        """The product in FP32, with each operand that lies transposed turned."""
        a, b, _ = matrices(workload.buffers)
        turned = b.transposed, a.transposed
        if turned not in self._operations:
            operation = ctypes.c_void_p()
            self._call("cublasLtMatmulDescCreate", ctypes.byref(operation), COMPUTE_32F, REAL_32F)
            for attribute, turn in zip((TRANSPOSE_FIRST, TRANSPOSE_SECOND), turned, strict=True):
                if turn:
                    value, size = ctypes.c_int32(TRANSPOSE), ctypes.c_size_t(4)
                    self._call(
                        "cublasLtMatmulDescSetAttribute", operation, attribute, ctypes.byref(value), size
                    )
            self._operations[turned] = operation
        return self._operations[turned]

    def _layout(self, rows: int, columns: int, pitch: int) -> ctypes.c_void_p:
        key = rows, columns, pitch
        if key not in self._layouts:
            layout = ctypes.c_void_p()
            self._call(
                "cublasLtMatrixLayoutCreate",
                ctypes.byref(layout),
                REAL_32F,
                *(ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(pitch)),
            )
            self._layouts[key] = layout
        return self._layouts[key]

    def _prefer(self, preference: ctypes.c_void_p, attribute: int, value: Any) -> None:
        size = ctypes.c_size_t(ctypes.sizeof(value))
        self._call("cublasLtMatmulPreferenceSetAttribute", preference, attribute, ctypes.byref(value), size)

    def _describe(self, algorithm: Algorithm) -> str:
        parts = []
        for attribute, name in CONFIG_NAMES.items():
            value, written = ctypes.c_int32(), ctypes.c_size_t()
            status = self._library.cublasLtMatmulAlgoConfigGetAttribute(
                *(ctypes.byref(algorithm), attribute),
                *(ctypes.byref(value), ctypes.c_size_t(4), ctypes.byref(written)),
            )
            if status == 0:
                parts.append(f"{name} {value.value}")
        return ", ".join(parts)

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            raise StageFailure(Status.LAUNCH_ERROR, f"{name} returned status {status}")


def alignment(address: int) -> int:
    """The largest power of two that divides an address, at most what the library asks for."""
    return min(MOST_ALIGNMENT, address & -address) if address else MOST_ALIGNMENT


def load_library() -> Any:
    """The cuBLASLt beside the cuBLAS that CuPy would use; raises GpuUnavailable without one."""
    library = find_library("cublasLt")
    library.cublasLtGetVersion.restype = ctypes.c_size_t
    return library

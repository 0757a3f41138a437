"""A cuBLAS library made of NumPy: column-major, as the real one is."""

import ctypes

import numpy as np


def pointer(argument):
    return argument.value if hasattr(argument, "value") else int(argument)


class FakeCublasLibrary:
    def __init__(self, gpu):
        self.gpu = gpu
        self.calls = []

    def cublasCreate_v2(self, handle):
        self.calls.append("create")
        return 0

    def cublasSetStream_v2(self, handle, stream):
        self.calls.append("stream")
        return 0

    def cublasSetWorkspace_v2(self, handle, workspace, size):
        self.calls.append("workspace")
        return 0

    def cublasSetMathMode(self, handle, mode):
        self.calls.append(("math", mode))
        return 0

    def cublasSetPointerMode_v2(self, handle, mode):
        self.calls.append(("pointer", mode))
        return 0

    def cublasGetVersion_v2(self, handle, number):
        number._obj.value = 130002
        return 0

    def cublasSgemm_v2(self, handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
        if min(m, n, k) < 0 or lda < m or ldb < k or ldc < m:
            return 7

        def column_major(address, rows, columns, ld):
            return (
                self.gpu.at(pointer(address), 4 * ld * columns).view(np.float32).reshape(columns, ld).T[:rows]
            )

        def run(*_):
            x, y = column_major(a, m, k, lda), column_major(b, k, n, ldb)
            out = column_major(c, m, n, ldc)
            scale, keep = (
                np.float32(ctypes.cast(v, ctypes.POINTER(ctypes.c_float))[0]) for v in (alpha, beta)
            )
            out[...] = scale * (x @ y) + (keep * out if keep else 0)

        self.gpu.kernels["cublas"] = run
        self.gpu.bind("cublas", None, {})()
        return 0

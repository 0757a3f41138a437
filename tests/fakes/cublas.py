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
        if min(m, n, k) < 0 or lda < (k if ta else m) or ldb < (n if tb else k) or ldc < m:
            return 7
        multiply(self.gpu, "cublas", (m, n, k), alpha, (a, lda, ta), (b, ldb, tb), beta, (c, ldc))
        return 0

    def cublasSgemmStridedBatched(
        self, handle, ta, tb, m, n, k, alpha, a, lda, sa, b, ldb, sb, beta, c, ldc, sc, count
    ):
        for i in range(count):
            x, y, z = (pointer(p) + 4 * i * pointer(s) for p, s in ((a, sa), (b, sb), (c, sc)))
            if status := self.cublasSgemm_v2(handle, ta, tb, m, n, k, alpha, x, lda, y, ldb, beta, z, ldc):
                return status
        return 0


def multiply(gpu, entry, sizes, alpha, a, b, beta, c, spoilt=False):
    """Queues the product of column-major matrices, each an address, a leading dimension and whether it is turned."""
    m, n, k = sizes

    def column_major(matrix, rows, columns):
        address, ld, turned = (*matrix, 0)[:3]
        rows, columns = (columns, rows) if turned else (rows, columns)
        table = gpu.at(pointer(address), 4 * ld * columns).view(np.float32).reshape(columns, ld).T[:rows]
        return table.T if turned else table

    def run(*_):
        x, y = column_major(a, m, k), column_major(b, k, n)
        out = column_major(c, m, n)
        scale, keep = (np.float32(ctypes.cast(v, ctypes.POINTER(ctypes.c_float))[0]) for v in (alpha, beta))
        if not spoilt:
            out[...] = scale * (x @ y) + (keep * out if keep else 0)

    gpu.kernels[entry] = run
    gpu.bind(entry, None, {})()


class FakeCublasLtLibrary:
    """Offers five algorithms: the third is refused when called, the fifth by its state in the list.

    Objects of the library are numbers; structures are read through the addresses given, as the real one does.
    """

    def __init__(self, gpu):
        self.gpu = gpu
        self.objects = []
        self.attributes = {}
        self.spoilt = False

    def _made(self, out, thing):
        self.objects.append(thing)
        out._obj.value = len(self.objects)
        return 0

    def _get(self, handle):
        return self.objects[pointer(handle) - 1]

    def cublasLtGetVersion(self):
        return 130002

    def cublasLtCreate(self, handle):
        return self._made(handle, "handle")

    def cublasLtMatmulDescCreate(self, out, compute, scale):
        return self._made(out, ("operation", compute, scale))

    def cublasLtMatmulDescSetAttribute(self, operation, attribute, value, size):
        if pointer(size) != 4:
            return 7
        number = pointer(operation) - 1
        self.objects[number] = (*self.objects[number], (attribute, value._obj.value))
        return 0

    def cublasLtMatmulPreferenceCreate(self, out):
        return self._made(out, "preference")

    def cublasLtMatmulPreferenceDestroy(self, preference):
        return 0

    def cublasLtMatmulPreferenceSetAttribute(self, preference, attribute, value, size):
        wanted = 8 if attribute == 1 else 4
        if pointer(size) != wanted:
            return 7
        self.attributes[attribute] = value._obj.value
        return 0

    def cublasLtMatrixLayoutCreate(self, out, kind, rows, columns, pitch):
        if kind != 0 or pointer(pitch) < pointer(rows):
            return 7
        return self._made(out, (pointer(rows), pointer(columns), pointer(pitch)))

    def cublasLtMatmulAlgoGetHeuristic(
        self, handle, operation, a, b, c, d, preference, count, results, found
    ):
        assert self._get(operation)[:3] == ("operation", 68, 0)
        found._obj.value = min(count, 5)
        for number in range(found._obj.value):
            # 96 bytes each: the algorithm in 64, then workspace, state, waves and four reserved words.
            offset = ctypes.addressof(results) + 96 * number
            words = (ctypes.c_uint64 * 12).from_address(offset)
            words[0] = number
            words[8] = 1000 * number
            words[9] = 15 if number == 4 else 0
        return 0

    def cublasLtMatmulAlgoConfigGetAttribute(self, algorithm, attribute, value, size, written):
        known = {0: algorithm._obj.data[0], 1: 20 + algorithm._obj.data[0]}
        if attribute not in known:
            return 15
        value._obj.value = known[attribute]
        return 0

    def cublasLtMatmul(
        self, handle, operation, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout, algorithm,
        workspace, workspace_bytes, stream,
    ):  # fmt: skip
        number = algorithm._obj.data[0]
        if number == 2 or pointer(c) != pointer(d):
            return 15
        (m, k, lda), (k2, n, ldb), (m2, n2, ldc) = map(self._get, (a_layout, b_layout, d_layout))
        turns = self._get(operation)[3:]
        ta, tb = (3, 1) in turns, (4, 1) in turns
        m, k = (k, m) if ta else (m, k)
        k2, n = (n, k2) if tb else (k2, n)
        if (m, n, k) != (m2, n2, k2):
            return 7
        multiply(
            self.gpu, f"cublaslt {number}", (m, n, k), alpha, (a, lda, ta), (b, ldb, tb), beta, (d, ldc),
            self.spoilt,
        )  # fmt: skip
        return 0

"""A worker process whose GPU is made of NumPy; some of its kernels hang or take the process with them."""

import os
import signal
import time

from fakes.cublas import FakeCublasLibrary, FakeCublasLtLibrary
from fakes.devices import facts
from fakes.gpu import FakeGpu, right

from autotune.child.serve import serve
from autotune.device.cublas import Cublas
from autotune.device.cublaslt import CublasLt
from autotune.device.messages import Hello
from autotune.device.worker import Worker


def hang(*_):
    time.sleep(600)


def crash(*_):
    os.kill(os.getpid(), signal.SIGSEGV)


def main():
    gpu = FakeGpu({"right": right, "hang": hang, "crash": crash, "wrong": lambda *_: None})
    worker = Worker(
        gpu,
        lambda: Cublas(7, gpu.allocate(64), gpu.address, FakeCublasLibrary(gpu)),
        lambda: None,
        lambda: CublasLt(7, gpu.allocate(64), gpu.address, FakeCublasLtLibrary(gpu)),
    )
    serve(lambda message: facts("0000:18:00") if isinstance(message, Hello) else worker.handle(message))


if __name__ == "__main__":
    main()

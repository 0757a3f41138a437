"""How many SGEMM kernels per second the compile pool makes, by number of workers.

python benchmarks/compile_throughput.py [configs] [workers ...]

Configs are drawn at random (seeded) from the legal space of the A6000; the cache starts empty each time.
"""

from __future__ import annotations

import sys
import tempfile
import time
from concurrent.futures import wait
from pathlib import Path

import numpy as np

from autotune.compile.pool import CompilePool
from autotune.gpu_tables import find_gpu
from autotune.legality import search_space
from autotune.problems import make_problem
from autotune.render import render
from autotune.spec.load import load_spec


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 24
    numbers = [int(word) for word in sys.argv[2:]] or [1, 2]
    spec, gpu = load_spec("sgemm"), find_gpu("a6000")
    problem = make_problem(spec, 4096)
    configs = search_space(spec, gpu, problem).sample(np.random.default_rng(1), count)
    sources = [render(spec, gpu, problem, config) for config in configs]
    for workers in numbers:
        with tempfile.TemporaryDirectory() as folder, CompilePool(workers, cache=Path(folder)) as pool:
            wait(
                [pool.submit(sources[0], "sm_75") for _ in range(workers)]
            )  # processes started, NVRTC loaded
            started = time.perf_counter()
            futures = [pool.submit(source, gpu.arch) for source in sources]
            wait(futures)
            took = time.perf_counter() - started
            failed = sum(future.exception() is not None for future in futures)
        rate = f"{count / took:.2f} per second"
        print(f"{workers} workers: {count} kernels in {took:.1f} s, {rate}, {failed} failed")


if __name__ == "__main__":
    main()

"""Asks the hardware counters what holds the tuned SGEMM, and cuBLAS beside it, at given sizes.

    python tools/gpu/limiter.py --out RESULT.json --commit HASH --sizes 4096,16x4096x4096 [--db FILE] [--limit 120]

Runs itself under Nsight Compute (`ncu`), one kernel of each size through `autotune.load`, then one of cuBLAS; keeps the
counters that tell issue slots, the multiply-add pipe, what warps wait for, shared-memory wavefronts, L2 and device
memory. Clocks and caches are left as they are.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

SECTIONS = (
    "SpeedOfLight",
    "ComputeWorkloadAnalysis",
    "MemoryWorkloadAnalysis",
    "SchedulerStats",
    "WarpStateStats",
    "LaunchStats",
    "Occupancy",
    "InstructionStats",
)
COUNTERS = {
    "time_ms": "gpu__time_duration.sum",
    "sm_active_cycles": "sm__cycles_active.avg",
    "elapsed_cycles": "sm__cycles_elapsed.max",
    "issue_active_pct": "smsp__issue_active.avg.pct",
    "fma_pipe_pct": "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
    "fma_pipe_fp32_pct": "sm__inst_executed_pipe_fma_type_fp32.avg.pct_of_peak_sustained_active",
    "warps_active_pct": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "shared_wavefronts": "smsp__inst_executed_op_shared.sum",
    "l1_pct": "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "l2_pct": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram_pct": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram_bytes_per_s": "dram__bytes.sum.per_second",
    "registers": "launch__registers_per_thread",
    "waves": "launch__waves_per_multiprocessor",
    "grid": "launch__grid_size",
    "block": "launch__block_size",
}
STALL = "smsp__average_warps_issue_stalled_"
NANOSECONDS_PER_MS = 1e6


def child(sizes: list[str], database: str | None) -> None:
    """Runs each size twice, tuned and by cuBLAS; ncu profiles the second run of each, see `main`."""
    import cupy

    import autotune
    from autotune.problems import parse_size
    from autotune.spec.load import load_spec

    print("GPU", cupy.cuda.runtime.getDeviceProperties(0)["name"].decode(), flush=True)
    kernel = autotune.load("sgemm", db=database)
    spec = load_spec("sgemm")
    for size in sizes:
        m, n, k = parse_size(size, spec)
        random = cupy.random.default_rng(1)
        a = random.standard_normal((m, k), dtype=cupy.float32)
        b = random.standard_normal((k, n), dtype=cupy.float32)
        c = kernel(a, b)
        cupy.matmul(a, b)
        cupy.cuda.Device().synchronize()
        for name, run in (
            ("tuned", partial(kernel, a, b, out=c)),
            ("cublas", partial(cupy.matmul, a, b, out=c)),
        ):
            cupy.cuda.nvtx.RangePush(f"{name}:{size}")
            run()
            cupy.cuda.Device().synchronize()
            cupy.cuda.nvtx.RangePop()
        print("CONFIG", size, kernel.config(a, b).key, flush=True)


def parse(text: str) -> list[dict[str, Any]]:
    """One dictionary for each profiled kernel from ncu's raw page in CSV; raises ValueError where there is no table."""
    lines = text.splitlines()
    head = next((place for place, line in enumerate(lines) if line.startswith('"ID"')), None)
    if head is None:
        raise ValueError(f"ncu gave no table: {text[-2000:]}")
    rows = list(csv.DictReader(io.StringIO("\n".join(lines[head:]))))
    kernels = []
    for row in rows[1:]:  # the first holds the units
        numbers = {name: _number(row.get(counter, "")) for name, counter in COUNTERS.items()}
        if numbers["time_ms"] is not None:
            numbers["time_ms"] *= {"ms": 1.0, "us": 1e-3, "ns": 1 / NANOSECONDS_PER_MS}[
                rows[0][COUNTERS["time_ms"]]
            ]
        stalls = {
            key.removeprefix(STALL).removesuffix("_per_issue_active.ratio"): _number(value)
            for key, value in row.items()
            if key.startswith(STALL) and key.endswith("_per_issue_active.ratio")
        }
        worst = sorted(((v, k) for k, v in stalls.items() if v), reverse=True)[:6]
        kernels.append(
            {
                "kernel": row.get("Kernel Name", ""),
                **{name: number for name, number in numbers.items() if number is not None},
                "stalls_per_issue": {name: round(value, 3) for value, name in worst},
            }
        )
    return kernels


def by_size(kernels: Sequence[dict[str, Any]], sizes: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The kernels in the order in which they ran: of each size ours, then those of cuBLAS."""
    found: dict[str, dict[str, Any]] = {}
    left = iter(sizes)
    for kernel in kernels:
        if kernel["kernel"] == "sgemm":
            size = next(left)
            found[size] = {"tuned": kernel, "cublas": []}
        else:
            found[size]["cublas"].append(kernel)
    return found


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def main() -> int:
    """Profiles and writes the file; 1 where the profiler or the child failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", required=True, help="comma-separated, e.g. 4096,16x4096x4096")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit", help="of the code that runs")
    parser.add_argument("--db")
    parser.add_argument("--limit", type=float, default=120, help="seconds")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = options.sizes.split(",")
    if options.child:
        child(sizes, options.db)
        return 0
    ncu = shutil.which("ncu") or "/usr/local/cuda/bin/ncu"
    command = [
        ncu,
        "--clock-control",
        "none",
        "--cache-control",
        "none",
        "--nvtx",
        "--csv",
        "--page",
        "raw",
        "--print-units",
        "base",
    ]
    for label in ("tuned", "cublas"):
        for size in sizes:
            command += ["--nvtx-include", f"{label}:{size}/"]
    for section in SECTIONS:
        command += ["--section", section]
    command += [sys.executable, __file__, "--child", "--sizes", options.sizes]
    command += ["--db", options.db] if options.db else []
    done = subprocess.run(command, capture_output=True, text=True, timeout=options.limit, check=False)
    told = [line.split(" ", 2) for line in done.stdout.splitlines()]
    configs = dict(line[1:] for line in told if line[0] == "CONFIG")
    gpu = next((" ".join(line[1:]) for line in told if line[0] == "GPU"), "")
    try:
        kernels = parse(done.stdout)
    except ValueError as error:
        print(f"exit {done.returncode}: {error}\n{done.stderr[-2000:]}", file=sys.stderr)
        return 1
    found = {
        "commit": options.commit,
        "date": datetime.now(UTC).isoformat(),
        "gpu": gpu,
        "protocol": "one call under Nsight Compute, clocks and caches left as they were",
        "configs": configs,
        "sizes": by_size(kernels, sizes),
    }
    text = json.dumps(found, indent=1)
    if options.out:
        options.out.write_text(text + "\n")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

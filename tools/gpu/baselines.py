"""Why one call of cuBLAS is slower than another: the vendor's matrix product called in many ways, in one run.

    python tools/gpu/baselines.py --out RESULTS
    python tools/gpu/baselines.py --sizes 256,1024,1000x999x37 --lt 4
    python tools/gpu/baselines.py --suite sgemm --limit 300

Each way is timed warm and by replays of a graph, over the same buffers unless it says otherwise, all in turn:

    ctypes, N MiB            our own handle with a workspace of N MiB
    ctypes, own workspace    without cublasSetWorkspace
    ctypes, pedantic         CUBLAS_PEDANTIC_MATH
    ctypes, off by 4 bytes   buffers that start one element past a 256-byte boundary
    ctypes, 2 MiB apart      each matrix in an allocation of its own, on a 2 MiB boundary
    ctypes, graph of 20      as PyTorch was timed: 20 calls in a graph instead of a millisecond's worth
    ctypes, graph of 1       a graph of one call: what the gap between graphs costs
    torch                    torch.mm(a, b, out=c) on the same buffers
    torch, own tensors       on tensors of its own
    cublasLt N               the first algorithms that the heuristic offers

Two processes do this one after the other, since a process holds one cuBLAS: one with the library that `autotune`
loads, one with PyTorch and the library that came with it; and a third like the first, where the variable that
forbids emulation (CUBLAS_EMULATE_SINGLE_PRECISION=0) is not set. The line `cuBLAS` says which is which.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools" / "gpu")]

from autotune.candidate import BufferPlan, ScalarPlan  # noqa: E402
from autotune.device.cublas import Cublas, load_library  # noqa: E402
from autotune.device.cublaslt import CublasLt  # noqa: E402
from autotune.device.cublaslt import load_library as load_lt_library  # noqa: E402
from autotune.device.measure import BufferSets  # noqa: E402
from autotune.device.messages import Workload  # noqa: E402
from autotune.device.sampling import turn_order  # noqa: E402
from autotune.errors import StageFailure  # noqa: E402
from autotune.records import Status  # noqa: E402

SIZES = "256,512,1024,4096,1000x999x37,16x4096x4096"
MIB = 2**20
WORKSPACES_MIB = (0, 1, 4, 8, 16, 32, 64, 128)
PEDANTIC_MATH = 2
SAMPLE_MS = 1.0
ROUNDS = 9
EMULATION = "CUBLAS_EMULATE_SINGLE_PRECISION"
PARTS = ("plain", "torch", "environment")


@dataclass(frozen=True)
class Way:
    """One way to call the library."""

    name: str
    queue: Callable[[], None]
    calls: int = 0
    """In a graph; 0 for as many as last `SAMPLE_MS`."""


class Plain(Cublas):
    """A handle with a workspace of any size (None: the library's own) and any maths mode."""

    def __init__(self, device: Any, library: Any, workspace_bytes: int | None, math_mode: int = 0) -> None:
        library = _Changed(library, workspace_bytes, math_mode)
        super().__init__(
            device.stream, device.allocate(max(256, workspace_bytes or 0)), device.address, library
        )


class _Changed:
    """The library, but for two calls that `Cublas` makes while it sets its handle up."""

    def __init__(self, library: Any, workspace_bytes: int | None, math_mode: int) -> None:
        self._library, self._workspace_bytes, self._math_mode = library, workspace_bytes, math_mode

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    def cublasSetWorkspace_v2(self, handle: Any, address: Any, size: Any) -> int:  # noqa: N802
        import ctypes

        if self._workspace_bytes is None:
            return 0
        size = ctypes.c_size_t(self._workspace_bytes)
        return int(self._library.cublasSetWorkspace_v2(handle, address, size))

    def cublasSetMathMode(self, handle: Any, mode: int) -> int:  # noqa: N802
        return int(self._library.cublasSetMathMode(handle, self._math_mode))


def workload(size: Sequence[int], offset: int = 0) -> Workload:
    """Packed row-major matrices, alpha 1 and beta 0."""
    m, n, k = size

    def plan(name: str, role: str, rows: int, columns: int) -> BufferPlan:
        return BufferPlan(name, role, (rows, columns), "float32", columns, offset)

    buffers = (plan("A", "in", m, k), plan("B", "in", k, n), plan("C", "inout", m, n))
    scalars = (ScalarPlan("alpha", "float32", 1.0), ScalarPlan("beta", "float32", 0.0))
    return Workload(buffers, scalars, "matmul", "normal", 1)


class Ways:
    """All ways at one size; keeps what they need alive."""

    def __init__(self, device: Any, library: Any, lt: CublasLt | None, torch: Any, lt_count: int) -> None:
        self._device, self._library, self._lt, self._torch, self._lt_count = (
            device,
            library,
            lt,
            torch,
            lt_count,
        )
        self._handles: dict[tuple[int | None, int], Plain] = {}
        self._kept: list[object] = []

    def at(self, size: Sequence[int]) -> list[Way]:
        """Those that can be made; what cannot is printed with its reason."""
        self._kept.clear()
        load = workload(size)
        sets = BufferSets(self._device, load)
        self._kept.append(sets)
        addresses = sets.addresses(0)
        ways: list[Way] = []

        def add(name: str, make: Callable[[], Callable[[], None]], calls: int = 0) -> None:
            try:
                ways.append(Way(name, make(), calls))
            except StageFailure as failure:
                print(f"{name}: {failure}", flush=True)

        def ctypes_call(
            mib: float | None, mode: int = 0, of: Workload = load, at: Any = None
        ) -> Callable[[], None]:
            return self._handle(mib, mode).bind(of, at or addresses)

        for mib in WORKSPACES_MIB:
            add(f"ctypes, {mib} MiB", lambda mib=mib: ctypes_call(mib))
        add("ctypes, own workspace", lambda: ctypes_call(None))
        add("ctypes, pedantic", lambda: ctypes_call(32, PEDANTIC_MATH))
        add("ctypes, 32 MiB again", lambda: ctypes_call(32))
        add("ctypes, graph of 20", lambda: ctypes_call(32), 20)
        add("ctypes, graph of 1", lambda: ctypes_call(32), 1)
        shifted = workload(size, offset=1)
        off = BufferSets(self._device, shifted)
        self._kept.append(off)
        add("ctypes, off by 4 bytes", lambda: ctypes_call(32, 0, shifted, off.addresses(0)))
        add("ctypes, 2 MiB apart", lambda: ctypes_call(32, 0, load, self._apart(load)))
        for number in range(self._lt_count if self._lt else 0):
            add(f"cublasLt {number}", lambda number=number: self._lt_call(load, addresses, number))
        if self._torch is not None:
            views = [self._view(sets, plan) for plan in load.buffers]
            add("torch", lambda: self._mm(*views))
            own = [self._torch.empty_like(view).normal_() for view in views]
            add("torch, own tensors", lambda: self._mm(*own))
            add("torch, graph of 20", lambda: self._mm(*own), 20)
        return ways

    def _handle(self, mib: float | None, mode: int) -> Plain:
        nbytes = None if mib is None else int(mib * MIB)
        if (nbytes, mode) not in self._handles:
            self._handles[nbytes, mode] = Plain(self._device, self._library, nbytes, mode)
        return self._handles[nbytes, mode]

    def _apart(self, load: Workload) -> dict[str, int]:
        addresses = {}
        for plan in load.buffers:
            block = self._device.allocate(4 * math.prod(plan.shape) + 2 * MIB)
            self._kept.append(block)
            block.view("float32")[...] = 1.0
            addresses[plan.name] = -(-self._device.address(block) // (2 * MIB)) * 2 * MIB
        return addresses

    def _lt_call(self, load: Workload, addresses: dict[str, int], number: int) -> Callable[[], None]:
        assert self._lt is not None
        found = self._lt.candidates(load, addresses, self._lt_count)
        if number >= len(found):
            raise StageFailure(Status.LAUNCH_ERROR, f"only {len(found)} candidates")
        return self._lt.bind(load, found[number].algorithm, addresses)

    def _view(self, sets: BufferSets, plan: BufferPlan) -> Any:
        """The matrix in our memory as a tensor, not a copy."""
        place = next(place for place in sets._layout.places if place.plan == plan)
        return self._torch.as_tensor(place.view(sets._arena), device="cuda")

    def _mm(self, a: Any, b: Any, c: Any) -> Callable[[], None]:
        torch = self._torch
        stream = torch.cuda.ExternalStream(self._device.stream)

        def queue() -> None:
            with torch.cuda.stream(stream):
                torch.mm(a, b, out=c)

        return queue


def time_ways(device: Any, ways: Sequence[Way], until: float) -> dict[str, list[float]]:
    """Milliseconds of one call in each round; ways that fail are left out with their reason."""
    with ExitStack() as stack:
        ready = []
        for way in ways:
            try:
                calls = way.calls or max(1, min(2000, math.ceil(SAMPLE_MS / _each_ms(device, way.queue))))
                replay = stack.enter_context(
                    device.graph(lambda w=way, n=calls: [w.queue() for _ in range(n)])
                )
                ready.append((way.name, calls, replay))
            except StageFailure as failure:
                print(f"{way.name}: {failure}", flush=True)
        samples: dict[str, list[float]] = {name: [] for name, _, _ in ready}
        for round_ in range(ROUNDS):
            if round_ >= 3 and time.monotonic() > until:
                break
            for number in turn_order(len(ready), round_):
                name, calls, replay = ready[number]
                replay()  # warms the L2, and keeps the GPU busy while the host queues the timed one
                start = device.mark()
                replay()
                end = device.mark()
                device.synchronize()
                samples[name].append(device.elapsed_ms(start, end) / calls)
        return samples


def _each_ms(device: Any, queue: Callable[[], None]) -> float:
    """A first estimate, with the clocks up and whatever the library loads at its first call loaded."""
    until = device.now() + 0.02
    while device.now() < until:
        for _ in range(5):
            queue()
        device.synchronize()
    start = device.mark()
    for _ in range(10):
        queue()
    end = device.mark()
    device.synchronize()
    return max(1e-3, device.elapsed_ms(start, end) / 10)


def run_part(part: str, sizes: Sequence[Sequence[int]], lt_count: int, limit_s: float) -> dict[str, Any]:
    """The figures of this process."""
    begun = time.monotonic()
    torch = None
    if part == "torch":
        import torch as imported  # before anything else loads a cuBLAS

        torch = imported
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.mm(torch.zeros(8, 8, device="cuda"), torch.zeros(8, 8, device="cuda"))
    from autotune.device.cuda_device import CudaDevice
    from autotune.device.local import describe_device
    from autotune.device.nvml import clock_reader

    device = CudaDevice(describe_device(0))
    library = load_library() if torch is None else already_loaded("libcublas.so") or load_library()
    lt_library = load_lt_library() if torch is None else already_loaded("libcublasLt.so") or load_lt_library()
    lt = CublasLt(device.stream, device.allocate(32 * MIB), device.address, lt_library)
    told: dict[str, Any] = {
        "cublas": Plain(device, library, 32 * MIB).version,
        "library": getattr(library, "_name", ""),
        "torch": torch.__version__ if torch else None,
        "emulation_variable": os.environ.get(EMULATION),
        "workspace_variable": os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
        "sizes": {},
    }
    ways = Ways(device, library, lt, torch, lt_count)
    read = clock_reader(device.facts.pci_bus_id)
    for number, size in enumerate(sizes):
        share = (limit_s - (time.monotonic() - begun)) / (len(sizes) - number)
        if share <= 0:
            told["left_out"] = [label(left) for left in sizes[number:]]
            break
        samples = time_ways(device, ways.at(size), time.monotonic() + share)
        clocks = read()
        told["sizes"][label(size)] = {
            "samples_ms": samples,
            "sm_clock_mhz": clocks.sm_clock_mhz if clocks else None,
        }
        device.release()
    return told


def already_loaded(name: str) -> Any:
    """The library of that name that this process has loaded already; None where there is none."""
    import ctypes

    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split()[-1]
        if Path(path).name.startswith(name):
            return ctypes.CDLL(path)
    return None


def label(size: Sequence[int]) -> str:
    return "x".join(map(str, size))


def parse_sizes(text: str, suite: str) -> list[tuple[int, ...]]:
    from autotune.problems import parse_size
    from autotune.spec.load import load_spec
    from autotune.suites import load_suite

    spec = load_spec("sgemm")
    if suite:
        return [shape.sizes for shape in load_suite(suite, spec).shapes]
    return [parse_size(part, spec) for part in text.split(",")]


def show(told: dict[str, dict[str, Any]]) -> str:
    """A table per part: a row per way, a column per size, microseconds."""
    lines = []
    for part, figures in told.items():
        if "error" in figures:
            lines += [f"{part}: {figures['error']}", ""]
            continue
        lines.append(
            f"{part}: cuBLAS {figures['cublas']} ({figures['library']}), torch {figures['torch']}, "
            f"{EMULATION}={figures['emulation_variable']}"
        )
        sizes = figures["sizes"]
        names = list(dict.fromkeys(name for one in sizes.values() for name in one["samples_ms"]))
        lines.append(f"{'us':26}" + "".join(f"{size:>18}" for size in sizes))
        for name in names:
            cells = []
            for one in sizes.values():
                samples = one["samples_ms"].get(name)
                cells.append(f"{statistics.median(samples) * 1e3:18.3f}" if samples else f"{'-':>18}")
            lines.append(f"{name:26}" + "".join(cells))
        clocks = "".join(f"{one['sm_clock_mhz'] or 0:18d}" for one in sizes.values())
        lines += [f"{'SM clock, MHz':26}{clocks}", ""]
    return "\n".join(lines)


def main() -> int:
    """Runs the parts, each in a process of its own, and writes what they tell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--suite", default="", help="all sizes of a suite instead")
    parser.add_argument("--lt", type=int, default=6, help="how many of cuBLASLt's candidates")
    parser.add_argument("--out", type=Path, help="folder for baselines.json")
    parser.add_argument("--limit", type=float, default=60, help="seconds for everything")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--part", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = parse_sizes(options.sizes, options.suite)
    if options.part:
        print(json.dumps(run_part(options.part, sizes, options.lt, options.limit)))
        return 0
    begun = time.monotonic()
    told: dict[str, dict[str, Any]] = {}
    chosen = options.parts.split(",")
    for number, part in enumerate(chosen):
        left = options.limit - (time.monotonic() - begun)
        told[part] = start_part(part, sys.argv[1:], left / (len(chosen) - number), left)
        if options.out:
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / "baselines.json").write_text(json.dumps(told, indent=1) + "\n")
    print(show(told))
    return int(any("error" in figures for figures in told.values()))


def start_part(part: str, arguments: Sequence[str], share_s: float, most_s: float) -> dict[str, Any]:
    """What a part's process prints last; its error where it fails or takes all the time that is left."""
    environment = {**os.environ, EMULATION: "0"}
    if part == "environment":
        environment.pop(EMULATION)
    # Starting CUDA and the libraries takes some seconds of each share.
    limits = ["--limit", f"{max(1.0, share_s - 6.0):.1f}", "--part", part]
    command = [sys.executable, str(Path(__file__).resolve()), *arguments, *limits]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=max(5.0, most_s), check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"took longer than the {most_s:.0f} s that were left"}
    lines = done.stdout.strip().splitlines()
    for line in lines[:-1]:
        print(f"{part}: {line}", flush=True)
    with suppress(IndexError, ValueError):
        if done.returncode == 0:
            found: dict[str, Any] = json.loads(lines[-1])
            return found
    return {"error": f"exit {done.returncode}: {done.stderr.strip()[-1500:]}"}


if __name__ == "__main__":
    sys.exit(main())

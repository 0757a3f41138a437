"""What a fused epilogue saves, and what it costs where it is not used.

    python tools/gpu/epilogue.py --out RESULTS --commit HASH [--sizes 1024,4096,512x4096x11008] [--db FILE] [--limit 40]

Warm, in turns that change places, each with the configuration that `best` gives for sgemm at the size, but for the
activations where sgemm_epilogue itself was tuned for them:

    sgemm                 the plain kernel
    sgemm again           the same under another name: what a ratio may mean nothing by
    unused                sgemm_epilogue without bias and activation
    relu, gelu            sgemm_epilogue with a bias for each column and the activation
    cublas                cublasSgemm in FP32
    cublas, then relu     cublasSgemm and one CuPy kernel that adds the bias and applies the activation in place; both
    cublas, then gelu     are captured in the same graph

Each is first verified against a float64 reference on guarded buffers; what is wrong, or does not run, gets no time.
Writes RESULTS/epilogue.json after each size; a size that the time does not reach is named as left out. Exit 1 where
anything was wrong or left out.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from autotune.candidate import BufferPlan, Candidate, CompiledKernel, Runnable, Source  # noqa: E402
from autotune.choice.answer import Match  # noqa: E402
from autotune.config import Value  # noqa: E402
from autotune.device.gpu_device import GpuDevice  # noqa: E402
from autotune.device.measure import Bind, BufferSets, ReadClocks, compare_calls  # noqa: E402
from autotune.device.messages import Workload  # noqa: E402
from autotune.device.sampling import half_width  # noqa: E402
from autotune.device.scratch import Scratch  # noqa: E402
from autotune.device.verify import Trap, verify_call, verify_run  # noqa: E402
from autotune.errors import StageFailure  # noqa: E402
from autotune.gpu import GpuSpec  # noqa: E402
from autotune.launch import plan_launch, plan_run  # noqa: E402
from autotune.problems import make_problem, parse_size  # noqa: E402
from autotune.protocol import Protocol  # noqa: E402
from autotune.records import Accuracy  # noqa: E402
from autotune.render import render  # noqa: E402
from autotune.spec.load import load_spec  # noqa: E402

SIZES = "1024,4096,512x4096x11008"
WARM = Protocol(mode="warm", sample_ms=10.0, min_samples=16, max_samples=64, precision=0.002)
"""Samples long enough that even large products are timed as graphs, like small ones."""
HANGS_S = 20.0
"""This much later than its limit the script is killed."""
ACTIVATIONS = {"relu": "fmaxf(x, 0.0f)", "gelu": "0.5f * x * (1.0f + erff(x * 0.70710678f))"}
"""What the separate kernel applies, in CUDA."""
PLAIN = "sgemm"
OURS: dict[str, tuple[str, dict[str, Value]]] = {
    PLAIN: ("sgemm", {}),
    "sgemm again": ("sgemm", {}),
    "unused": ("sgemm_epilogue", {"bias": "none", "activation": "none"}),
    **{name: ("sgemm_epilogue", {"bias": "row", "activation": name}) for name in ACTIVATIONS},
}
RATIOS = {
    "A/A": ("sgemm again", PLAIN),
    "cost of an unused epilogue": ("unused", PLAIN),
    "cuBLAS over sgemm": ("cublas", PLAIN),
    **{f"separate over fused, {name}": (f"cublas, then {name}", name) for name in ACTIVATIONS},
    **{f"fused over plain, {name}": (name, PLAIN) for name in ACTIVATIONS},
}
"""By how much the first takes longer than the second."""

After = Callable[[str, Mapping[str, BufferPlan], Mapping[str, int]], Callable[[], None]]
"""Gives the call that queues C = activation(C + bias) over buffers at these addresses."""
Compile = Callable[[Source], "Future[CompiledKernel]"]
Best = Callable[[str, str, Mapping[str, Value]], Any]
"""What is best for a size, a kernel and problem classes."""


@dataclass(frozen=True)
class Contestant:
    """One way to get a result, ready to be checked and timed."""

    name: str
    workload: Workload
    bind: Bind
    verify: Callable[[Trap], Accuracy]


class CupyAfter:
    """The separate kernel: one read and one write of C, by CuPy on its current stream."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._kernels = {
            name: cupy.ElementwiseKernel(
                "float32 c, float32 bias",
                "float32 out",
                f"const float x = c + bias; out = {text}",
                f"bias_{name}",
            )
            for name, text in ACTIVATIONS.items()
        }

    def __call__(
        self, activation: str, plans: Mapping[str, BufferPlan], addresses: Mapping[str, int]
    ) -> Callable[[], None]:
        """See `After`."""
        c, bias = (self._array(plans[name], addresses[name]) for name in ("C", "bias"))
        kernel = self._kernels[activation]
        return lambda: kernel(c, bias, c)

    def _array(self, plan: BufferPlan, address: int) -> Any:
        cupy, item = self._cupy, 4
        strides = (plan.pitch * item, item)[-len(plan.shape) :]
        nbytes = plan.pitch * item * (plan.shape[0] if len(plan.shape) > 1 else 1)
        memory = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(address, nbytes, self, 0), 0)
        return cupy.ndarray(plan.shape, cupy.float32, memory, strides)


@dataclass(frozen=True)
class Place:
    """The GPU and what runs on it beside our kernels."""

    device: GpuDevice
    gpu: GpuSpec
    cublas: Any
    after: After
    read_clocks: ReadClocks


def candidates(gpu: GpuSpec, size: str, best: Best) -> dict[str, Candidate]:
    """Our kernels for a size, by contestant."""
    found = {}
    plain = best(size, PLAIN, {}).config
    for name, (kernel, classes) in OURS.items():
        own = best(size, kernel, classes) if name in ACTIVATIONS else None
        config = own.config if own and own.match is Match.EXACT else plain
        spec = load_spec(kernel)
        problem = make_problem(spec, parse_size(size, spec), classes=classes)
        found[name] = Candidate(spec, gpu, problem, config)
    return found


def kernel_contestant(place: Place, name: str, run: Runnable, loaded: ExitStack) -> Contestant:
    """One of our kernels, which stays loaded as long as `loaded`."""
    device = place.device
    function = loaded.enter_context(device.loaded(run.kernel))
    scratch = Scratch(device, [run.launch])

    def bind(addresses: Mapping[str, int]) -> Callable[[], None]:
        return device.bind(function, run.launch, {**addresses, **scratch.addresses(run.launch)})

    return Contestant(name, Workload.of(run, WARM), bind, lambda trap: verify_run(device, run, trap))


def library_contestants(place: Place, workloads: Mapping[str, Workload]) -> Iterator[Contestant]:
    """cuBLAS alone, and with the separate kernel behind it; `workloads` are those of our kernels of the same work."""
    plain = workloads[PLAIN]

    def cublas(addresses: Mapping[str, int]) -> Callable[[], None]:
        call: Callable[[], None] = place.cublas.bind(plain, addresses)
        return call

    yield Contestant("cublas", plain, cublas, lambda trap: verify_call(place.device, cublas, trap))
    for activation in ACTIVATIONS:
        yield _followed(place, cublas, activation, workloads[activation])


def _followed(place: Place, cublas: Bind, activation: str, workload: Workload) -> Contestant:
    plans = {plan.name: plan for plan in workload.buffers}

    def bind(addresses: Mapping[str, int]) -> Callable[[], None]:
        product, rest = cublas(addresses), place.after(activation, plans, addresses)

        def queue() -> None:
            product()
            rest()

        return queue

    return Contestant(
        f"cublas, then {activation}", workload, bind, lambda trap: verify_call(place.device, bind, trap)
    )


def verified(
    place: Place, entered: Sequence[Contestant], failed: dict[str, str]
) -> list[tuple[Contestant, Accuracy]]:
    """Those that are right with their errors; what is wrong with others goes to `failed`."""
    traps = {one.workload: Trap(place.device, one.workload) for one in entered}
    right = []
    for one in entered:
        try:
            right.append((one, one.verify(traps[one.workload])))
        except StageFailure as failure:
            failed[one.name] = str(failure)
    return right


def measure_size(
    place: Place,
    ours: Mapping[str, Candidate],
    kernels: Mapping[str, Future[CompiledKernel]],
    until: float,
) -> dict[str, Any]:
    """Times, errors and ratios of one size; sampling ends at `until`."""
    failed: dict[str, str] = {}
    with ExitStack() as loaded:
        entered: list[Contestant] = []
        for name, candidate in ours.items():
            try:
                run = plan_run(candidate, kernels[name].result())
                entered.append(kernel_contestant(place, name, run, loaded))
            except StageFailure as failure:
                failed[name] = str(failure)
        entered += library_contestants(place, {name: _workload(ours[name]) for name in (PLAIN, *ACTIVATIONS)})
        right = verified(place, entered, failed)
        place.device.release()
        sets = {one.workload: BufferSets(place.device, one.workload) for one, _ in right}
        share_s = max(0.05, (until - time.monotonic()) / len(entered))
        calls = [(one.bind, sets[one.workload]) for one, _ in right]
        protocol = replace(WARM, measure_limit_s=share_s)
        taken = compare_calls(place.device, calls, protocol, place.read_clocks) if calls else []
    times: dict[str, dict[str, Any]] = {}
    for (one, accuracy), timed in zip(right, taken, strict=True):
        measured = timed.measurement
        clocks, width = measured.clocks, half_width(measured.samples_ms)
        times[one.name] = {
            "time_ms": measured.time_ms,
            "half_width": width if math.isfinite(width) else None,
            "samples": len(measured.samples_ms),
            "calls_per_sample": measured.calls_per_sample,
            "sm_clock_mhz": clocks.sm_clock_mhz if clocks else None,
            "worst_error": accuracy.worst_error,
            "tolerance": accuracy.tolerance,
            "notes": list(timed.notes),
        }
    ratios = {
        name: times[slow]["time_ms"] / times[fast]["time_ms"]
        for name, (slow, fast) in RATIOS.items()
        if slow in times and fast in times
    }
    return {"times": times, "ratios": ratios, "failed": failed}


def _workload(candidate: Candidate) -> Workload:
    launch = plan_launch(candidate.spec, candidate.problem, candidate.config, candidate.gpu)
    return Workload.of_launch(launch, candidate.spec.reference, WARM)


def record(
    options: argparse.Namespace,
    place: Place,
    compile_source: Compile,
    best: Best,
    provenance: Mapping[str, Any],
) -> int:
    """Measures all sizes and writes the file after each; 1 where something was wrong or left out."""
    until = time.monotonic() + options.limit
    sizes = options.sizes.split(",")
    ours = {size: candidates(place.gpu, size, best) for size in sizes}
    kernels = {
        size: {
            name: compile_source(render(each.spec, each.gpu, each.problem, each.config))
            for name, each in named.items()
        }
        for size, named in ours.items()
    }
    # Before the time is shared out, so that the first size does not wait in its own.
    wait(
        [kernel for named in kernels.values() for kernel in named.values()],
        max(0.0, until - time.monotonic()),
    )
    found: dict[str, Any] = {
        "commit": options.commit,
        "date": datetime.now(UTC).isoformat(),
        **provenance,
        "protocol": WARM.key,
        "left_out": list(sizes),
        "sizes": {},
    }
    options.out.mkdir(parents=True, exist_ok=True)
    for number, size in enumerate(sizes):
        left = until - time.monotonic()
        if left > 0:
            end = time.monotonic() + left / (len(sizes) - number)
            found["sizes"][size] = {
                "configs": {name: one.config.key for name, one in ours[size].items()},
                **measure_size(place, ours[size], kernels[size], end),
            }
            found["left_out"].remove(size)
            place.device.release()
            print(show(size, found["sizes"][size]), flush=True)
        (options.out / "epilogue.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for size in found["left_out"]:
        print(f"{size}: left out, no time left")
    return int(bool(found["left_out"]) or any(one["failed"] for one in found["sizes"].values()))


def show(size: str, one: Mapping[str, Any]) -> str:
    """One size as text."""
    lines = [f"{size}: {one['configs'][PLAIN]}"]
    for name, told in one["times"].items():
        width = told["half_width"]
        known = "one sample" if width is None else f"+- {width:.2%}"
        lines.append(f"  {name:18} {told['time_ms']:9.5f} ms {known}")
    lines += [f"  {name:28} {ratio:.4f}" for name, ratio in one["ratios"].items()]
    lines += [f"  {name}: {why}" for name, why in one["failed"].items()]
    return "\n".join(lines)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for epilogue.json")
    parser.add_argument("--commit", default="", help="of the code that runs")
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--db")
    parser.add_argument("--limit", type=float, default=40.0, help="seconds for everything")
    return parser.parse_args(arguments)


def main() -> int:
    """Measures on the first GPU here, in this process."""
    options, begun = parse(), time.monotonic()
    faulthandler.dump_traceback_later(options.limit + HANGS_S, exit=True)
    from autotune.answers import best
    from autotune.compile.pool import CompilePool
    from autotune.device.local import local_gpus
    from autotune.device.lock import device_lock

    gpus = local_gpus()
    if not gpus:
        raise SystemExit("no NVIDIA GPU in this machine")
    local = gpus[0]
    os.environ.update(local.worker_env())
    with device_lock(local.pci_bus_id), CompilePool() as pool:
        place, provenance = on_cuda(local.spec, local.pci_bus_id)
        provenance |= {"driver": local.environment.driver, "nvrtc": local.environment.nvrtc}
        options.limit -= time.monotonic() - begun
        return record(
            options,
            place,
            lambda source: pool.submit(source, local.spec.arch),
            lambda size, kernel, classes: best(
                "local", size, kernel, classes=classes, db=options.db, protocol=WARM
            ),
            provenance,
        )


def on_cuda(gpu: GpuSpec, pci_bus_id: str) -> tuple[Place, dict[str, Any]]:
    """The GPU of this process, and what is told of it and the libraries."""
    from autotune.device.cublas import WORKSPACE_BYTES, Cublas
    from autotune.device.cuda_device import CudaDevice
    from autotune.device.local import describe_device
    from autotune.device.nvml import clock_reader

    device = CudaDevice(describe_device(0))
    cupy: Any = device.xp
    cublas = Cublas(device.stream, device.allocate(WORKSPACE_BYTES), device.address)
    place = Place(device, gpu, cublas, CupyAfter(cupy), clock_reader(pci_bus_id))
    return place, {"gpu": gpu.name, "cublas": list(cublas.notes), "cupy": cupy.__version__}


if __name__ == "__main__":
    sys.exit(main())

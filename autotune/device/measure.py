"""How long a kernel takes: one protocol for our kernels and for the vendor's library alike.

A *call* queues one run of either over one set of buffers. Short calls are captured as a graph that fills
about a millisecond, each call in it on another set of buffers; long ones are queued one by one. Cold samples
begin with a flush of the L2, outside the timed part, long enough that the host has queued the sample before
the GPU gets to it: so what the host does meanwhile leaves no trace in the times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeAlias

from autotune.buffers import fill, lay_out
from autotune.candidate import Runnable
from autotune.device.gpu_device import GpuDevice
from autotune.device.messages import Workload
from autotune.device.sampling import (
    DROP_AT_ONCE,
    MIN_DECIDED,
    calls_per_sample,
    clearly_slower,
    decided,
    enough,
    joined,
    sampling_notes,
    turn_order,
)
from autotune.errors import StageFailure
from autotune.gpu import GpuSpec
from autotune.protocol import Protocol
from autotune.records import ClockReading, Measurement, Status
from autotune.trial import Timed

Bind: TypeAlias = Callable[[Mapping[str, int]], Callable[[], None]]
"""Gives the call for buffers at these addresses: a kernel's launch, or a library's routine."""
ReadClocks: TypeAlias = Callable[[], ClockReading | None]

COLD_L2_MULTIPLE = 4
"""Buffer sets exceed the L2 this many times, where a sample has that many calls and memory allows."""
FLUSH_L2_MULTIPLE = 2
FLUSH_MS = 0.15
"""A flush lasts at least this long, which hides the host's work of queueing the sample."""
RAMP_S = 0.3
"""A GPU at work this long has its clocks up."""
RAMP_LIMIT_S = 1.0
"""Waiting for that ends here, whatever the host does in between."""
WARMUP_STEP_MS = 5.0
"""Calls are queued for at least this long at once, where the whole warm-up is no shorter."""
RACING_WARMUP_MS = 2.0
"""Warm-up of a kernel that follows others closely and has a best time to beat."""
HOPELESS_SHARE = 0.25
"""Samples of a kernel that already looks too slow take this part of their usual length."""
MAX_CALLS = 2000
"""Calls in one sample, and in one step of the warm-up."""
MEMORY_SHARE = 0.5
"""Largest part of the free device memory that buffer sets take."""
QUEUE_MS = 200.0
"""Samples are queued together up to this much GPU time before their stamps are read."""
MAX_QUEUED = 5
BUSY_MS = 20.0
"""Samples longer than this need no work queued before them: the host's part is lost in them."""
SHORTEST_MS = 1e-4
PLAUSIBLE = 1.02
"""A rate this far above what the chip can do at its highest clock is refused."""


class BufferSets:
    """Equal sets of buffers of one workload, each in its own memory."""

    def __init__(self, device: GpuDevice, workload: Workload) -> None:
        """One set with fresh data."""
        self.workload = workload
        self._device = device
        self._layout = lay_out(workload.buffers, guarded=False)
        self._arena = device.allocate(max(1, self._layout.nbytes))
        fill(
            self._arena[: self._layout.nbytes],
            self._layout,
            workload.data,
            workload.seed,
            frozenset(plan.name for plan in workload.buffers if plan.role == "out"),
            device.xp,
        )
        self.count = 1

    @property
    def set_bytes(self) -> int:
        """Memory of one set."""
        return max(1, self._layout.nbytes)

    @property
    def nbytes(self) -> int:
        """Memory of all sets."""
        return self.count * self.set_bytes

    def grow(self, count: int) -> None:
        """Provides at least `count` sets with the same data; old addresses become invalid if it does."""
        if count <= self.count:
            return
        arena = self._device.allocate(count * self.set_bytes)
        arena.reshape(count, self.set_bytes)[...] = self._arena[: self.set_bytes]
        self._device.synchronize()
        self._arena = arena
        self.count = count

    def addresses(self, number: int) -> dict[str, int]:
        """The pointers of one set."""
        base = self._device.address(self._arena) + (number % self.count) * self.set_bytes
        return self._layout.addresses(base)


def sets_wanted(calls: int, set_bytes: int, l2_bytes: int, free_bytes: int, *, cold: bool) -> int:
    """How many buffer sets the calls of a sample rotate over."""
    if not cold:
        return 1
    filling = math.ceil(COLD_L2_MULTIPLE * l2_bytes / set_bytes) + 1
    affordable = int(free_bytes * MEMORY_SHARE / set_bytes)
    return max(1, min(calls, filling, affordable))


def flush_bytes(device: GpuDevice) -> int:
    """What a flush writes: more than twice the L2, and enough to last `FLUSH_MS`."""
    return int(max(FLUSH_L2_MULTIPLE * device.l2_bytes * 1.05, device.memory_gbps * 1e6 * FLUSH_MS))


class Sampler:
    """Takes samples of one call; a context manager, since it may hold a graph."""

    def __init__(
        self,
        device: GpuDevice,
        bind: Bind,
        sets: BufferSets,
        protocol: Protocol,
        best_ms: float | None = None,
    ) -> None:
        """With a best time to beat, warming up is short and hopeless kernels get short samples."""
        self._device = device
        self._bind = bind
        self._sets = sets
        self._protocol = protocol
        self._best_ms = best_ms
        self._warmup_ms = protocol.warmup_ms if best_ms is None else min(protocol.warmup_ms, RACING_WARMUP_MS)
        self._cold = protocol.mode == "cold"
        self._stack = ExitStack()
        self._sample: Callable[[], None] = lambda: None
        self.each_ms = 0.0
        """Estimated time of one call."""
        self.calls = 1

    def __enter__(self) -> Sampler:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def warm_up(self) -> None:
        """Runs the call for the protocol's warm-up time and learns roughly how long one takes.

        Goes on until the GPU has been busy for `RAMP_S` without a pause: a chip that has been idle starts at a
        fraction of its clock.
        """
        call = self._bind(self._sets.addresses(0))
        spent, count = 0.0, 1
        limit = self._device.now() + RAMP_LIMIT_S
        step_ms = min(WARMUP_STEP_MS, self._warmup_ms)
        while spent < self._warmup_ms or (self._device.busy.lasted_s < RAMP_S and self._device.now() < limit):
            start = self._device.mark()
            for _ in range(count):
                call()
            end = self._device.mark()
            self._device.synchronize()
            elapsed = max(self._device.elapsed_ms(start, end), SHORTEST_MS)
            spent += elapsed
            self.each_ms = elapsed / count
            missing_ms = max(self._warmup_ms - spent, step_ms)
            count = max(1, min(MAX_CALLS, math.ceil(missing_ms / self.each_ms)))

    def choose_calls(self) -> int:
        """Fixes the calls per sample from the estimate; gives the number of buffer sets it wants."""
        self.calls = calls_per_sample(self.each_ms, self._sample_ms, MAX_CALLS)
        free = self._device.free_bytes()
        return sets_wanted(self.calls, self._sets.set_bytes, self._device.l2_bytes, free, cold=self._cold)

    def build(self) -> None:
        """Prepares the sample over the buffer sets as they are now; runs it once."""
        calls = [
            self._bind(self._sets.addresses(number)) for number in range(min(self.calls, self._sets.count))
        ]
        if self.calls == 1:
            self._sample = calls[0]
            return

        def queue() -> None:
            for number in range(self.calls):
                calls[number % len(calls)]()

        self._stack.close()
        self._sample = self._stack.enter_context(self._device.graph(queue))
        start = self._device.mark()
        self._sample()
        end = self._device.mark()
        self._device.synchronize()
        # Calls queued one by one may have been slowed by the host; a graph's calls are not.
        self.each_ms = max(self._device.elapsed_ms(start, end), SHORTEST_MS) / self.calls

    @property
    def too_short(self) -> bool:
        """Whether a sample takes much less than the protocol asks for and could hold more calls."""
        return 1 < self.calls < MAX_CALLS and self.each_ms * self.calls < 0.6 * self._sample_ms

    @property
    def hopeless(self) -> bool:
        """Whether the estimate is so far behind the best that one sample will do."""
        return self._best_ms is not None and self.each_ms > DROP_AT_ONCE * self._best_ms

    @property
    def _sample_ms(self) -> float:
        return self._protocol.sample_ms * (HOPELESS_SHARE if self.hopeless else 1.0)

    def queue(self) -> tuple[object, object]:
        """Queues one sample and gives its two time stamps."""
        if self._cold:
            self._device.flush(flush_bytes(self._device))
        elif self.each_ms * self.calls < BUSY_MS:
            self._sample()  # keeps the GPU busy, and the L2 warm, while the host queues the timed one
        start = self._device.mark()
        self._sample()
        return start, self._device.mark()

    def read(self, stamps: tuple[object, object]) -> float:
        """Milliseconds of one call in a sample that has finished."""
        return max(self._device.elapsed_ms(*stamps), SHORTEST_MS) / self.calls


def prepare_sampler(
    device: GpuDevice, bind: Bind, sets: BufferSets, protocol: Protocol, best_ms: float | None = None
) -> Sampler:
    """A sampler that is warm, with its graph and its buffer sets."""
    sampler = Sampler(device, bind, sets, protocol, best_ms)
    sampler.warm_up()
    sets.grow(sampler.choose_calls())
    sampler.build()
    if sampler.too_short:
        sets.grow(sampler.choose_calls())
        sampler.build()
    return sampler


def measure_call(
    device: GpuDevice,
    bind: Bind,
    sets: BufferSets,
    protocol: Protocol,
    best_ms: float | None = None,
    read_clocks: ReadClocks = lambda: None,
) -> Timed:
    """Times one call until its median is known, it is known to be slower than the best, or time is up."""
    deadline = device.now() + protocol.measure_limit_s
    best_ms = best_ms if protocol.racing else None
    with prepare_sampler(device, bind, sets, protocol, best_ms) as sampler:
        # Asking the driver takes as long as a sample: once is enough where the clocks are up anyway.
        readings = [read_clocks()] if best_ms is None else []
        samples: list[float] = []
        dropped = False
        while not samples or not (
            dropped or enough(samples, protocol) or decided(samples, best_ms) or device.now() >= deadline
        ):
            stamps = [sampler.queue() for _ in range(_queued(sampler, samples, protocol))]
            device.synchronize()
            samples += [sampler.read(pair) for pair in stamps]
            dropped = clearly_slower(samples, best_ms)
        readings.append(read_clocks())
        return _timed(samples, sampler.calls, joined(readings), protocol, dropped=dropped)


def compare_calls(
    device: GpuDevice,
    contestants: Sequence[tuple[Bind, BufferSets]],
    protocol: Protocol,
    read_clocks: ReadClocks = lambda: None,
) -> list[Timed]:
    """Times several calls in turn, so that drifting clocks meet all of them alike.

    The order changes from round to round (`turn_order`): none is always last, or always after the same one.
    """
    deadline = device.now() + protocol.measure_limit_s * len(contestants)
    with ExitStack() as stack:
        # Growing a set moves it, so every sampler is warmed and sized before the first graph is made.
        samplers = [Sampler(device, bind, sets, protocol) for bind, sets in contestants]
        for sampler, (_, sets) in zip(samplers, contestants, strict=True):
            stack.enter_context(sampler)
            sampler.warm_up()
            sets.grow(sampler.choose_calls())
        for sampler in samplers:
            sampler.build()
        samples: list[list[float]] = [[] for _ in samplers]
        readings = [read_clocks()]
        while not samples[0] or not (
            all(enough(taken, protocol) for taken in samples) or device.now() >= deadline
        ):
            order = turn_order(len(samplers), len(samples[0]))
            stamps = [samplers[number].queue() for number in order]
            device.synchronize()
            for number, pair in zip(order, stamps, strict=True):
                samples[number].append(samplers[number].read(pair))
        readings.append(read_clocks())
        clocks = joined(readings)
        return [
            _timed(taken, sampler.calls, clocks, protocol)
            for taken, sampler in zip(samples, samplers, strict=True)
        ]


@dataclass(frozen=True)
class Rate:
    """What a time would mean, against what the chip can do."""

    got: float
    allowed: float
    unit: str


def implausible_rates(
    run: Runnable, gpu: GpuSpec, measurement: Measurement, max_clock_mhz: int, *, cold: bool
) -> tuple[Rate, ...]:
    """The rates that a time is too short for: arithmetic always, memory only when cold.

    The L2 may keep its own size of writes back beyond the end of a sample.
    """
    seconds = measurement.time_ms * 1e-3
    clock_mhz = max(gpu.max_clock_mhz, max_clock_mhz)
    peak_flops = gpu.sm_count * gpu.fp32_lanes_per_sm * 2 * clock_mhz * 1e6
    rates = []
    if run.problem.dtype == "float32":  # other types may run on units that these lanes do not count
        rates.append(Rate(run.flops / seconds / 1e12, peak_flops / 1e12, "TFLOP/s"))
    if cold:
        moved = run.bytes - gpu.l2_bytes / measurement.calls_per_sample
        rates.append(Rate(moved / seconds / 1e9, gpu.memory_gbps, "GB/s"))
    return tuple(rate for rate in rates if rate.got > PLAUSIBLE * rate.allowed)


def refuse_implausible(run: Runnable, gpu: GpuSpec, measurement: Measurement, protocol: Protocol) -> None:
    """Raises StageFailure (`implausible`) for a time that the chip cannot reach."""
    clocks = measurement.clocks
    highest = clocks.max_sm_clock_mhz if clocks else 0
    rates = implausible_rates(run, gpu, measurement, highest, cold=protocol.mode == "cold")
    if rates:
        text = "; ".join(
            f"{rate.got:.4g} {rate.unit} exceeds the chip's {rate.allowed:.4g} {rate.unit} by more than "
            f"{PLAUSIBLE - 1:.0%}"
            for rate in rates
        )
        raise StageFailure(Status.IMPLAUSIBLE, f"{measurement.time_ms:.4g} ms would be {text}")


def _queued(sampler: Sampler, samples: Sequence[float], protocol: Protocol) -> int:
    """How many samples to queue before reading them, never more than `QUEUE_MS` of work.

    Two at first, one where that should do, then as many as it takes to stop.
    """
    affordable = int(QUEUE_MS / (sampler.each_ms * sampler.calls + FLUSH_MS))
    wanted = 1 if sampler.hopeless else 2
    if samples:
        wanted = next(
            (least - len(samples) for least in (MIN_DECIDED, protocol.min_samples) if least > len(samples)),
            MAX_QUEUED,
        )
    return max(1, min(affordable, wanted, protocol.max_samples - len(samples)))


def _timed(
    samples: Sequence[float],
    calls: int,
    clocks: ClockReading | None,
    protocol: Protocol,
    *,
    dropped: bool = False,
) -> Timed:
    notes = () if dropped else sampling_notes(samples, clocks, protocol)
    return Timed(Measurement(tuple(samples), calls, clocks), dropped, notes)

"""What a trial leaves behind: its status, resources, accuracy, measurement and full identity."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cached_property

from autotune.config import Config
from autotune.problem import Problem


class Status(StrEnum):
    """How a trial ended; every trial ends in exactly one of these."""

    OK = "ok"
    DROPPED = "dropped"  # verified, and clearly slower than the best after its first samples
    ILLEGAL = "illegal"
    COMPILE_ERROR = "compile_error"
    COMPILE_TIMEOUT = "compile_timeout"
    COMPILE_OOM = "compile_oom"
    LAUNCH_ERROR = "launch_error"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    WRONG_RESULT = "wrong_result"
    IMPLAUSIBLE = "implausible"

    @property
    def timed(self) -> bool:
        """Whether a record of this status holds times: only verified kernels are ever timed."""
        return self in (Status.OK, Status.DROPPED)


class Origin(StrEnum):
    """Where a trial's figure comes from; predicted and replayed figures never pass for measured ones."""

    MEASURED = "measured"
    REPLAYED = "replayed"
    PREDICTED = "predicted"


class Round(StrEnum):
    """When in a session a measurement was taken."""

    SEARCH = "search"
    FINAL = "final"  # the leaders, re-measured interleaved at the end
    BASELINE = "baseline"  # a vendor library's routine under the same protocol


@dataclass(frozen=True)
class Resources:
    """What a compiled kernel takes, as the compiler reported it for one architecture."""

    registers: int
    """Per thread."""
    static_smem_bytes: int
    spill_store_bytes: int
    """Per thread; spilling is slow, not illegal."""
    spill_load_bytes: int
    stack_bytes: int
    """Local memory per thread, spills included."""
    dynamic_smem_bytes: int = 0
    """Per block, from the launch; zero until the launch is planned."""
    blocks_per_sm: int | None = None
    """Resident blocks per SM with this launch; None until the launch is planned."""


@dataclass(frozen=True)
class Accuracy:
    """The worst element against a float64 reference."""

    worst_error: float
    """Largest |got - expected| / tolerance-unit over the elements: at most `tolerance` passes."""
    tolerance: float
    """In the same unit as `worst_error`."""
    elements: int = 0
    """How many elements were compared."""


@dataclass(frozen=True)
class ClockReading:
    """The board's state around a measurement, as the driver's management library tells it."""

    sm_clock_mhz: int
    max_sm_clock_mhz: int
    temperature_c: int
    throttle_reasons: str = ""
    """Comma-joined reasons other than idle; empty when not throttled."""


@dataclass(frozen=True)
class Measurement:
    """Raw samples of one kernel under one protocol."""

    samples_ms: tuple[float, ...]
    """Time of one kernel call in each sample, in the order taken."""
    calls_per_sample: int
    """Kernel calls that each sample averages over (short kernels run as a graph of many calls)."""
    clocks: ClockReading | None = None

    def __post_init__(self) -> None:
        if not self.samples_ms:
            raise ValueError("a measurement has at least one sample")
        # A clock that ticks too coarsely may read zero.
        if not all(0 <= sample < math.inf for sample in self.samples_ms):
            raise ValueError(f"samples are times, got {min(self.samples_ms)} to {max(self.samples_ms)} ms")

    @property
    def time_ms(self) -> float:
        """Median of the samples."""
        return statistics.median(self.samples_ms)

    @property
    def spread(self) -> float:
        """Half the interquartile range over the median; 0 for fewer than 4 samples and for times of 0."""
        if len(self.samples_ms) < 4 or self.time_ms == 0:
            return 0.0
        low, _, high = statistics.quantiles(self.samples_ms, n=4)
        return (high - low) / 2 / self.time_ms


@dataclass(frozen=True)
class Outcome:
    """What became of one trial, without its identity."""

    status: Status
    origin: Origin
    reason: str = ""
    resources: Resources | None = None
    accuracy: Accuracy | None = None
    measurement: Measurement | None = None
    predicted_ms: float | None = None
    notes: tuple[str, ...] = ()
    """What a user should know beside the figure: spills, throttling, unpromising rules."""

    def __post_init__(self) -> None:
        if self.predicted_ms is not None and not 0 <= self.predicted_ms < math.inf:
            raise ValueError(f"a predicted time is finite and not negative, got {self.predicted_ms}")
        has_time = self.measurement is not None or self.predicted_ms is not None
        if has_time != self.status.timed:
            raise ValueError(
                f"a record holds a time exactly when its status is ok or dropped, got {self.status}"
            )
        if (self.predicted_ms is not None) != (self.origin is Origin.PREDICTED and self.status.timed):
            raise ValueError("predicted_ms belongs to timed trials of predicted origin, and to them alone")
        if not self.status.timed and not self.reason:
            raise ValueError(f"a trial that ends as {self.status} states its reason")

    @property
    def time_ms(self) -> float | None:
        """The measured median, or the predicted time; None where the trial failed."""
        return self.measurement.time_ms if self.measurement else self.predicted_ms


@dataclass(frozen=True)
class DeviceIdentity:
    """Which kind of device a record is about; boards of the same kind share it."""

    table: str
    """Name of the GPU table, e.g. `h200`; the CUDA name in lower case where no table fits."""
    name: str
    """The CUDA name, e.g. `NVIDIA H200`."""
    compute_capability: str
    """`major.minor`, e.g. `9.0`."""
    sm_count: int
    memory_bytes: int
    mig_profile: str = ""
    """E.g. `3g.71gb`; empty for a whole GPU."""

    @cached_property
    def key(self) -> str:
        """Text under which results of interchangeable boards meet."""
        parts = (self.table, self.compute_capability, f"{self.sm_count}sm", self.mig_profile)
        return "/".join(part for part in parts if part)


@dataclass(frozen=True)
class Environment:
    """The software that made a record; a difference marks an answer stale."""

    driver: str
    """Driver version, e.g. `580.159.04`; empty where nothing was run on a GPU."""
    cuda: str
    """CUDA version the driver supports, e.g. `13.0`; empty likewise."""
    nvrtc: str
    """Compiler version, e.g. `13.5`."""
    autotune: str


@dataclass(frozen=True)
class TrialRecord:
    """One trial with everything needed to compare, trust and repeat it. Never changed once stored."""

    uid: str
    """Random hex; what makes merging the same file twice change nothing."""
    study: str
    """Name of the study, chosen by the user or derived from kernel, device and problem."""
    session: str
    """Random hex of one run of `search`; only times of one session are compared directly."""
    round: Round
    kernel: str
    kernel_hash: str
    """Hash of template, launch and arguments: a changed kernel never answers for the old one."""
    space_hash: str
    """Hash of parameters and constraints: a changed space marks an answer stale."""
    config: Config
    problem: Problem
    device: DeviceIdentity
    environment: Environment
    protocol: str
    """Key of the measurement protocol, e.g. `cold/normal-1/1`."""
    outcome: Outcome
    board: str
    """UUID of the board; empty where nothing ran on one."""
    created: datetime
    """UTC."""

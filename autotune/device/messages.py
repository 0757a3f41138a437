"""What the parent asks of a GPU's worker process, and what comes back: plain values that pickle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.candidate import BufferPlan, LaunchPlan, Runnable, ScalarPlan
from autotune.config import Value
from autotune.protocol import Protocol


@dataclass(frozen=True)
class Workload:
    """The buffers, values and expected result of a problem, apart from any kernel that solves it."""

    buffers: tuple[BufferPlan, ...]
    scalars: tuple[ScalarPlan, ...]
    reference: object
    data: str
    """`normal`, `uniform`, `ones`, `zeros`, or `nan` for inputs that must not be read."""
    seed: int
    facts: tuple[tuple[str, Value], ...] = ()
    """What the reference is told beside arrays and scalars, see `LaunchPlan.facts`."""

    @classmethod
    def of(cls, run: Runnable, protocol: Protocol, data: str = "") -> Workload:
        """The workload of one run under a protocol; `data` replaces the protocol's."""
        return cls.of_launch(run.launch, run.reference, protocol, data)

    @classmethod
    def of_launch(cls, launch: LaunchPlan, reference: object, protocol: Protocol, data: str = "") -> Workload:
        """The workload of a launch that need not be of one of our kernels."""
        scalars = tuple(argument for argument in launch.arguments if isinstance(argument, ScalarPlan))
        seed = protocol.data_seed
        return cls(launch.buffers, scalars, reference, data or protocol.data, seed, launch.facts)

    @property
    def values(self) -> Mapping[str, float | int]:
        """The scalars by name."""
        return {scalar.name: scalar.value for scalar in self.scalars}

    @property
    def known(self) -> Mapping[str, Value]:
        """What a reference gets beside the arrays, see `LaunchPlan.known`."""
        values = self.values
        return {**values, **{name: value for name, value in self.facts if name not in values}}


@dataclass(frozen=True)
class Hello:
    """Starts CUDA and says which board the worker has; the reply is `DeviceFacts`."""


@dataclass(frozen=True)
class ListDevices:
    """Asks for the facts of every CUDA device, without making a context on any."""


@dataclass(frozen=True)
class DeviceFacts:
    """One CUDA device in the driver's own words."""

    pci_bus_id: str
    uuid: str
    name: str
    compute_capability: tuple[int, int]
    sm_count: int
    memory_bytes: int
    memory_clock_khz: int
    memory_bus_bits: int
    clock_khz: int
    l2_bytes: int
    smem_per_sm_bytes: int
    smem_per_block_bytes: int
    smem_reserved_bytes: int
    registers_per_sm: int
    max_threads_per_sm: int
    max_threads_per_block: int
    max_blocks_per_sm: int
    watchdog: bool
    """Whether a display watchdog ends kernels that run for seconds."""


@dataclass(frozen=True)
class Prepare:
    """Generates a workload's data and its reference, which may take longer than any kernel's limit.

    The reply is all the workloads that the worker now holds, as a tuple: for those it need not be asked again.
    """

    workload: Workload


@dataclass(frozen=True)
class Verify:
    """Runs a kernel once on guarded buffers; the reply is its `Accuracy`."""

    run: Runnable
    workload: Workload


@dataclass(frozen=True)
class Measure:
    """Times a kernel; the reply is `Timed`."""

    run: Runnable
    workload: Workload
    protocol: Protocol
    best_ms: float | None = None


@dataclass(frozen=True)
class Routine:
    """A vendor library's way to compute the matrix product."""

    name: str
    """`cublas`, which chooses its algorithm itself, or `cublaslt`, which is given one."""
    algorithm: bytes = b""
    """cuBLASLt's opaque value, good for the problem and the alignment it was chosen for."""
    notes: tuple[str, ...] = ()
    """How the algorithm was chosen."""


CUBLAS = Routine("cublas")
CUBLASLT = "cublaslt"


@dataclass(frozen=True)
class Compare:
    """Times several kernels in turn; the reply is a list of `Timed` in the same order."""

    runs: tuple[Runnable, ...]
    workloads: tuple[Workload, ...]
    protocol: Protocol
    routines: tuple[Routine, ...] = ()
    """What runs along on the first workload; their times come behind those of the kernels."""


@dataclass(frozen=True)
class VerifyRoutine:
    """Runs a library's routine once on guarded buffers; the reply is its `Accuracy`."""

    routine: Routine
    workload: Workload


@dataclass(frozen=True)
class ChooseRoutine:
    """Measures what cuBLASLt's heuristic offers for a workload; the reply is a `RoutineChoice`."""

    workload: Workload
    protocol: Protocol
    count: int
    """Candidates to ask the heuristic for."""


@dataclass(frozen=True)
class RoutineChoice:
    """The fastest of cuBLASLt's candidates."""

    routine: Routine
    tried: tuple[tuple[str, float | None], ...]
    """What each candidate is and its time in ms, None for one that failed; in the heuristic's order."""


@dataclass(frozen=True)
class Baseline:
    """Times the vendor's matrix product on a workload; the reply is `VendorTime`."""

    workload: Workload
    protocol: Protocol


@dataclass(frozen=True)
class Inspect:
    """Asks the driver about a compiled kernel; the reply is `KernelFacts`."""

    run: Runnable


@dataclass(frozen=True)
class KernelFacts:
    """What the driver says of a loaded kernel and its launch."""

    blocks_per_sm: int
    registers: int
    static_smem_bytes: int
    local_bytes: int
    max_threads_per_block: int


@dataclass(frozen=True)
class Stats:
    """Asks what the worker holds; the reply is `WorkerStats`."""


@dataclass(frozen=True)
class WorkerStats:
    """Memory in use and what has been done so far."""

    device_used_bytes: int
    """On the whole device, other processes included."""
    rss_bytes: int
    requests: int

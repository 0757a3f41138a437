"""A legal configuration that is about to be tried, and the exact launch it needs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autotune.config import Config, Value
from autotune.gpu import GpuSpec
from autotune.problem import Problem
from autotune.records import Resources
from autotune.spec.kernel_spec import KernelSpec


@dataclass(frozen=True)
class Candidate:
    """What one trial is about."""

    spec: KernelSpec
    gpu: GpuSpec
    problem: Problem
    config: Config


@dataclass(frozen=True)
class Source:
    """One rendered kernel."""

    text: str
    entry: str
    """The function to fetch; an expression for the compiler's name look-up."""
    template: Path
    """The template's file; quoted includes are searched beside it."""


@dataclass(frozen=True)
class CompiledKernel:
    """Native code of one source for one architecture, in the cache."""

    key: str
    """Hash of source, includes, compiler version, flags and architecture."""
    image: Path
    """The cubin; the rendered source lies beside it as `kernel.cu`."""
    entry: str
    """The lowered name to look up in the cubin."""
    arch: str
    resources: Resources
    compiler: str
    """E.g. `nvrtc 13.5`."""
    compile_s: float


@dataclass(frozen=True)
class BufferPlan:
    """One array argument in memory: rows of `pitch` elements, starting `offset` elements past a 256-byte boundary.

    Where it lies `transposed`, the rows in memory are the columns of `shape`'s last two dimensions.
    """

    name: str
    role: str
    shape: tuple[int, ...]
    dtype: str
    pitch: int
    offset: int
    transposed: bool = False

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """The dimensions as they lie in memory, the contiguous one last."""
        return stored(self.shape, self.transposed)

    @property
    def stride(self) -> int:
        """Elements from one matrix of a batch to the next."""
        return self.stored_shape[-2] * self.pitch


def stored(shape: tuple[int, ...], transposed: bool) -> tuple[int, ...]:
    """The dimensions in memory of an array of this shape."""
    return (*shape[:-2], shape[-1], shape[-2]) if transposed else shape


@dataclass(frozen=True)
class ScalarPlan:
    """One argument passed by value; integers as `int32`, else in `dtype`."""

    name: str
    dtype: str
    value: float | int


@dataclass(frozen=True)
class ScratchPlan:
    """Device memory for one launch, zero before it and zero again after it; a null pointer where it has no bytes."""

    name: str
    nbytes: int


@dataclass(frozen=True)
class LaunchPlan:
    """Numbers of one launch; plain data that crosses to the worker process."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_smem_bytes: int
    arguments: tuple[BufferPlan | ScalarPlan | ScratchPlan, ...]
    """In the order of the kernel's signature."""
    facts: tuple[tuple[str, Value], ...] = ()
    """What a reference is told beside arrays and scalars: the problem's classes and the spec's constants."""

    @property
    def threads(self) -> int:
        """Threads per block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def empty(self) -> bool:
        """True where there is nothing to launch (a grid dimension is zero)."""
        return 0 in self.grid

    @property
    def buffers(self) -> tuple[BufferPlan, ...]:
        """The array arguments in order."""
        return tuple(argument for argument in self.arguments if isinstance(argument, BufferPlan))

    @property
    def known(self) -> dict[str, Value]:
        """What a reference gets beside the arrays: scalars by name, then the facts of other names."""
        values = {plan.name: plan.value for plan in self.arguments if isinstance(plan, ScalarPlan)}
        return {**values, **{name: value for name, value in self.facts if name not in values}}

    @property
    def scratch(self) -> ScratchPlan | None:
        """The scratch argument; None where there is none or where it has no bytes."""
        plans = (argument for argument in self.arguments if isinstance(argument, ScratchPlan))
        return next((plan for plan in plans if plan.nbytes), None)


@dataclass(frozen=True)
class Runnable:
    """All that verifying and measuring need: compiled code, its launch, and what is expected of it."""

    kernel: CompiledKernel
    launch: LaunchPlan
    problem: Problem
    reference: object
    """Name or importable callable, see `autotune.references`."""
    flops: float
    bytes: float

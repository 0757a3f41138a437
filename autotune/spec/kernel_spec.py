"""What a kernel is to the tuner: its template, problem, parameters, rules, launch and arguments.

These are plain values. `autotune.spec.load` reads them from a YAML file; building them in Python works the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from autotune.config import Config, Value
from autotune.expressions import Expression
from autotune.spec.names import check_distinct, check_kernel_name, checked_values


@dataclass(frozen=True)
class Parameter:
    """One tunable name with the values it may take, in the order declared."""

    name: str
    values: tuple[Value, ...]
    doc: str = ""

    def __post_init__(self) -> None:
        """Raises InputError where there are no values, two that are written alike, or one that cannot be a key."""
        object.__setattr__(self, "values", checked_values(self.values, self.name))


@dataclass(frozen=True)
class Rule:
    """A condition with its sentence: a constraint that must hold, or what makes a configuration unpromising."""

    rule: Expression
    because: str
    where: str = ""
    """`file:line`."""


@dataclass(frozen=True)
class ProblemClass:
    """A property of the call beside its sizes, e.g. `beta: [zero, general]`."""

    name: str
    values: tuple[Value, ...]
    default: Expression
    """Over sizes, pitches and the classes before it; the class a plain call of these sizes has."""


@dataclass(frozen=True)
class ProblemSpec:
    """The names of the sizes, the element type and the work of a problem."""

    sizes: tuple[str, ...]
    dtype: str
    flops: Expression
    """Over sizes and classes."""
    bytes: Expression
    """Compulsory traffic, each input read once and each output written once; over sizes and classes."""
    classes: tuple[ProblemClass, ...] = ()


@dataclass(frozen=True)
class ArrayArgument:
    """A pointer argument; `role` is `in`, `out` or `inout`."""

    name: str
    role: str
    shape: tuple[Expression, ...]
    """Over the sizes, and over classes where there is no pitch; row-major, the last dimension is contiguous."""
    dtype: str
    pitch: str = ""
    """Name of the leading dimension (elements from one row to the next); empty where rows are always packed."""
    align: str = ""
    """Name of the problem class that holds the alignment, in elements, of base pointer and pitch."""
    transposed: str = ""
    """Name of the problem class that is `t` where the last two dimensions lie exchanged in memory, else `n`."""
    stride: str = ""
    """Name of the distance in elements from one matrix of a batch to the next."""


@dataclass(frozen=True)
class ScalarArgument:
    """A value passed by itself; `value` is over sizes and classes."""

    name: str
    dtype: str
    value: Expression


@dataclass(frozen=True)
class SizeArgument:
    """A problem size passed as a 32-bit integer."""

    name: str


@dataclass(frozen=True)
class PitchArgument:
    """A leading dimension passed as a 32-bit integer; `name` is the `pitch` of an array argument."""

    name: str


@dataclass(frozen=True)
class StrideArgument:
    """A distance between the matrices of a batch passed as a 64-bit integer; `name` is the `stride` of an array."""

    name: str


@dataclass(frozen=True)
class ScratchArgument:
    """A pointer to device memory that is zero when the kernel starts and that the kernel leaves zero."""

    name: str
    bytes: Expression
    """Over all names that a launch may use; where it is 0 the pointer is null."""


Argument = ArrayArgument | ScalarArgument | SizeArgument | PitchArgument | StrideArgument | ScratchArgument


@dataclass(frozen=True)
class Start:
    """A configuration to begin with where nothing has been measured."""

    name: str
    when: Expression
    """Over sizes, classes and GPU names: which problems it is for."""
    config: Mapping[str, Value]
    """What differs from the defaults."""


@dataclass(frozen=True)
class LaunchSpec:
    """Grid and block (1 to 3 expressions each) and the dynamic shared memory in bytes."""

    grid: tuple[Expression, ...]
    block: tuple[Expression, ...]
    smem: Expression


@dataclass(frozen=True)
class SharedAccess:
    """Where each lane of a warp touches shared memory, to count bank conflicts without a GPU."""

    name: str
    address: Expression
    """Word (4-byte) address, over `lane`, parameters and derived names."""
    width: Expression
    """Consecutive words per lane: 1, 2 or 4."""


@dataclass(frozen=True)
class KernelSpec:
    """Everything the tuner knows about one kernel."""

    name: str
    template: str
    """Path below a `templates` folder."""
    entry: str
    """The function's name in the rendered source (`extern "C"`, or any C++ name whose lowered name is looked up)."""
    problem: ProblemSpec
    parameters: tuple[Parameter, ...]
    defaults: Mapping[str, Value]
    derived: Mapping[str, Expression]
    """In order; each may use parameters, GPU names and the derived names before it. The framework reads `threads`,
    `smem_bytes` (dynamic, per block) and, where given, `registers` (estimate per thread)."""
    constraints: tuple[Rule, ...]
    launch: LaunchSpec
    arguments: tuple[Argument, ...]
    """In the order of the kernel's signature."""
    reference: str | Callable[..., object]
    """Name in `autotune.references`, or an importable Python callable."""
    gpu_defaults: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    """By GPU table name: what differs from `defaults` there."""
    variants: Mapping[str, Expression] = field(default_factory=dict)
    """Constants the problem adds to the configuration (vector width allowed, guards, beta); over parameters, derived
    names, sizes and classes. Each distinct combination is compiled once."""
    unpromising: tuple[Rule, ...] = ()
    """Legal but probably slow where the rule holds: ranked last, with the reason."""
    metrics: Mapping[str, Expression] = field(default_factory=dict)
    """Over `flops`, `bytes`, `time_ns`, sizes and classes; e.g. `gflops: flops / time_ns`."""
    shared_accesses: tuple[SharedAccess, ...] = ()
    constants: Mapping[str, Value] = field(default_factory=dict)
    """Fixed values for the template, variants, launch and cost, which a spec that extends this one may replace."""
    starts: tuple[Start, ...] = ()
    """In order of preference, see `autotune.starts`."""
    cost: Mapping[str, Expression] = field(default_factory=dict)
    """Inputs of the performance model, see `autotune.model`; over parameters, derived names, sizes and classes."""
    source_file: Path | None = None
    """The YAML file, for messages."""
    folders: tuple[Path, ...] = ()
    """Project folders that come before the shipped one when templates are looked up."""

    def __post_init__(self) -> None:
        """Raises InputError where a name cannot be one, or stands for two things."""
        check_kernel_name(self.name)
        check_distinct(
            [
                ("problem.sizes", self.problem.sizes),
                ("problem.classes", [kind.name for kind in self.problem.classes]),
                ("parameters", self.parameter_names),
                ("derived", self.derived),
                ("variants", self.variants),
                ("constants", self.constants),
            ]
        )

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names in the declared order."""
        return tuple(parameter.name for parameter in self.parameters)

    def default_config(self, gpu_table: str) -> Config:
        """The defaults on one GPU, in the order of the parameters; not necessarily legal for a problem."""
        first = {parameter.name: parameter.values[0] for parameter in self.parameters}
        values = {**first, **self.defaults, **self.gpu_defaults.get(gpu_table, {})}
        return Config.of({name: values[name] for name in self.parameter_names})

    @property
    def scratch(self) -> ScratchArgument | None:
        """The scratch argument, where there is one."""
        return next((each for each in self.arguments if isinstance(each, ScratchArgument)), None)

    @property
    def arrays(self) -> tuple[ArrayArgument, ...]:
        """The pointer arguments in order."""
        return tuple(argument for argument in self.arguments if isinstance(argument, ArrayArgument))

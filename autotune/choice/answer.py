"""What the best configuration is wanted for, and what an answer holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.config import Config
from autotune.errors import NothingFound
from autotune.gpu import GpuSpec
from autotune.problem import Problem
from autotune.protocol import Protocol
from autotune.records import Environment, Origin, TrialRecord
from autotune.spec.kernel_spec import KernelSpec
from autotune.starts import DEFAULTS
from autotune.store import Store

if TYPE_CHECKING:
    from autotune.model.pick import Pick


class Match(StrEnum):
    """How an answer relates to what was asked."""

    EXACT = "exact"
    SELECTED = "selected"
    NEAREST = "nearest"
    PREDICTED = "predicted"
    DEFAULT = "default"


class Layer(StrEnum):
    """Whose result an answer is."""

    OWN = "own"
    SHIPPED = "shipped"


@dataclass(frozen=True)
class Question:
    """What the best configuration is wanted for."""

    kernel: str
    kernel_hash: str
    space_hash: str
    device: str
    """`DeviceIdentity.key`."""
    problem: Problem
    protocol: str
    """`Protocol.key`."""
    environment: Environment | None = None
    """What is installed now; None where that is unknown, and then never stale on that account."""
    default: Config | None = None
    default_name: str = DEFAULTS
    """Which of the spec's starts the default is."""
    usable: Callable[[Config], bool] = lambda config: True
    """Whether the kernel can run a configuration on this problem."""
    select: Callable[[Store | None, Sequence[Path]], Pick | None] = lambda store, folders: None
    """What the model picks for the problem; None where too little is recorded near it."""

    @classmethod
    def of(
        cls,
        spec: KernelSpec,
        gpu: GpuSpec,
        problem: Problem,
        environment: Environment | None = None,
        protocol: Protocol | None = None,
    ) -> Question:
        """What is asked when a spec is to solve a problem on a GPU; the default is what `autotune.starts` gives.

        Raises InputError for a problem beyond the GPU's memory that has no legal configuration, else NothingFound.
        """
        from autotune.choice.learned import model_of
        from autotune.launch import check_call
        from autotune.legality import violations
        from autotune.model.measurements import Place
        from autotune.model.pick import pick
        from autotune.render import kernel_hash
        from autotune.spec.load import space_hash
        from autotune.starts import starting_point

        names = spec.parameter_names
        try:
            start = starting_point(spec, gpu, problem)
        except NothingFound:
            check_call(spec, problem, gpu)  # says why where no kernel could solve the problem
            raise
        protocol_key = (protocol or Protocol()).key

        def usable(config: Config) -> bool:
            return tuple(config) == names and not violations(spec, gpu, problem, config)

        def select(store: Store | None, folders: Sequence[Path]) -> Pick | None:
            place = Place(gpu, problem, kernel_hash(spec), protocol_key)
            return pick(model_of(store, spec, gpu, folders), place, usable, [start.config])

        return cls(
            kernel=spec.name,
            kernel_hash=kernel_hash(spec),
            space_hash=space_hash(spec),
            device=gpu.identity.key,
            problem=problem,
            protocol=protocol_key,
            environment=environment,
            default=start.config,
            default_name=start.name,
            usable=usable,
            select=select,
        )


@dataclass(frozen=True)
class Answer:
    """The best configuration known, and what that rests on."""

    config: Config
    match: Match
    why: str
    """How it was found, as one sentence."""
    record: TrialRecord | None = None
    """The trial behind it; None for a default and for `selected`. For `nearest` it is about another problem."""
    layer: Layer | None = None
    distance: float = 0.0
    """Octaves between the problem asked for and the nearest measured; 0 unless `nearest` or `selected`."""
    predicted_ms: float | None = None
    """What the model foretells; only for `selected`."""
    staleness: tuple[str, ...] = ()
    """What has changed since it was measured, one sentence each; empty for a current answer."""
    ties: tuple[Config, ...] = ()
    """Other configurations that cannot be told from it."""

    @property
    def origin(self) -> Origin | None:
        """Where the figure comes from; None for a default."""
        if self.predicted_ms is not None:
            return Origin.PREDICTED
        return self.record.outcome.origin if self.record else None

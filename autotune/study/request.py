"""What a study is asked for, and what it gives."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from autotune.gpu import GpuSpec
from autotune.problem import Problem
from autotune.protocol import Protocol
from autotune.records import DeviceIdentity, Environment, Status, TrialRecord
from autotune.space.search_space import SearchSpace
from autotune.spec.kernel_spec import KernelSpec
from autotune.study.progress import Occupation

if TYPE_CHECKING:
    from autotune.model.fitted import FittedModel


@dataclass(frozen=True)
class StudyRequest:
    """One kernel on one GPU for one problem, and how much to spend on it."""

    spec: KernelSpec
    gpu: GpuSpec
    problem: Problem
    device: DeviceIdentity
    environment: Environment
    study: str
    """The name under which another run continues this one."""
    protocol: Protocol = field(default_factory=Protocol)
    trials: int | None = None
    """Measured configurations of the study in all; None for no limit."""
    time_s: float | None = None
    """Seconds of this run; None for no limit."""
    strategy: str = "auto"
    seed: int = 0
    board: str = ""
    """UUID of the board that measures; empty where none does."""
    space: SearchSpace | None = None
    """Where to search; None for all that the spec's rules and the GPU's limits allow."""
    model: FittedModel | None = None
    """What ranks configurations before they are tried; None for the closed form."""
    session: str = field(default_factory=lambda: uuid.uuid4().hex)


@dataclass(frozen=True)
class StudyResult:
    """What a run of a study came to."""

    request: StudyRequest
    best: TrialRecord | None
    """The fastest, from the final round where there was one; None where nothing has a time."""
    records: tuple[TrialRecord, ...]
    """All that this run added, in order."""
    counts: Mapping[Status, int]
    """The search trials of this run by status."""
    measured: int
    """Distinct configurations with a time in the whole study, earlier runs and other workers included."""
    legal: int
    """Size of the legal space."""
    exhausted: bool
    """True where every legal configuration has been tried."""
    interrupted: bool
    ties: tuple[TrialRecord, ...] = ()
    """Others that cannot be told from the best: closer than the spread of the samples or 1%."""
    baseline: tuple[TrialRecord, ...] = ()
    """The vendor library's routine in this session."""
    occupation: Occupation = field(default_factory=Occupation)
    """How busy GPU and compilers were during the search."""
    notes: tuple[str, ...] = ()
    """Why the run ended and what else a user should know."""

    @classmethod
    def empty(cls, request: StudyRequest, note: str) -> StudyResult:
        """The result of a study that came to nothing, and why."""
        return cls(
            request, None, (), {}, measured=0, legal=0, exhausted=False, interrupted=False, notes=(note,)
        )

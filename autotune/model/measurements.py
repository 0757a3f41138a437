"""Recorded trials as a matrix: what each configuration took at each place, that is a GPU, a problem and a protocol."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import median

import numpy as np

from autotune.columns import Array
from autotune.config import Config
from autotune.errors import InputError
from autotune.gpu import GpuSpec
from autotune.gpu_tables import find_gpu
from autotune.legality import violations
from autotune.problem import Problem, octaves
from autotune.problems import make_problem
from autotune.records import Origin, Resources, Round, TrialRecord
from autotune.spec.kernel_spec import KernelSpec

CLASS_APART = 0.5
"""Octaves that a problem class of another value counts as."""
GPU_APART = 2.0
HASH_APART = 0.5
"""Likewise another version of the kernel."""
PROTOCOL_APART = 0.5
SHORTEST_MS = 1e-6
"""A clock that ticks too coarsely may read zero."""


@dataclass(frozen=True)
class Place:
    """Where times were taken; those of one place are compared with each other."""

    gpu: GpuSpec
    problem: Problem
    kernel_hash: str
    protocol: str

    def apart(self, other: Place) -> float:
        """How unlike another place is, in octaves of size."""
        distance = octaves(dict(self.problem.sizes), dict(other.problem.sizes))
        mine = self.problem.classes
        distance += CLASS_APART * sum(
            one != two for one, two in zip(mine, other.problem.classes, strict=True)
        )
        distance += GPU_APART * (self.gpu.identity.key != other.gpu.identity.key)
        distance += HASH_APART * (self.kernel_hash != other.kernel_hash)
        return distance + PROTOCOL_APART * (self.protocol != other.protocol)


@dataclass(frozen=True)
class Measurements:
    """A matrix of logarithms of times, with gaps."""

    places: tuple[Place, ...]
    configs: tuple[Config, ...]
    log_ms: Array
    """[configs, places]; not a number where there is no time."""
    resources: Mapping[tuple[Config, str], Resources]
    """By configuration and GPU."""
    failed: frozenset[Config] = frozenset()
    """Those that failed somewhere."""

    @property
    def count(self) -> int:
        """How many times there are."""
        return int(np.isfinite(self.log_ms).sum())

    def resources_of(self, configs: Sequence[Config], gpu: GpuSpec) -> list[Resources | None]:
        """What the compiler said of each; None where it was not asked."""
        return [self.resources.get((config, gpu.identity.key)) for config in configs]

    def rows(self, place: int) -> Array:
        """Which configurations have a time at a place."""
        return np.flatnonzero(np.isfinite(self.log_ms[:, place]))

    def keeping(self, places: Sequence[int]) -> Measurements:
        """Those of some places alone, with the configurations that have a time there."""
        log_ms = self.log_ms[:, list(places)]
        rows = np.flatnonzero(np.isfinite(log_ms).any(axis=1))
        return Measurements(
            tuple(self.places[place] for place in places),
            tuple(self.configs[row] for row in rows),
            log_ms[rows],
            self.resources,
            self.failed,
        )

    def without(self, configs: frozenset[Config]) -> Measurements:
        """Less some configurations, and places where no other has a time."""
        rows = [row for row, config in enumerate(self.configs) if config not in configs]
        log_ms = self.log_ms[rows]
        places = np.flatnonzero(np.isfinite(log_ms).any(axis=0))
        return Measurements(
            tuple(self.places[place] for place in places),
            tuple(self.configs[row] for row in rows),
            log_ms[:, places],
            self.resources,
            self.failed,
        )


def measurements(records: Iterable[TrialRecord], spec: KernelSpec, gpu: GpuSpec) -> Measurements:
    """The measured times of a kernel, on any GPU that has a table; medians where there are several.

    Records that lack parameters or classes which the spec has gained stand for its defaults; those of
    configurations or problems that the spec no longer allows are left out, and so are predictions and replays.
    """
    reader = _Reader(spec, gpu)
    columns: dict[Place, int] = {}
    rows: dict[Config, int] = {}
    times: dict[tuple[int, int], list[float]] = defaultdict(list)
    resources: dict[tuple[Config, str], Resources] = {}
    failed: set[Config] = set()
    for record in records:
        if record.kernel != spec.name or record.round is Round.BASELINE:
            continue
        if record.outcome.origin is not Origin.MEASURED:
            continue
        place = reader.place(record)
        config = reader.config(record, place) if place else None
        if place is None or config is None:
            continue
        if record.outcome.resources is not None:
            resources[config, place.gpu.identity.key] = record.outcome.resources
        time_ms = record.outcome.time_ms
        if time_ms is None:
            failed.add(config)
        else:
            cell = rows.setdefault(config, len(rows)), columns.setdefault(place, len(columns))
            times[cell].append(max(time_ms, SHORTEST_MS))
    log_ms = np.full((len(rows), len(columns)), np.nan)
    for cell, values in times.items():
        log_ms[cell] = math.log(median(values))
    return Measurements(tuple(columns), tuple(rows), log_ms, resources, frozenset(failed))


class _Reader:
    """Brings records to the spec's present parameters and classes; remembers what it has worked out."""

    def __init__(self, spec: KernelSpec, gpu: GpuSpec) -> None:
        self._spec = spec
        self._names = spec.parameter_names
        self._gpus: dict[str, GpuSpec | None] = {gpu.identity.key: gpu}
        self._places: dict[tuple[str, str, str, str], Place | None] = {}
        self._configs: dict[tuple[Config, str, str], Config | None] = {}

    def place(self, record: TrialRecord) -> Place | None:
        """Where the record was made; None where the GPU is unknown or the spec has no such problems."""
        key = (record.device.key, record.problem.key, record.kernel_hash, record.protocol)
        if key not in self._places:
            gpu = self._gpu(record)
            problem = self._problem(record.problem)
            self._places[key] = (
                Place(gpu, problem, record.kernel_hash, record.protocol) if gpu and problem else None
            )
        return self._places[key]

    def config(self, record: TrialRecord, place: Place) -> Config | None:
        """The record's configuration with the spec's parameters; None where the spec does not allow it."""
        if tuple(record.config) == self._names:
            return record.config
        key = (record.config, place.gpu.identity.key, place.problem.key)
        if key not in self._configs:
            self._configs[key] = self._completed(record.config, place)
        return self._configs[key]

    def _completed(self, config: Config, place: Place) -> Config | None:
        if not set(config) <= set(self._names):
            return None
        default = Config.of(dict(self._spec.default_config("")))
        full = default.replace(dict(config))
        return None if violations(self._spec, place.gpu, place.problem, full) else full

    def _gpu(self, record: TrialRecord) -> GpuSpec | None:
        key = record.device.key
        if key not in self._gpus:
            self._gpus[key] = None
            with suppress(InputError):
                gpu = find_gpu(record.device.table)
                self._gpus[key] = gpu if gpu.identity.key == key else None
        return self._gpus[key]

    def _problem(self, problem: Problem) -> Problem | None:
        known = {kind.name for kind in self._spec.problem.classes}
        if tuple(name for name, _ in problem.sizes) != self._spec.problem.sizes:
            return None
        if not set(dict(problem.classes)) <= known or problem.dtype != self._spec.problem.dtype:
            return None
        with suppress(InputError):
            sizes = tuple(size for _, size in problem.sizes)
            return make_problem(self._spec, sizes, classes=dict(problem.classes))
        return None

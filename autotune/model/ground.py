"""Measured times side by side with what the closed form needs for them: what a model is fitted on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autotune.columns import Array
from autotune.gpu import GpuSpec
from autotune.model.closed_form import Prepared, prepare_all
from autotune.model.features import lasting
from autotune.model.measurements import Measurements, Place, measurements
from autotune.model.terms import RooflineTerms, StepTerms, joined, taken
from autotune.records import TrialRecord
from autotune.spec.kernel_spec import KernelSpec


@dataclass(frozen=True)
class Table:
    """A row for each time, place by place."""

    places: Array
    """Number of the place."""
    configs: Array
    """Row of the configuration in the measurements."""
    log_ms: Array
    waves: Array
    """Binary logarithm of how often the grid fills the GPU."""
    terms: StepTerms | RooflineTerms
    features: Mapping[str, Array]
    """Those that the constants have no part in."""

    def taken(self, rows: Array) -> Table:
        """Some of the rows."""
        return Table(
            self.places[rows],
            self.configs[rows],
            self.log_ms[rows],
            self.waves[rows],
            taken(self.terms, rows),
            {name: column[rows] for name, column in self.features.items()},
        )


@dataclass(frozen=True)
class Ground:
    """Measurements of one kernel, and what the closed form takes for them."""

    spec: KernelSpec
    gpu: GpuSpec
    """The one that is asked about; the measurements may be of others."""
    measured: Measurements
    table: Table | None
    """None where there is no time, and in a model that was kept: predicting has no use for it."""

    @classmethod
    def of(cls, records: Iterable[TrialRecord], spec: KernelSpec, gpu: GpuSpec) -> Ground:
        """What records say of a kernel; `gpu` need not be among them."""
        return cls.on(measurements(records, spec, gpu), spec, gpu)

    @classmethod
    def on(cls, measured: Measurements, spec: KernelSpec, gpu: GpuSpec) -> Ground:
        """The same from measurements."""
        numbers: dict[str, list[int]] = {}
        for number, place in enumerate(measured.places):
            numbers.setdefault(place.gpu.identity.key, []).append(number)
        parts = [_table(measured, spec, on_one_gpu) for on_one_gpu in numbers.values()]
        return cls(spec, gpu, measured, _joined(parts) if parts else None)

    def keeping(self, places: Sequence[int]) -> Ground:
        """What is left of it with some of the places alone, in the same order."""
        assert list(places) == sorted(places)
        rest = None
        if self.table and places:
            kept = self.table.taken(np.flatnonzero(np.isin(self.table.places, places)))
            order = np.unique(kept.configs)
            rest = replace(
                kept,
                places=np.searchsorted(places, kept.places),
                configs=np.searchsorted(order, kept.configs),
            )
        return Ground(self.spec, self.gpu, self.measured.keeping(places), rest)

    def log_ms(self, place: int) -> Array:
        """Logarithms of the times at a place, in the order of its rows."""
        return np.asarray(self.measured.log_ms[self.measured.rows(place), place])

    def apart(self, place: Place) -> Array:
        """Octaves from each of the places to another."""
        return np.array([one.apart(place) for one in self.measured.places])


def waves(prepared: Prepared, gpu: GpuSpec) -> Array:
    """Binary logarithm of how often the grid fills the GPU."""
    slots = gpu.sm_count * prepared.use.blocks_per_sm
    return np.asarray(np.log2(np.maximum(prepared.terms.blocks, 1) / slots))


def _table(measured: Measurements, spec: KernelSpec, numbers: Sequence[int]) -> Table:
    """The times at some places, all on one GPU, that have at least one each."""
    gpu = measured.places[numbers[0]].gpu
    rows = [measured.rows(number) for number in numbers]
    problems = [
        (measured.places[number].problem, len(some)) for number, some in zip(numbers, rows, strict=True)
    ]
    order = np.concatenate(rows)
    configs = [measured.configs[row] for row in order]
    prepared = prepare_all(spec, gpu, problems, configs, measured.resources_of(configs, gpu))
    places = np.repeat(numbers, [len(some) for some in rows])
    return Table(
        places,
        order,
        measured.log_ms[order, places],
        waves(prepared, gpu),
        prepared.terms,
        lasting(spec, prepared),
    )


def _joined(parts: Sequence[Table]) -> Table:
    """Tables of several GPUs as one, place by place."""
    if len(parts) == 1:
        return parts[0]
    # What a spec derives may be a number on one GPU and a text on another.
    names = [name for name in parts[0].features if all(name in part.features for part in parts)]
    whole = Table(
        np.concatenate([part.places for part in parts]),
        np.concatenate([part.configs for part in parts]),
        np.concatenate([part.log_ms for part in parts]),
        np.concatenate([part.waves for part in parts]),
        joined([part.terms for part in parts]),
        {name: np.concatenate([part.features[name] for part in parts]) for name in names},
    )
    return whole.taken(np.argsort(whole.places, kind="stable"))

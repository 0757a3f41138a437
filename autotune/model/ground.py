"""Measured times side by side with what the closed form needs for them: what a model is fitted on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.columns import Array
from autotune.gpu import GpuSpec
from autotune.model.closed_form import Prepared, prepare
from autotune.model.measurements import Measurements, Place, measurements
from autotune.records import TrialRecord
from autotune.spec.kernel_spec import KernelSpec


@dataclass(frozen=True)
class Ground:
    """Measurements of one kernel, prepared place by place."""

    spec: KernelSpec
    gpu: GpuSpec
    """The one that is asked about; the measurements may be of others."""
    measured: Measurements
    prepared: tuple[Prepared, ...]
    """By place: its rows in order."""

    @classmethod
    def of(cls, records: Iterable[TrialRecord], spec: KernelSpec, gpu: GpuSpec) -> Ground:
        """What records say of a kernel; `gpu` need not be among them."""
        return cls.on(measurements(records, spec, gpu), spec, gpu)

    @classmethod
    def on(cls, measured: Measurements, spec: KernelSpec, gpu: GpuSpec) -> Ground:
        """The same from measurements."""
        prepared = []
        for number, place in enumerate(measured.places):
            configs = [measured.configs[row] for row in measured.rows(number)]
            resources = measured.resources_of(configs, place.gpu)
            prepared.append(prepare(spec, place.gpu, place.problem, configs, resources))
        return cls(spec, gpu, measured, tuple(prepared))

    def keeping(self, places: Sequence[int]) -> Ground:
        """What is left of it with some of the places alone."""
        kept = self.measured.keeping(places)
        return Ground(self.spec, self.gpu, kept, tuple(self.prepared[place] for place in places))

    def log_ms(self, place: int) -> Array:
        """Logarithms of the times at a place, in the order of its rows."""
        return np.asarray(self.measured.log_ms[self.measured.rows(place), place])

    def fill(self) -> Array:
        """[configs, places]: binary logarithms of waves; 0 where there is no time."""
        table = np.zeros(self.measured.log_ms.shape)
        for place, prepared in enumerate(self.prepared):
            table[self.measured.rows(place), place] = waves(prepared, self.measured.places[place])
        return table

    def apart(self, place: Place) -> Array:
        """Octaves from each of the places to another."""
        return np.array([one.apart(place) for one in self.measured.places])


def waves(prepared: Prepared, place: Place) -> Array:
    """Binary logarithm of how often the grid fills the GPU."""
    slots = place.gpu.sm_count * prepared.use.blocks_per_sm
    return np.asarray(np.log2(np.maximum(prepared.terms.blocks, 1) / slots))

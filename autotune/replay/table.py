"""A table of recorded trials: what every configuration of a space came to on one device for one problem."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property

import numpy as np

from autotune.columns import Array
from autotune.config import Config, Value
from autotune.problem import Problem
from autotune.protocol import Protocol
from autotune.records import (
    DeviceIdentity,
    Environment,
    Origin,
    Outcome,
    Round,
    TrialRecord,
)
from autotune.space.listed import ListedSpace
from autotune.spec.kernel_spec import Parameter

PROTOCOL = Protocol(mode="replayed", data="recorded", data_seed=0)
"""Stands in imported records: how their samples were taken is another matter than our own protocols."""
UNKNOWN_DATE = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Entry:
    """One row: a configuration with what became of it."""

    config: Config
    outcome: Outcome
    """With all samples recorded; of replayed origin."""
    time_ms: float
    """What the table gives as its time, a mean or a median; not a number where it failed."""
    created: datetime = UNKNOWN_DATE

    @property
    def text(self) -> str:
        """All that was recorded on one line: equal rows are the same row, whichever file they come from."""
        measurement = self.outcome.measurement
        samples = measurement.samples_ms if measurement else ()
        return f"{self.config.key} {self.outcome.status} {self.outcome.reason} {samples}"


@dataclass(frozen=True)
class Table:
    """Recorded trials of one kernel on one device for one problem; its space is exactly its configurations."""

    name: str
    kernel: str
    kernel_hash: str
    device: DeviceIdentity
    problem: Problem
    environment: Environment
    parameters: tuple[Parameter, ...]
    """With the values that occur."""
    entries: tuple[Entry, ...]

    def __len__(self) -> int:
        return len(self.entries)

    @cached_property
    def space(self) -> ListedSpace:
        """The configurations, failed ones included, as a search space."""
        return ListedSpace(self.parameters, [entry.config for entry in self.entries])

    @cached_property
    def rows(self) -> dict[str, int]:
        """Where each configuration stands, by its key."""
        return {entry.config.key: row for row, entry in enumerate(self.entries)}

    @cached_property
    def protocol(self) -> Protocol:
        """Stands in the records of searches: what was found in other times, maybe of an earlier state of the same
        file, is not gone on from.
        """
        text = "\n".join(f"{entry.text} {entry.time_ms}" for entry in self.entries)
        return replace(PROTOCOL, data_seed=int(_digest(text)[:12], 16))

    @cached_property
    def times_ms(self) -> Array:
        """The time of each row; not a number where it failed."""
        return np.array([entry.time_ms for entry in self.entries], dtype=np.float64)

    @cached_property
    def sorted_ms(self) -> Array:
        """The times there are, fastest first."""
        return np.sort(self.times_ms[np.isfinite(self.times_ms)])

    def row(self, config: Config) -> int:
        """Where a configuration stands; raises KeyError for one that was never recorded."""
        return self.rows[config.key]

    def records(self, study: str = "") -> list[TrialRecord]:
        """The rows as trial records of replayed origin; the same table always gives the same ones."""
        identity = "\n".join(
            (self.kernel, self.kernel_hash, self.device.key, self.device.name, self.problem.key)
        )
        session = _digest(identity)
        space_hash = _digest(repr(self.parameters))
        return [
            TrialRecord(
                uid=_digest(f"{identity}\n{entry.text}"),
                study=study or self.name,
                session=session,
                round=Round.SEARCH,
                kernel=self.kernel,
                kernel_hash=self.kernel_hash,
                space_hash=space_hash,
                config=entry.config,
                problem=self.problem,
                device=self.device,
                environment=self.environment,
                protocol=PROTOCOL.key,
                outcome=entry.outcome,
                board="",
                created=entry.created,
            )
            for entry in self.entries
        ]


def tables_of_records(records: Iterable[TrialRecord], name: str) -> list[Table]:
    """One table per kernel, device, problem and protocol of recorded searches, in the order met.

    Predictions are left out, since they tell nothing of the device. Of several trials of a configuration the last
    that got a time stands.
    """
    groups: dict[tuple[str, ...], dict[Config, TrialRecord]] = {}
    for record in records:
        if record.round is not Round.SEARCH or record.outcome.origin is Origin.PREDICTED:
            continue
        key = (record.kernel, record.kernel_hash, record.device.key, record.problem.key, record.protocol)
        group = groups.setdefault(key, {})
        if record.outcome.status.timed or record.config not in group:
            group[record.config] = record
    tables: list[Table] = []
    for group in groups.values():
        first = next(iter(group.values()))
        # A study whose parameters changed meanwhile holds configs of several spaces: the last one's are kept.
        names = tuple(next(reversed(group.values())).config)
        kept = [record for record in group.values() if tuple(record.config) == names]
        entries = tuple(_entry(record) for record in kept)
        label = f"{name} {first.problem.label}" if len(groups) > 1 else name
        label += _suffix(label, [table.name for table in tables])
        parameters = parameters_of([entry.config for entry in entries])
        tables.append(
            Table(
                label,
                first.kernel,
                first.kernel_hash,
                first.device,
                first.problem,
                first.environment,
                parameters,
                entries,
            )
        )
    return tables


def parameters_of(configs: Sequence[Config]) -> tuple[Parameter, ...]:
    """The parameters with the values that occur: numbers in their order, others as first met."""
    return tuple(Parameter(name, _in_order([config[name] for config in configs])) for name in configs[0])


def _in_order(values: Sequence[Value]) -> tuple[Value, ...]:
    distinct = list({repr(value): value for value in values}.values())
    if all(isinstance(value, int | float) for value in distinct):
        distinct.sort(key=lambda value: (isinstance(value, bool), value))
    return tuple(distinct)


def _suffix(label: str, taken: Sequence[str]) -> str:
    """Tells tables of one size apart, which differ in kernel, device, classes or protocol."""
    number = sum(name == label or name.startswith(f"{label} #") for name in taken) + 1
    return f" #{number}" if number > 1 else ""


def _entry(record: TrialRecord) -> Entry:
    outcome = replace(record.outcome, origin=Origin.REPLAYED)
    time_ms = outcome.time_ms
    return Entry(record.config, outcome, float("nan") if time_ms is None else time_ms, record.created)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

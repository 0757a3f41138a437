"""Which records are wanted."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime

from sqlalchemy import ColumnElement

from autotune.records import Origin, Round, Status
from autotune.store.models import DeviceRow, ProblemRow, TrialRow


@dataclass(frozen=True)
class RecordQuery:
    """Every field that is given must match; an empty query matches all."""

    study: str | None = None
    session: str | None = None
    kernel: str | None = None
    kernel_hash: str | None = None
    device: str | None = None
    """`DeviceIdentity.key`."""
    problem: str | None = None
    """`Problem.key`."""
    protocol: str | None = None
    """`Protocol.key`."""
    status: Status | None = None
    origin: Origin | None = None
    round: Round | None = None
    before: datetime | None = None
    """Made before this moment."""

    @property
    def empty(self) -> bool:
        """Whether every record matches."""
        return all(getattr(self, field.name) is None for field in fields(self))

    def conditions(self) -> list[ColumnElement[bool]]:
        """For a select over trials joined with devices and problems."""
        columns = {
            TrialRow.study: self.study,
            TrialRow.session: self.session,
            TrialRow.kernel: self.kernel,
            TrialRow.kernel_hash: self.kernel_hash,
            DeviceRow.key: self.device,
            ProblemRow.key: self.problem,
            TrialRow.protocol: self.protocol,
            TrialRow.status: self.status,
            TrialRow.origin: self.origin,
            TrialRow.round: self.round,
        }
        conditions = [column == str(value) for column, value in columns.items() if value is not None]
        if self.before is not None:
            conditions.append(TrialRow.created < self.before)
        return conditions

"""The tables. All names start with `autotune_`: another program's tables may live in the same database.

    autotune_trials ──> autotune_problems, autotune_devices, autotune_environments, autotune_configs
    autotune_writers    who has a SQLite file open for writing

What trials share (problem, device, environment, config) is stored once, under a digest of its content: the
same everywhere, so that inserting needs no look-up and merging no renumbering.
"""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import JSON, DateTime, Dialect, Float, ForeignKey, Index, Integer, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

Json = dict[str, object]


class UtcDateTime(TypeDecorator[datetime]):
    """A moment, aware and in UTC: SQLite has no time zones, and PostgreSQL answers in the session's."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """UTC, without the zone where the backend cannot keep it."""
        if value is None:
            return None
        utc = value.astimezone(UTC)
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """The moment in UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Base(DeclarativeBase):
    """Holds the metadata of all the tables."""


class ProblemRow(Base):
    """One problem; `body` is its JSON, `key` the text it is looked up by."""

    __tablename__ = "autotune_problems"
    digest: Mapped[str] = mapped_column(Text, primary_key=True)
    key: Mapped[str] = mapped_column(Text, index=True)
    body: Mapped[str] = mapped_column(Text)


class DeviceRow(Base):
    """One kind of device; interchangeable boards share its key."""

    __tablename__ = "autotune_devices"
    digest: Mapped[str] = mapped_column(Text, primary_key=True)
    key: Mapped[str] = mapped_column(Text, index=True)
    body: Mapped[str] = mapped_column(Text)


class EnvironmentRow(Base):
    """One set of software versions."""

    __tablename__ = "autotune_environments"
    digest: Mapped[str] = mapped_column(Text, primary_key=True)
    body: Mapped[str] = mapped_column(Text)


class ConfigRow(Base):
    """One configuration, names in order and types kept."""

    __tablename__ = "autotune_configs"
    digest: Mapped[str] = mapped_column(Text, primary_key=True)
    body: Mapped[str] = mapped_column(Text)


class TrialRow(Base):
    """One trial. Rows are added, never changed."""

    __tablename__ = "autotune_trials"
    __table_args__ = (
        Index("autotune_trials_lookup", "kernel", "device", "problem", "protocol"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=True)
    uid: Mapped[str] = mapped_column(Text, unique=True)
    study: Mapped[str] = mapped_column(Text, index=True)
    session: Mapped[str] = mapped_column(Text)
    round: Mapped[str] = mapped_column(Text)
    kernel: Mapped[str] = mapped_column(Text)
    kernel_hash: Mapped[str] = mapped_column(Text)
    space_hash: Mapped[str] = mapped_column(Text)
    config: Mapped[str] = mapped_column(ForeignKey("autotune_configs.digest"))
    problem: Mapped[str] = mapped_column(ForeignKey("autotune_problems.digest"))
    device: Mapped[str] = mapped_column(ForeignKey("autotune_devices.digest"))
    environment: Mapped[str] = mapped_column(ForeignKey("autotune_environments.digest"))
    protocol: Mapped[str] = mapped_column(Text)
    status: Mapped[str] = mapped_column(Text)
    origin: Mapped[str] = mapped_column(Text)
    reason: Mapped[str] = mapped_column(Text)
    resources: Mapped[Json | None] = mapped_column(JSON(none_as_null=True))
    accuracy: Mapped[Json | None] = mapped_column(JSON(none_as_null=True))
    measurement: Mapped[Json | None] = mapped_column(JSON(none_as_null=True))
    predicted_ms: Mapped[float | None] = mapped_column(Float)
    notes: Mapped[list[str]] = mapped_column(JSON)
    board: Mapped[str] = mapped_column(Text)
    created: Mapped[datetime] = mapped_column(UtcDateTime)


class WriterRow(Base):
    """One process that writes to a SQLite file, so that a second host can be warned off."""

    __tablename__ = "autotune_writers"
    boot: Mapped[str] = mapped_column(Text, primary_key=True)
    pid: Mapped[int] = mapped_column(Integer, primary_key=True)
    host: Mapped[str] = mapped_column(Text)
    last_seen: Mapped[datetime] = mapped_column(UtcDateTime)

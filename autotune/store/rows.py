"""A trial record taken apart into rows, and put together again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar, cast

from sqlalchemy import Connection, Select, delete, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Row

from autotune.config import Config
from autotune.problem import Problem
from autotune.records import DeviceIdentity, Environment, Origin, Outcome, Round, Status, TrialRecord
from autotune.store import record_json
from autotune.store.models import ConfigRow, DeviceRow, EnvironmentRow, ProblemRow, TrialRow

Shared = type[ProblemRow] | type[DeviceRow] | type[EnvironmentRow] | type[ConfigRow]
SHARED: tuple[Shared, ...] = (ProblemRow, DeviceRow, EnvironmentRow, ConfigRow)
Values = dict[str, object]
BATCH = 1000
"""Rows per statement."""
Part = TypeVar("Part")


@dataclass(frozen=True)
class Packed:
    """The rows of one record: what it shares with others, by table, and its own."""

    shared: tuple[tuple[Shared, Values], ...]
    trial: Values


def pack(record: TrialRecord) -> Packed:
    """The rows to insert; raises StoreError where the record has no time zone."""
    outcome = record.outcome
    problem = _shared(_text(record_json.problem_to_json(record.problem)), record.problem.key)
    device = _shared(_text(asdict(record.device)), record.device.key)
    environment = _shared(_text(asdict(record.environment)))
    config = _shared(record.config.to_json())
    trial: Values = {
        "uid": record.uid,
        "study": record.study,
        "session": record.session,
        "round": str(record.round),
        "kernel": record.kernel,
        "kernel_hash": record.kernel_hash,
        "space_hash": record.space_hash,
        "config": config["digest"],
        "problem": problem["digest"],
        "device": device["digest"],
        "environment": environment["digest"],
        "protocol": record.protocol,
        "status": str(outcome.status),
        "origin": str(outcome.origin),
        "reason": record_json.clean_text(outcome.reason),
        "resources": record_json.resources_to_json(outcome.resources),
        "accuracy": record_json.accuracy_to_json(outcome.accuracy),
        "measurement": record_json.measurement_to_json(outcome.measurement),
        "predicted_ms": outcome.predicted_ms,
        "notes": [record_json.clean_text(note) for note in outcome.notes],
        "board": record.board,
        "created": record_json.utc(record.created),
    }
    return Packed(tuple(zip(SHARED, (problem, device, environment, config), strict=True)), trial)


def insert_packed(connection: Connection, packed: Sequence[Packed]) -> int:
    """Inserts what is not there yet, in a running write transaction; gives the number of new trials."""
    for table in SHARED:
        # In one order everywhere, so that two writers on a server never wait for each other.
        rows = {values["digest"]: values for one in packed for kind, values in one.shared if kind is table}
        if rows:
            connection.execute(
                _insert_new(connection, table), [rows[digest] for digest in sorted(rows, key=str)]
            )
    added = 0
    for start in range(0, len(packed), BATCH):
        trials = [one.trial for one in packed[start : start + BATCH]]
        added += len(
            connection.execute(_insert_new(connection, TrialRow).returning(TrialRow.uid), trials).all()
        )
    return added


def delete_unshared(connection: Connection) -> None:
    """Deletes what no trial refers to any more."""
    columns = (TrialRow.problem, TrialRow.device, TrialRow.environment, TrialRow.config)
    for table, column in zip(SHARED, columns, strict=True):
        connection.execute(delete(table).where(table.digest.not_in(select(column))))


def select_records() -> Select[tuple[object, ...]]:
    """Everything of a trial in one row, in the order in which `Unpacker` wants it."""
    return (
        select(
            *TrialRow.__table__.columns,
            ProblemRow.body.label("problem_body"),
            DeviceRow.body.label("device_body"),
            EnvironmentRow.body.label("environment_body"),
            ConfigRow.body.label("config_body"),
        )
        .select_from(TrialRow)
        .join(ProblemRow, TrialRow.problem == ProblemRow.digest)
        .join(DeviceRow, TrialRow.device == DeviceRow.digest)
        .join(EnvironmentRow, TrialRow.environment == EnvironmentRow.digest)
        .join(ConfigRow, TrialRow.config == ConfigRow.digest)
        .order_by(TrialRow.created, TrialRow.id)
    )


class Unpacker:
    """Makes records of rows; what they share is read once."""

    def __init__(self) -> None:
        self._problems: dict[str, Problem] = {}
        self._devices: dict[str, DeviceIdentity] = {}
        self._environments: dict[str, Environment] = {}
        self._configs: dict[str, Config] = {}

    def record(self, row: Row[tuple[object, ...]]) -> TrialRecord:
        """The record of one row of `select_records`."""
        values = cast(Mapping[str, Any], row._mapping)
        return TrialRecord(
            uid=values["uid"],
            study=values["study"],
            session=values["session"],
            round=Round(values["round"]),
            kernel=values["kernel"],
            kernel_hash=values["kernel_hash"],
            space_hash=values["space_hash"],
            config=_once(self._configs, values["config_body"], Config.from_json),
            problem=_once(self._problems, values["problem_body"], problem_of),
            device=_once(self._devices, values["device_body"], _device),
            environment=_once(self._environments, values["environment_body"], _environment),
            protocol=values["protocol"],
            outcome=Outcome(
                Status(values["status"]),
                Origin(values["origin"]),
                values["reason"],
                record_json.resources_from_json(values["resources"]),
                record_json.accuracy_from_json(values["accuracy"]),
                record_json.measurement_from_json(values["measurement"]),
                values["predicted_ms"],
                tuple(values["notes"]),
            ),
            board=values["board"],
            created=values["created"],
        )


def problem_of(body: str) -> Problem:
    """The problem of a row's `body`."""
    return record_json.problem_from_json(json.loads(body))


def _device(body: str) -> DeviceIdentity:
    return DeviceIdentity(**json.loads(body))


def _environment(body: str) -> Environment:
    return Environment(**json.loads(body))


def _once(known: dict[str, Part], body: str, read: Callable[[str], Part]) -> Part:
    if body not in known:
        known[body] = read(body)
    return known[body]


def _text(body: Mapping[str, object]) -> str:
    return json.dumps(body, separators=(",", ":"))


def _shared(body: str, key: str | None = None) -> Values:
    digest = hashlib.sha256(body.encode()).hexdigest()[:32]
    return {"digest": digest, "body": body} if key is None else {"digest": digest, "key": key, "body": body}


def _insert_new(connection: Connection, table: Shared | type[TrialRow]) -> sqlite.Insert | postgresql.Insert:
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table).on_conflict_do_nothing()
    return sqlite.insert(table).on_conflict_do_nothing()

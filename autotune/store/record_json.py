"""A trial record as plain JSON and back: what exported lines hold and what the tables' JSON columns hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, cast

from autotune.config import Config, Value
from autotune.errors import StoreError
from autotune.problem import Problem
from autotune.records import (
    Accuracy,
    ClockReading,
    DeviceIdentity,
    Environment,
    Measurement,
    Origin,
    Outcome,
    Resources,
    Round,
    Status,
    TrialRecord,
)

Json = dict[str, object]


def record_to_json(record: TrialRecord) -> Json:
    """The record as a JSON object; `record_from_json` gives an equal record."""
    outcome = record.outcome
    return {
        "uid": record.uid,
        "study": record.study,
        "session": record.session,
        "round": str(record.round),
        "kernel": record.kernel,
        "kernel_hash": record.kernel_hash,
        "space_hash": record.space_hash,
        "config": dict(record.config),
        "problem": problem_to_json(record.problem),
        "device": asdict(record.device),
        "environment": asdict(record.environment),
        "protocol": record.protocol,
        "outcome": {
            "status": str(outcome.status),
            "origin": str(outcome.origin),
            "reason": clean_text(outcome.reason),
            "resources": resources_to_json(outcome.resources),
            "accuracy": accuracy_to_json(outcome.accuracy),
            "measurement": measurement_to_json(outcome.measurement),
            "predicted_ms": None if outcome.predicted_ms is None else _number(outcome.predicted_ms),
            "notes": [clean_text(note) for note in outcome.notes],
        },
        "board": record.board,
        "created": utc(record.created).isoformat(),
    }


def record_from_json(body: object) -> TrialRecord:
    """The record that was written; raises StoreError naming what is missing or wrong."""
    try:
        fields = cast(dict[str, Any], body)
        outcome = fields["outcome"]
        return TrialRecord(
            uid=_text(fields, "uid"),
            study=_text(fields, "study"),
            session=_text(fields, "session"),
            round=Round(fields["round"]),
            kernel=_text(fields, "kernel"),
            kernel_hash=_text(fields, "kernel_hash"),
            space_hash=_text(fields, "space_hash"),
            config=config_from_json(fields["config"]),
            problem=problem_from_json(fields["problem"]),
            device=_device(**fields["device"]),
            environment=_environment(**fields["environment"]),
            protocol=_text(fields, "protocol"),
            outcome=Outcome(
                Status(outcome["status"]),
                Origin(outcome["origin"]),
                _text(outcome, "reason"),
                resources_from_json(outcome["resources"]),
                accuracy_from_json(outcome["accuracy"]),
                measurement_from_json(outcome["measurement"]),
                None if outcome["predicted_ms"] is None else float(outcome["predicted_ms"]),
                tuple(outcome.get("notes", ())),
            ),
            board=_text(fields, "board"),
            created=utc(datetime.fromisoformat(fields["created"])),
        )
    except KeyError as error:
        raise StoreError(f"a trial record needs the key {error}") from error
    except (AttributeError, TypeError, ValueError) as error:
        raise StoreError(f"not a trial record: {error}") from error


def config_from_json(body: Mapping[str, object]) -> Config:
    """The config; lists become tuples again."""
    if _PLAIN.issuperset(map(type, body.values())):
        return _plain_config(tuple(body), *body.values())
    return Config.of({name: _value(value) for name, value in body.items()})


def problem_to_json(problem: Problem) -> Json:
    """Sizes and classes as objects, in order."""
    return {"sizes": dict(problem.sizes), "dtype": problem.dtype, "classes": dict(problem.classes)}


def problem_from_json(body: Mapping[str, Any]) -> Problem:
    """The problem that was written."""
    classes, sizes = body["classes"], tuple(body["sizes"].items())
    for name, size in sizes:
        if type(size) is not int:
            raise TypeError(f"the size {name} is a whole number, got {size!r}")
    dtype = _text(body, "dtype")
    if _PLAIN.issuperset(map(type, classes.values())):
        return _plain_problem(dtype, sizes, tuple(classes), *classes.values())
    return Problem(sizes, dtype, tuple((name, _value(value)) for name, value in classes.items()))


def resources_to_json(resources: Resources | None) -> Json | None:
    """All the counts by name."""
    return None if resources is None else asdict(resources)


def resources_from_json(body: Mapping[str, Any] | None) -> Resources | None:
    """The resources that were written."""
    return None if body is None else Resources(**body)


def accuracy_to_json(accuracy: Accuracy | None) -> Json | None:
    """Errors that are not finite become the strings `inf` and `nan`, which JSON has no number for."""
    if accuracy is None:
        return None
    return {
        "worst_error": _number(accuracy.worst_error),
        "tolerance": _number(accuracy.tolerance),
        "elements": accuracy.elements,
    }


def accuracy_from_json(body: Mapping[str, Any] | None) -> Accuracy | None:
    """The accuracy that was written."""
    if body is None:
        return None
    return Accuracy(float(body["worst_error"]), float(body["tolerance"]), body["elements"])


def measurement_to_json(measurement: Measurement | None) -> Json | None:
    """Raw samples in the order taken, with the clocks seen."""
    if measurement is None:
        return None
    return {
        "samples_ms": [_number(sample) for sample in measurement.samples_ms],
        "calls_per_sample": measurement.calls_per_sample,
        "clocks": None if measurement.clocks is None else asdict(measurement.clocks),
    }


def measurement_from_json(body: Mapping[str, Any] | None) -> Measurement | None:
    """The measurement that was written."""
    if body is None:
        return None
    clocks = None if body["clocks"] is None else ClockReading(**body["clocks"])
    return Measurement(
        tuple(float(sample) for sample in body["samples_ms"]), body["calls_per_sample"], clocks
    )


# Thousands of records share these: made once, they also work out their keys once. Arguments of their own, with
# their types, keep 1 and true apart.
_PLAIN = frozenset((bool, int, float, str))
_device = lru_cache(maxsize=256, typed=True)(DeviceIdentity)
_environment = lru_cache(maxsize=256, typed=True)(Environment)


@lru_cache(maxsize=2**14, typed=True)
def _plain_config(names: tuple[str, ...], *values: Value) -> Config:
    return Config(tuple(zip(names, values, strict=True)))


@lru_cache(maxsize=2**10, typed=True)
def _plain_problem(
    dtype: str, sizes: tuple[tuple[str, int], ...], classes: tuple[str, ...], *values: Value
) -> Problem:
    return Problem(sizes, dtype, tuple(zip(classes, values, strict=True)))


def utc(moment: datetime) -> datetime:
    """The moment in UTC; one without a time zone is refused, since nobody could tell when it was."""
    if moment.tzinfo is None:
        raise StoreError(f"the time of a record needs a time zone, got {moment.isoformat()}")
    return moment.astimezone(UTC)


def clean_text(text: str) -> str:
    """Text that every backend takes: compiler logs end in NUL, and crashed programs print broken UTF-8."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")


def _text(fields: Mapping[str, Any], name: str) -> str:
    text = fields[name]
    if not isinstance(text, str):
        raise TypeError(f"{name} is text, got {text!r}")
    return text


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _value(value: object) -> Value:
    if isinstance(value, list):
        return tuple(_value(item) for item in value)
    if isinstance(value, bool | int | float | str):
        return value
    raise StoreError(f"a value is a boolean, a number, a string or a list of these, got {value!r}")

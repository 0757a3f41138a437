"""Reads the cache files of Kernel Tuner: JSON with the parameters and a record per configuration.

The fields are `device_name, kernel_name, problem_size, tune_params_keys, tune_params, cache`; `cache` maps the
values joined by commas to a record with the parameters, `time` in ms or the name of an error, and `times`, the
single samples. A run that was cut short leaves the last brackets open.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from autotune.config import Config, Value
from autotune.errors import InputError
from autotune.gpu_tables import find_gpu
from autotune.problem import Problem
from autotune.records import DeviceIdentity, Environment, Measurement, Origin, Outcome, Status
from autotune.replay.table import UNKNOWN_DATE, Entry, Table
from autotune.spec.kernel_spec import Parameter

FAILURES = {
    "InvalidConfig": Status.ILLEGAL,
    "CompilationFailedConfig": Status.COMPILE_ERROR,
    "RuntimeFailedConfig": Status.LAUNCH_ERROR,
}
"""The error names of Kernel Tuner and what they are called here; an unknown one counts as a crash."""


_HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")
"""May also be one half of a pair that is right."""


def looks_like_cache(text: str) -> bool:
    """Whether a file's text begins like a cache."""
    return '"tune_params"' in text[:20_000]


def table_of_cache(text: str, name: str) -> Table:
    """The table in a cache file's text; raises InputError naming what is wrong with it."""
    body = _parse(text, name)
    try:
        names = [str(key) for key in body.get("tune_params_keys") or body["tune_params"]]
        records: Mapping[str, Mapping[str, Any]] = body["cache"]
        entries = tuple(_entry(record, names) for record in records.values())
        if not entries:
            raise InputError("holds no configuration", name, "cache")
        declared = body.get("tune_params") or {}
        parameters = tuple(_parameter(key, declared.get(key, ()), entries) for key in names)
        # A C++ name with its template arguments is no name of a kernel here.
        kernel = re.sub(r"\W+", "_", str(body.get("kernel_name") or "kernel")).strip("_")
        device = str(body.get("device_name") or "unknown")
        problem = _problem(body.get("problem_size"))
    except KeyError as error:
        raise InputError(f"a cache file of Kernel Tuner has the key {error}", name) from error
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"not a cache file of Kernel Tuner: {error}", name) from error
    nowhere = Environment(driver="", cuda="", nvrtc="", autotune="")
    return Table(
        name, kernel, f"kernel_tuner/{kernel}", _device(device), problem, nowhere, parameters, entries
    )


def _parse(text: str, name: str) -> dict[str, Any]:
    for closed in (text, text.rstrip().rstrip(",") + "}}"):
        with suppress(ValueError, RecursionError):
            body = json.loads(closed)
            if isinstance(body, dict):
                if _HALF_CHARACTER.search(text):
                    _refuse_half_characters(body, name)
                return body
    raise InputError("not JSON, not even as a run that was cut short", name)


def _refuse_half_characters(body: dict[str, Any], name: str) -> None:
    """JSON can name half of a character, which no database and no other file can hold."""
    try:
        json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InputError(f"text with half a character in it: {error}", name) from error


def _entry(record: Mapping[str, Any], names: list[str]) -> Entry:
    config = Config(tuple((name, _value(record[name])) for name in names))
    created = datetime.fromisoformat(record["timestamp"]) if record.get("timestamp") else UNKNOWN_DATE
    if created.tzinfo is None:
        created = created.replace(tzinfo=UTC)
    time = record["time"]
    # Files of old versions write a failure as a huge number; none takes no time at all.
    if isinstance(time, str) or not 0 < time < 1e20:
        error = str(time)
        status = FAILURES.get(error, Status.CRASHED)
        return Entry(config, Outcome(status, Origin.REPLAYED, f"recorded as {error}"), math.nan, created)
    samples = tuple(float(sample) for sample in record.get("times") or (time,))
    outcome = Outcome(Status.OK, Origin.REPLAYED, measurement=Measurement(samples, 1))
    return Entry(config, outcome, float(time), created)


def _value(value: object) -> Value:
    if isinstance(value, list):
        return tuple(_value(item) for item in value)
    if isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a parameter's value is a boolean, a number, a string or a list of these, got {value!r}")


def _parameter(name: str, declared: Any, entries: tuple[Entry, ...]) -> Parameter:
    """With the declared values that occur, in their order; those not declared follow as met."""
    met = {repr(value): value for value in (entry.config[name] for entry in entries)}
    listed = [value for value in map(_value, declared) if repr(value) in met]
    texts = {repr(value) for value in listed}
    return Parameter(name, tuple(listed + [value for text, value in met.items() if text not in texts]))


def _problem(sizes: object) -> Problem:
    numbers = sizes if isinstance(sizes, list | tuple) else [sizes]
    whole = [int(number) for number in numbers if isinstance(number, int | float)]
    return Problem(tuple((f"size{place}", size) for place, size in enumerate(whole)), "unknown")


def _device(name: str) -> DeviceIdentity:
    """As the GPU table of that very name says; else the name alone."""
    with suppress(InputError):
        gpu = find_gpu(name)
        return gpu.identity
    return DeviceIdentity(name.lower(), name, "", 0, 0)

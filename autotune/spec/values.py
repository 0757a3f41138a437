"""Values of parameters as YAML gives them: lists, ranges and choices from them."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from autotune.config import Value, value_text
from autotune.errors import nearest_name
from autotune.spec.kernel_spec import Parameter
from autotune.spec.names import checked_value
from autotune.spec.shape import ParameterShape
from autotune.spec.yaml_file import Key, YamlFile, shortened

MAX_VALUES = 10_000
"""Values of one parameter."""


def listed_values(file: YamlFile, key: Key, data: Sequence[object]) -> tuple[Value, ...]:
    """The values in a list, each written differently from the others."""
    seen: dict[str, Value] = {}
    for index, item in enumerate(data):
        place = (*key, index) if (*key, index) in file.lines else (*key, "values", index)
        value = _value(file, place, item)
        text = value_text(value)
        if text in seen:
            raise file.error(place, f"values must differ in writing, got {text} twice")
        seen[text] = value
    return tuple(seen.values())


def range_values(file: YamlFile, key: Key, shape: ParameterShape) -> tuple[Value, ...]:
    """The values of a range with a step or a factor, both ends included; decimal fractions are exact."""
    low, high = shape.range or (0, 0)
    step, times = shape.step, shape.times
    grows = (step is None or step > 0) and (times is None or (times > 1 and low > 0))
    if not grows or low > high:
        raise file.error(key, f"must grow from its first value to its last, got {[low, high]}")
    last, value = Decimal(repr(high)), Decimal(repr(low))
    found: list[Decimal] = []
    while value <= last and len(found) <= MAX_VALUES:
        found.append(value)
        value = value + Decimal(repr(step)) if step is not None else value * Decimal(repr(times))
    if len(found) > MAX_VALUES:
        raise file.error(key, f"must give at most {MAX_VALUES} values, got more")
    if found[-1] != last:
        raise file.error(key, f"must end on one of its own steps, got {high!r}", f"{found[-1]} or {value}")
    whole = all(isinstance(number, int) for number in (low, high, step or 1, times or 1))
    return tuple(int(item) if whole else float(item) for item in found)


def one_of(file: YamlFile, key: Key, data: object, parameter: Parameter) -> Value:
    """The value of the parameter that `data` is, equal in type as well."""
    value = _value(file, key, data)
    for allowed in parameter.values:
        # 1, 1.0 and true are equal in Python and different here.
        if repr(allowed) == repr(value):
            return allowed
    rule = f"must be one of the values of {parameter.name}, got {shortened(data)}"
    raise file.error(key, rule, nearest_value(value, parameter.values))


def nearest_value(value: Value, values: Sequence[Value]) -> str:
    """The closest of the values as text: by size for numbers, else by writing."""
    numbers = [item for item in values if isinstance(item, int | float) and not isinstance(item, bool)]
    if numbers and isinstance(value, int | float) and not isinstance(value, bool):
        return value_text(min(numbers, key=lambda item: abs(item - value)))
    return nearest_name(value_text(value), map(value_text, values))


def _value(file: YamlFile, key: Key, data: object) -> Value:
    try:
        return checked_value(data)
    except ValueError as error:
        raise file.error(key, f"{error}, got {shortened(data)}") from None

"""The texts under which Optuna knows a space.

It sees every parameter as a categorical of texts, so that booleans, integers, floats and tuples keep their types
whatever Optuna does with them.
"""

from __future__ import annotations

from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution

from autotune.config import Config, Value, value_text
from autotune.space.search_space import SearchSpace


class Vocabulary:
    """The texts under which Optuna knows the parameters of a space."""

    def __init__(self, space: SearchSpace) -> None:
        self._values: dict[str, dict[str, Value]] = {
            parameter.name: {value_text(value): value for value in parameter.values}
            for parameter in space.parameters
        }
        self._positions = {
            name: {text: position for position, text in enumerate(values)}
            for name, values in self._values.items()
        }
        self.distributions: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(tuple(values)) for name, values in self._values.items()
        }
        self.several = {
            name: self.distributions[name] for name, values in self._values.items() if len(values) > 1
        }
        self.singles = {name: next(iter(values)) for name, values in self._values.items() if len(values) == 1}

    def encode(self, config: Config) -> dict[str, str]:
        """The texts of a configuration of the space."""
        return {name: value_text(config[name]) for name in self._values}

    def decode(self, params: dict[str, Any]) -> Config | None:
        """The configuration behind an Optuna trial's params; None where they are not all of this space."""
        try:
            return Config(tuple((name, values[params[name]]) for name, values in self._values.items()))
        except KeyError:
            return None

    def positions(self, config: Config) -> list[int]:
        """Where each value of the configuration stands in its parameter's list."""
        return [places[value_text(config[name])] for name, places in self._positions.items()]

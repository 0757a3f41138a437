"""A space that is given as a list of its configs, such as the table of an exhaustive run, instead of by rules."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from autotune.columns import Array
from autotune.config import Config
from autotune.errors import InputError
from autotune.space.diagram import Diagram, counted
from autotune.space.search_space import SearchSpace
from autotune.spec.kernel_spec import Parameter


class ListedSpace(SearchSpace):
    """Exactly the configs given; in all else a search space like any other."""

    def __init__(self, parameters: Sequence[Parameter], configs: Sequence[Config]) -> None:
        """Raises InputError for a config without a listed value of each parameter."""
        super().__init__(parameters)
        rows = [self._encode(config) for config in configs]
        for config, row in zip(configs, rows, strict=True):
            if row is None:
                raise InputError(
                    f"needs one of the listed values of each parameter, got {config}", key="configs"
                )
        shape = (len(configs), len(self.parameters))
        self._listed = np.array(rows, dtype=np.intp).reshape(shape)

    @cached_property
    def diagram(self) -> Diagram:
        """The configs as levels that share what they have in common."""
        return diagram_of_rows(self._listed, [len(parameter.values) for parameter in self.parameters])


def diagram_of_rows(rows: Array, widths: Sequence[int]) -> Diagram:
    """The smallest diagram, in the order of the columns, of the combinations that stand in `rows`."""
    children: list[Array] = []
    node = np.zeros(len(rows), dtype=np.intp)
    nodes = 1
    for level, width in enumerate(widths):
        edges, following = np.unique(node * width + rows[:, level], return_inverse=True)
        below = np.full(nodes * width, -1, dtype=np.intp)
        # All that is said of a combination is said once its last value is bound.
        below[edges] = np.arange(len(edges)) if level + 1 < len(widths) else 0
        children.append(below.reshape(nodes, width))
        node, nodes = following.reshape(-1), max(len(edges), 1)
    for level in reversed(range(1, len(widths))):
        children[level], merged = np.unique(children[level], axis=0, return_inverse=True)
        above = children[level - 1]
        children[level - 1] = np.where(above >= 0, merged.reshape(-1)[above], -1)
    return counted(range(len(widths)), children, 1)

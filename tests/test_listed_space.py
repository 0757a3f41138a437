"""Spaces given as lists of configs."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.config import Config
from autotune.errors import InputError, NothingFound
from autotune.space.listed import ListedSpace
from autotune.space.search_space import SearchSpace
from autotune.spec.kernel_spec import Parameter

PARAMETERS = (Parameter("a", (1, 2, 3)), Parameter("b", ("x", "y")), Parameter("c", (False, True)))
ALL = [
    Config((("a", a), ("b", b), ("c", c)))
    for a, b, c in product(*(parameter.values for parameter in PARAMETERS))
]


@given(st.sets(st.sampled_from(ALL), min_size=1))
def test_holds_exactly_its_configs_under_distinct_indices(chosen: set[Config]) -> None:
    space = ListedSpace(PARAMETERS, list(chosen))
    assert space.count == len(chosen)
    assert set(space) == chosen
    assert {config for config in ALL if config in space} == chosen
    assert [space.index(space.at(index)) for index in range(space.count)] == list(range(space.count))
    assert set(space.sample(np.random.default_rng(0), 100)) == chosen
    feasible = space.feasible({"a": 1})
    assert set(feasible["b"]) == {config["b"] for config in chosen if config["a"] == 1}


@given(st.sets(st.sampled_from(ALL), min_size=1), st.sampled_from(ALL))
def test_searches_around_a_point_as_any_space(chosen: set[Config], point: Config) -> None:
    space = ListedSpace(PARAMETERS, list(chosen))

    def changes(config: Config) -> int:
        return sum(config[name] != point[name] for name in point)

    assert set(space.neighbours(point)) == {config for config in chosen if changes(config) == 1}
    nearest = space.nearest(point)
    assert nearest in chosen
    assert changes(nearest) == min(map(changes, chosen))


def test_a_whole_product_shares_all_levels() -> None:
    listed, ruled = ListedSpace(PARAMETERS, ALL), SearchSpace(PARAMETERS)
    assert [len(level) for level in listed.diagram.children] == [1, 1, 1]
    assert list(listed) == list(ruled)


def test_an_empty_list_is_an_empty_space() -> None:
    space = ListedSpace(PARAMETERS, [])
    assert not space
    assert ALL[0] not in space
    with pytest.raises(NothingFound):
        space.nearest(ALL[0])


def test_a_config_of_another_space_is_refused() -> None:
    with pytest.raises(InputError, match="listed values"):
        ListedSpace(PARAMETERS, [Config((("a", 1), ("b", "x"), ("c", 1)))])

"""Search spaces against brute force, on random small ones and on the sizes met in practice."""

import itertools
import math
import pickle
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.config import Config
from autotune.errors import InputError, NothingFound
from autotune.expressions import Expression
from autotune.space.search_space import SearchSpace
from autotune.spec.kernel_spec import Parameter, Rule
from autotune.spec.load import load_spec


def make(parameters, rules=(), derived=None, constants=None):
    return SearchSpace(
        [Parameter(name, tuple(values)) for name, values in parameters.items()],
        [Rule(Expression.parse(rule), "it must") for rule in rules],
        {name: Expression.parse(text) for name, text in (derived or {}).items()},
        constants or {},
    )


def brute_force(space):
    """Every combination in which each rule, and each derived name that a rule uses, has a value and holds."""
    needed = set().union(*(rule.rule.names for rule in space.rules))
    for name in reversed(space.derived):
        if name in needed:
            needed |= space.derived[name].names
    found = []
    for values in itertools.product(*(parameter.values for parameter in space.parameters)):
        config = Config(tuple(zip((p.name for p in space.parameters), values, strict=True)))
        names = {**space.constants, **config}
        try:
            for name, expression in space.derived.items():
                if name in needed:
                    names[name] = expression.evaluate(names)
            if all(rule.rule.evaluate(names) for rule in space.rules):
                found.append(config)
        except InputError:
            pass
    return found


# --- random small spaces ---

VALUES = st.one_of(
    st.lists(st.sampled_from([0, 1, 2, 3, 4, 8, 16, 32, -1]), min_size=1, max_size=5, unique=True),
    st.lists(st.sampled_from([0, 1, 1.5, True, "sync", "z"]), min_size=1, max_size=4, unique_by=repr),
    st.just([False, True]),
    st.just(["sync", "prefetch", "cpasync"]),
    st.just([(1, 2), (2, 1)]),
    st.just([0.5, 1.0, 2.0]),
)
RULES = [
    "a % b == 0",
    "a % b == 0 and c % b == 0",
    "a * c <= limit",
    "a + b + c + d > 5",
    "b != 0 and a % b == 0",
    "b == 0 or d // b >= 1",
    "a == 'sync' or c == 1",
    "c in (1, 2, 'z')",
    "big <= limit",
    "ratio * d < 9",
    "ratio == 1 or big > 3",
    "max(a, b, c) - min(a, b, d) <= 3",
    "1 <= a <= d < 17",
    "d if a else b",
    "not a or c",
    "a + 1 if d == 'z' else c != 0",
    "xor(a, d) % 3 == 1",
    "a / b > 0.5",
    "limit > 3",
    "a[0] < 2",
]
DERIVED = {"ratio": "a // b", "big": "ratio * (c + d)"}


@st.composite
def spaces(draw):
    parameters = {name: draw(VALUES) for name in "abcd"}
    rules = draw(st.lists(st.sampled_from(RULES), max_size=4))
    return make(parameters, rules, DERIVED, {"limit": draw(st.integers(0, 40))})


@settings(max_examples=100, deadline=None)
@given(spaces())
def test_holds_exactly_what_brute_force_finds(space):
    expected = brute_force(space)
    listed = list(space)
    assert set(listed) == set(expected)
    assert len(listed) == len(expected) == space.count == len(space)
    assert bool(space) is bool(expected)
    assert space.raw_count == math.prod(len(parameter.values) for parameter in space.parameters)
    for index, config in enumerate(listed):
        assert space.at(index) == config
        assert space.index(config) == index
    legal = set(expected)
    for values in itertools.product(*(parameter.values for parameter in space.parameters)):
        config = Config(tuple(zip("abcd", values, strict=True)))
        assert (config in space) is (config in legal)


@settings(max_examples=25, deadline=None)
@given(spaces(), st.integers(0, 2**32), st.data())
def test_samples_are_distinct_and_legal_and_reach_all(space, seed, data):
    listed = list(space)
    rng = np.random.default_rng(seed)
    everything = space.sample(rng, len(listed) + 5)
    assert Counter(everything) == Counter(listed)
    excluded = data.draw(st.sets(st.sampled_from(listed))) if listed else set()
    some = space.sample(rng, 3, excluded)
    assert len(set(some)) == len(some) == min(3, len(listed) - len(excluded))
    assert set(some) <= set(listed) - excluded


@settings(max_examples=25, deadline=None)
@given(spaces(), st.data())
def test_feasible_values_are_those_of_the_configs_that_agree(space, data):
    fixed = {
        parameter.name: data.draw(st.sampled_from(parameter.values))
        for parameter in space.parameters
        if data.draw(st.booleans())
    }
    agreeing = [config for config in space if all(repr(config[name]) == repr(fixed[name]) for name in fixed)]
    for name, values in space.feasible(fixed).items():
        assert set(map(repr, values)) == {repr(config[name]) for config in agreeing}


@settings(max_examples=25, deadline=None)
@given(spaces())
def test_neighbours_are_legal_and_mutual(space):
    listed = list(space)
    for kind in ("hamming", "adjacent"):
        around = {config: space.neighbours(config, kind) for config in listed}
        for config, found in around.items():
            assert len(set(found)) == len(found)
            for neighbour in found:
                assert sum(repr(config[name]) != repr(neighbour[name]) for name in config) == 1
                assert config in around[neighbour]
        if kind == "hamming":
            for one, two in itertools.combinations(listed, 2):
                apart = sum(repr(one[name]) != repr(two[name]) for name in one)
                assert (two in around[one]) is (apart == 1)


@settings(max_examples=40, deadline=None)
@given(spaces(), st.data())
def test_repair_is_legal_idempotent_and_keeps_the_first(space, data):
    point = {parameter.name: data.draw(st.sampled_from(parameter.values)) for parameter in space.parameters}
    priority = data.draw(st.permutations(list(point)))
    if not space.count:
        for repair in (space.repair, space.nearest):
            with pytest.raises(NothingFound):
                repair(point)
        return
    repaired = space.repair(point, priority)
    assert repaired in space
    assert space.repair(repaired, priority) == repaired == space.nearest(repaired)
    kept = {}
    for name in priority:
        # Each value in turn is kept if that can be, given those before it.
        if repr(point[name]) in map(repr, space.feasible(kept)[name]):
            assert repr(repaired[name]) == repr(point[name])
        kept[name] = repaired[name]
    nearest = space.nearest(point)

    def changes(config):
        return sum(repr(config[name]) != repr(point[name]) for name in point)

    assert changes(nearest) == min(map(changes, space))


@settings(max_examples=25, deadline=None)
@given(spaces())
def test_removed_by_rule_counts_each_rule_by_itself(space):
    for rule, removed in space.removed_by_rule():
        alone = SearchSpace(space.parameters, [rule], space.derived, space.constants)
        assert removed == space.raw_count - len(brute_force(alone))
    assert space.estimated_rules == ()


# --- behaviour ---


def test_without_rules_everything_is_legal():
    space = make({"a": range(8), "b": ["x", "y", "z", "w", "v"]})
    assert space.count == space.raw_count == 40
    assert len(set(space)) == 40
    assert {config["b"] for config in space.sample(np.random.default_rng(0), 40)} == set("xyzwv")


def test_configs_keep_the_declared_order_and_types():
    space = make({"z": [1, True], "a": [0.5], "m": ["k"]}, ["m == 'k'", "a < z"])
    assert [tuple(config) for config in space] == [("z", "a", "m")] * 2
    assert {config.key for config in space} == {"z=1,a=0.5,m=k", "z=true,a=0.5,m=k"}
    assert {"z": 1, "a": 0.5, "m": "k"} in space
    for other in (
        {"z": 1.0, "a": 0.5, "m": "k"},
        {"z": 1, "a": 0.5},
        {"z": 1, "a": 0.5, "m": "k", "x": 1},
        3,
    ):
        assert other not in space


def test_a_space_in_which_nothing_is_legal():
    space = make({"a": [1, 2], "b": [3, 4]}, ["a > b"])
    assert (space.count, list(space), bool(space)) == (0, [], False)
    assert space.sample(np.random.default_rng(0), 3) == []
    assert space.feasible({}) == {"a": (), "b": ()}
    assert {"a": 1, "b": 3} not in space
    assert space.neighbours({"a": 1, "b": 3}) == []
    with pytest.raises(NothingFound, match="no configuration is legal"):
        space.repair({"a": 1, "b": 3})
    with pytest.raises(IndexError):
        space.at(0)
    assert make({"a": [1]}, ["n > 3"], {}, {"n": 2}).count == 0
    assert make({"a": [1]}, ["one // 0 == 1"], {"one": "1"}).count == 0


def test_bad_input_is_refused_with_the_nearest_name():
    with pytest.raises(InputError, match=r"unknown name 'aa' in 'aa > 1' .nearest: a"):
        make({"a": [1], "b": [2]}, ["aa > 1"])
    with pytest.raises(InputError, match=r"parameters.a: must have at least one value"):
        make({"a": []})
    with pytest.raises(InputError, match=r"parameters.a: values must differ in writing, got 1 twice"):
        make({"a": [1, "1"]})
    with pytest.raises(InputError, match="needs parameters"):
        make({})
    space = make({"alpha": [1, 2], "b": [1]}, ["alpha > b"])
    for call in (space.repair, space.nearest, space.feasible):
        with pytest.raises(InputError, match=r"unknown parameter 'alpa' .nearest: alpha"):
            call({"alpa": 1})
    with pytest.raises(InputError, match="not a legal config of this space: alpha=1,b=1"):
        space.index({"alpha": 1, "b": 1})
    with pytest.raises(InputError, match="hamming, adjacent"):
        space.neighbours({"alpha": 2, "b": 1}, "close")
    with pytest.raises(IndexError):
        space.at(-1)


def test_repair_takes_values_that_are_not_listed():
    space = make({"a": [8, 16, 32, 64], "b": [1, 2, 4], "s": ["x", "y"]}, ["a % (b * 16) == 0"])
    assert space.repair({"a": 40, "b": 3, "s": "none"})["a"] == 32
    assert space.repair({"a": 8, "b": 4}, ["b"])["b"] == 4
    assert space.repair({"b": 4}) in space
    assert space.repair({}) in space
    assert space.nearest({"a": 40, "b": 4, "s": "y"}) == Config.of({"a": 64, "b": 4, "s": "y"})


def test_sampling_is_uniform():
    space = make({"a": range(1, 13), "b": range(1, 13)}, ["a % b == 0"])
    counts = Counter(
        config for seed in range(3000) for config in space.sample(np.random.default_rng(seed), 1)
    )
    expected = 3000 / space.count
    chi_square = sum((counts[config] - expected) ** 2 / expected for config in space)
    assert chi_square < space.count + 5 * math.sqrt(2 * space.count)


def test_pickles_and_repeats_itself():
    space = make({"a": range(9), "b": range(9)}, ["a * b % 3 == 1"])
    again = pickle.loads(pickle.dumps(space))
    assert list(again) == list(space)
    other = make({"a": range(9), "b": range(9)}, ["a * b % 3 == 1"])
    assert list(other) == list(space)


# --- sizes met in practice ---


def clblast():
    """The space of the Xgemm kernel as its published benchmark has it: 116,928 of 663,552."""
    parameters = {"MWG": (16, 32, 64, 128), "NWG": (16, 32, 64, 128), "KWG": (16, 32)}
    parameters |= dict.fromkeys(("MDIMC", "NDIMC", "MDIMA", "NDIMB"), (8, 16, 32))
    parameters |= {"KWI": (2,), "VWM": (1, 2, 4, 8), "VWN": (1, 2, 4, 8)}
    parameters |= dict.fromkeys(("STRM", "STRN", "SA", "SB"), (0, 1))
    rules = [
        "KWG % KWI == 0",
        "MWG % (MDIMC * VWM) == 0",
        "NWG % (NDIMC * VWN) == 0",
        "MWG % (MDIMA * VWM) == 0",
        "NWG % (NDIMB * VWN) == 0",
        "KWG % ((MDIMC * NDIMC) // MDIMA) == 0",
        "KWG % ((MDIMC * NDIMC) // NDIMB) == 0",
        "not (MWG == 128 and NWG == 128 and MDIMC == 8 and NDIMC == 8)",
    ]
    return make(parameters, rules)


def test_the_clblast_space_is_enumerated_in_half_a_second():
    started = time.process_time()
    space = clblast()
    rows = list(space.rows())
    elapsed = time.process_time() - started
    assert (space.raw_count, space.count) == (663_552, 116_928)
    assert len(set(rows)) == 116_928
    assert elapsed < 0.5


def sgemm():
    spec = load_spec("sgemm")
    limits = ["1 <= threads <= 1024", "smem_bytes <= 232448"]
    constants = {"compute_capability": 90}
    return SearchSpace(
        spec.parameters,
        [*spec.constraints, *(Rule(Expression(limit), "the GPU's limit") for limit in limits)],
        spec.derived,
        constants,
    )


def test_the_sgemm_space_is_counted_in_two_seconds():
    started = time.process_time()
    space = sgemm()
    count = space.count
    assert time.process_time() - started < 2
    assert space.raw_count > 10**11
    assert 10**8 < count < space.raw_count // 50
    rng = np.random.default_rng(0)
    drawn = space.sample(rng, 300)
    assert len(set(drawn)) == 300
    for config in drawn:
        assert space.at(space.index(config)) == config
        names = {**space.constants, **config}
        for name in ("threads", "lanes_m", "lanes_n", "smem_bytes"):
            names[name] = space.derived[name].evaluate(names)
        assert all(rule.rule.evaluate(names) for rule in space.rules)


def test_the_sgemm_space_agrees_with_brute_force_on_a_part_of_it():
    whole = sgemm()
    several = {
        "BM": (64, 96, 128),
        "BN": (64, 128),
        "WM": (32, 64),
        "WN": (32, 64),
        "TM": (4, 8),
        "TN": (4, 8),
        "VM": (1, 4),
        "LOAD": ("sync", "prefetch", "cpasync"),
        "STAGES": (1, 2, 4),
    }
    parameters = [
        Parameter(parameter.name, several.get(parameter.name, parameter.values[:1]))
        for parameter in whole.parameters
    ]
    needed = {name: whole.derived[name] for name in ("threads", "lanes_m", "lanes_n", "smem_bytes")}
    part = SearchSpace(parameters, whole.rules, needed, whole.constants)
    expected = brute_force(part)
    assert expected
    assert set(part) == set(expected)


@pytest.mark.parametrize(
    "rules",
    [
        ["a + b + c + d + e + f + g + h + i == 30"],
        ["a * b * c * d * e * f * g * h * i <= 1000"],
        ["a*a + b*b + c*c + d*d + e*e + f*f + g*g + h*h + i*i == 200"],
        ["max(a, b, c, d, e, f, g, h, i) - min(a, b, c, d, e, f, g, h, i) == 1"],
        ["a % b == 0", "b * c % d == 0", "(e + f) * g <= 30", "h % a == 0", "xor(i, g) == c"],
    ],
)
def test_the_first_of_a_billion_comes_within_a_second(rules):
    started = time.process_time()
    space = make({name: range(1, 11) for name in "abcdefghi"}, rules)
    first = space.at(0)
    assert time.process_time() - started < 1
    assert space.raw_count == 10**9
    assert all(rule.rule.evaluate(first) for rule in space.rules)


def test_counts_beyond_64_bits_are_exact():
    space = make({f"p{i}": range(10) for i in range(40)}, ["p0 + p1 == 3"])
    assert space.count == 4 * 10**38
    assert space.index(space.at(10**38 + 7)) == 10**38 + 7
    drawn = space.sample(np.random.default_rng(0), 20)
    assert len(set(drawn)) == 20
    assert all(config["p0"] + config["p1"] == 3 for config in drawn)
    point = {f"p{i}": 9 - i % 3 for i in range(40)}
    repaired = space.repair(point, ["p1"])
    assert {name for name in point if repaired[name] != point[name]} == {"p0", "p1"}
    assert (repaired["p1"], repaired["p0"]) == (3, 0)


def test_wide_rules_are_counted_on_a_sample_and_named():
    space = make({name: range(10) for name in "abcdefg"}, ["a + b + c + d + e + f + g >= 20", "a > 4"])
    (wide, removed), (narrow, half) = space.removed_by_rule()
    assert half == 5 * 10**6
    assert space.estimated_rules == (wide,)
    exact = space.raw_count - make({name: range(10) for name in "abcdefg"}, [wide.rule.text]).count
    assert removed == pytest.approx(exact, rel=0.1)
    assert narrow.because == "it must"


def test_rules_that_tie_too_much_together_are_refused():
    space = make(
        {name: range(1, 90) for name in "abcdef"}, ["xor(a*b + c, d) * e + f*a - b*d*c % e == 77777"]
    )
    with pytest.raises(InputError, match="tie too many parameters together"):
        len(space)

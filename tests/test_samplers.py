from __future__ import annotations

import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import optuna
import pytest
from fakes.toy import toy_gpu, toy_problem, toy_spec
from optuna.trial import TrialState

from autotune.config import Config
from autotune.errors import InputError
from autotune.gpu_tables import find_gpu
from autotune.legality import search_space
from autotune.problems import make_problem
from autotune.records import Origin, Outcome, Status
from autotune.space.search_space import SearchSpace
from autotune.spec.load import load_spec
from autotune.study import samplers
from autotune.study.brain import Brain
from autotune.study.strategies import STRATEGIES, Subject, default_config, make_sampler

optuna.logging.set_verbosity(optuna.logging.WARNING)


@pytest.fixture
def subject(tmp_path: Path) -> Subject:
    """60 legal configurations of 144."""
    parameters = {
        "A": [1, 2, 4, 8],
        "B": [False, True],
        "C": ["x", "y", "z"],
        "D": [(1, 2), (2, 1)],
        "E": [0, 1, 2],
    }
    spec = toy_spec(
        tmp_path, parameters, ["A * (2 if B else 1) <= 8", "E == 0 or C != 'z'", "A > 1 or E < 2"]
    )
    gpu, problem = toy_gpu(), toy_problem(spec)
    return Subject(spec, gpu, problem, search_space(spec, gpu, problem))


def cost(config: Config) -> float:
    return 10.0 - int(config["A"]) + (config["C"] == "x")  # type: ignore[call-overload]


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_serves_a_plain_optuna_study(subject: Subject, name: str) -> None:
    space = subject.space
    tried: list[Config] = []

    def objective(trial: optuna.Trial) -> float:
        config = samplers.suggest(trial, space)
        tried.append(config)
        return cost(config)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        study = optuna.create_study(sampler=make_sampler(name, subject, 0))
        study.optimize(objective, n_trials=500)
    # It ends by itself once every legal configuration has been tried, each once.
    assert set(tried) == set(space)
    assert len(tried) == space.count
    assert study.best_value == 2.0


def test_illegal_proposals_of_other_samplers_are_pruned(subject: Subject) -> None:
    space = subject.space
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    study.optimize(lambda trial: cost(samplers.suggest(trial, space)), n_trials=60)
    states = Counter(trial.state for trial in study.trials)
    assert set(states) == {TrialState.COMPLETE, TrialState.PRUNED}
    assert states[TrialState.PRUNED] > 5


def test_a_single_configuration_can_be_searched(tmp_path: Path) -> None:
    spec = toy_spec(tmp_path, {"A": [1], "B": [True]})
    gpu, problem = toy_gpu(), toy_problem(spec)
    subject = Subject(spec, gpu, problem, search_space(spec, gpu, problem))
    for name in STRATEGIES:
        brain = Brain(subject.space, make_sampler(name, subject, 0))
        assert brain.ask() == Config.of({"A": 1, "B": True})
        assert brain.ask() is None


def test_random_draws_are_uniform(subject: Subject) -> None:
    firsts = Counter(
        Brain(subject.space, samplers.RandomLegal(subject.space, seed)).ask() for seed in range(300)
    )
    # 5 expected of each: none is left out by far or preferred by far.
    assert len(firsts) > 0.9 * subject.space.count
    assert max(firsts.values()) < 20


def test_auto_begins_with_the_default_and_differs_then(subject: Subject) -> None:
    brain = Brain(subject.space, make_sampler("auto", subject, 0))
    first = brain.ask()
    assert first == default_config(subject)
    assert first is not None


def test_the_default_of_the_gpu_is_made_legal(tmp_path: Path) -> None:
    spec = toy_spec(tmp_path, {"A": [1, 2, 4], "B": [1, 2, 4]}, ["A * B == 8"])
    gpu, problem = toy_gpu(), toy_problem(spec)
    space = search_space(spec, gpu, problem)
    assert default_config(Subject(spec, gpu, problem, space)) in space


def test_model_order_is_best_first_and_keeps_its_distance(subject: Subject) -> None:
    def rank(configs: list[Config]) -> list[Config]:
        return sorted(configs, key=lambda config: (cost(config), config.key))

    plain = Brain(subject.space, samplers.ModelOrder(subject.space, rank))  # type: ignore[arg-type]
    order = [plain.ask() for _ in range(10)]
    assert order == rank(list(subject.space))[:10]
    apart = Brain(subject.space, samplers.ModelOrder(subject.space, rank, distance=3))  # type: ignore[arg-type]
    picked = [config for _ in range(4) if (config := apart.ask())]
    assert picked[0] == order[0]
    assert all(
        sum(one[name] != other[name] for name in one) >= 3
        for place, one in enumerate(picked)
        for other in picked[:place]
    )


def test_workers_keep_to_their_own_part_as_long_as_it_lasts(subject: Subject) -> None:
    for name in STRATEGIES:
        parts = []
        for rank in range(3):
            brain = Brain(subject.space, make_sampler(name, subject, 0))
            brain.share(str(rank), ("0", "1", "2"))
            parts.append({brain.ask() for _ in range(8)} - {default_config(subject)})
        assert len(parts[0] | parts[1] | parts[2]) == sum(len(part) for part in parts)


def test_any_base_sampler_is_repaired(subject: Subject) -> None:
    base = optuna.samplers.NSGAIISampler(seed=0, population_size=10)
    brain = Brain(subject.space, samplers.LegalSampler(subject.space, base, 0))
    tried = []
    while config := brain.ask():
        tried.append(config)
        brain.tell(config, Outcome(Status.OK, Origin.PREDICTED, predicted_ms=cost(config)))
    assert len(tried) == len(set(tried)) == subject.space.count
    assert all(config in subject.space for config in tried)


def test_tpe_beats_random_on_a_slope() -> None:
    space = _sgemm().space
    best: dict[str, list[float]] = {"tpe": [], "random": []}
    for name, found in best.items():
        for seed in range(3):
            brain = Brain(space, make_sampler(name, _sgemm(), seed))
            costs = []
            for _ in range(60):
                config = brain.ask()
                assert config is not None
                costs.append(
                    sum(abs(int(config[key]) - 64) for key in ("BM", "BN", "BK")) + int(config["STAGES"])
                )  # type: ignore[call-overload]
                brain.tell(config, Outcome(Status.OK, Origin.PREDICTED, predicted_ms=1.0 + costs[-1]))
            found.append(min(costs))
    assert np.mean(best["tpe"]) < np.mean(best["random"])


@pytest.mark.parametrize("name", STRATEGIES)
def test_proposals_are_quick_on_a_space_of_a_billion(name: str) -> None:
    subject = _sgemm()
    assert subject.space.count > 10**8
    brain = Brain(subject.space, make_sampler(name, subject, 0))
    rng = np.random.default_rng(0)
    seconds = []
    for _ in range(60):
        began = time.process_time()
        config = brain.ask()
        seconds.append(time.process_time() - began)
        assert config is not None
        assert config in subject.space
        brain.tell(config, Outcome(Status.OK, Origin.PREDICTED, predicted_ms=float(rng.random())))
    # The first builds what the others use; 20 ms on an idle machine, three times that under test.
    assert float(np.median(seconds)) < 0.06


def test_unknown_strategies_name_the_nearest(subject: Subject) -> None:
    with pytest.raises(InputError, match="nearest: random"):
        make_sampler("rando", subject, 0)


def _sgemm() -> Subject:
    spec, gpu = load_spec("sgemm"), find_gpu("a6000")
    problem = make_problem(spec, 4096)
    return Subject(spec, gpu, problem, _space(spec, gpu, problem))


def _space(*arguments: object, made: list[SearchSpace] = []) -> SearchSpace:  # noqa: B006
    if not made:
        made.append(search_space(*arguments))  # type: ignore[arg-type]
    return made[0]


def test_sessions_that_come_later_only_take_from_the_others(subject: Subject) -> None:
    parts = {}
    for sessions in (("a", "b"), ("a", "b", "c")):
        for own in sessions:
            sampler = samplers.RandomLegal(subject.space, 0)
            sampler.share(own, sessions)
            parts[own, len(sessions)] = {config for config in subject.space if sampler.mine(config)}
    assert parts["a", 3] < parts["a", 2]
    assert parts["b", 3] < parts["b", 2]
    assert len(parts["a", 3]) + len(parts["b", 3]) + len(parts["c", 3]) == subject.space.count
    assert min(map(len, parts.values())) > subject.space.count / 6


def test_T30_exhaustive_sessions_part_before_all_know_of_each_other(subject: Subject) -> None:
    # Each of eight has heard of one other only, as in the first moments of a study.
    asked = []
    for number in range(8):
        brain = Brain(subject.space, make_sampler("exhaustive", subject, 0))
        assert brain.ask() == subject.space.at(0)
        brain.share(f"s{number}", (f"s{number}", "other"))
        asked += [brain.ask() for _ in range(3)]
    assert len(set(asked)) > len(asked) / 2


def test_exhaustive_stays_exhaustive_when_others_appear(subject: Subject) -> None:
    brain = Brain(subject.space, make_sampler("exhaustive", subject, 0))
    asked = [brain.ask() for _ in range(5)]
    brain.share("a", ("a", "b"))
    while config := brain.ask():
        asked.append(config)
    assert len(asked) == len(set(asked)) == subject.space.count


def test_sessions_part_in_spaces_beyond_64_bits(tmp_path: Path) -> None:
    spec = toy_spec(tmp_path, {f"P{number}": [1, 2, 3] for number in range(60)}, ["P0 + P1 > 2"])
    gpu, problem = toy_gpu(), toy_problem(spec)
    space = search_space(spec, gpu, problem)
    assert space.count > 2**90
    for name in ("exhaustive", "random", "tpe"):
        brain = Brain(space, make_sampler(name, Subject(spec, gpu, problem, space), 0))
        brain.share("a", ("a", "b"))
        assert len({brain.ask() for _ in range(5)}) == 5

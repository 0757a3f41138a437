"""The command line's verbs as Python functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.errors import GpuUnavailable, InputError, NothingFound
from autotune.problem import Problem
from autotune.protocol import Protocol
from autotune.spec.kernel_spec import KernelSpec

if TYPE_CHECKING:
    from autotune.store import Store
    from autotune.study.progress import Progress
    from autotune.study.request import StudyRequest, StudyResult
    from autotune.trial import Stages

MAX_SEED = 2**32 - 1
"""What the strategies' random generators take."""
DEFAULT_TRIALS = 200
"""Where neither trials nor time are given and the strategy has no end of its own."""

Size = int | str | tuple[int, ...] | Problem
"""4096 for all sizes equal, "4096x4096x1024", (4096, 4096, 1024), or a whole problem."""


def search(
    gpu: str,
    kernel: str | KernelSpec = "sgemm",
    size: Size | list[Size] | list[Problem] = 4096,
    *,
    trials: int | None = None,
    time_s: float | None = None,
    strategy: str = "auto",
    seed: int = 0,
    db: str | Path | None = None,
    study: str | None = None,
    folders: Sequence[Path] = (),
    protocol: Protocol | None = None,
    measured_only: bool = False,
    matrix: bool = False,
    on_event: Callable[[Progress], None] | None = None,
) -> list[StudyResult]:
    """The best configuration of each size, and all that was tried; sizes are searched one after the other.

    As a `matrix` they are searched together: each configuration is compiled once and tried on all of them.

    Measures where the GPU is in this machine; else compiles for it and predicts, or with `measured_only`
    raises GpuUnavailable. The same study name goes on where an earlier run stopped. `trials` and `time_s` are
    per size. Raises InputError, and NothingFound where no size got any time.
    """
    from autotune.choice.learned import model_of
    from autotune.compile.pool import CompilePool
    from autotune.device.stages import GpuStages
    from autotune.predicted_stages import PredictedStages, environment_without_gpu
    from autotune.references import check_reference
    from autotune.render import check_template
    from autotune.spec.load import load_spec
    from autotune.store import open_store
    from autotune.study.request import StudyRequest
    from autotune.study.strategies import check_strategy
    from autotune.target import find_target

    spec = kernel if isinstance(kernel, KernelSpec) else load_spec(kernel, folders)
    problems = _problems(spec, size)
    check_reference(spec)
    check_strategy(strategy)
    _check_numbers(trials, time_s, seed)
    _check_work(problems)
    target = find_target(gpu, folders)
    check_template(spec, target.gpu)
    if measured_only and target.local is None:
        raise GpuUnavailable(f"{target.gpu.name} is not in this machine, and only measuring was asked for")
    if trials is None and time_s is None and strategy != "exhaustive":
        trials = DEFAULT_TRIALS

    local = target.local
    if local is None and strategy == "auto":
        # TPE on predictions would only learn the model, which can be asked directly.
        strategy = "model"
    timing = protocol or Protocol()
    requests = [
        StudyRequest(
            spec=spec,
            gpu=target.gpu,
            problem=problem,
            device=local.identity if local else target.gpu.identity,
            environment=local.environment if local else environment_without_gpu(),
            board=local.uuid if local else "",
            study=study or f"{spec.name} on {target.gpu.table}",
            protocol=timing,
            trials=trials,
            time_s=time_s,
            strategy=strategy,
            seed=seed,
        )
        for problem in problems
    ]
    with open_store(db) as store, CompilePool() as pool:
        model = model_of(store, spec, target.gpu, folders)
        requests = [replace(request, model=model) for request in requests]
        if local is None:
            return _run_all(requests, PredictedStages(pool, model), store, on_event, matrix=matrix)
        with GpuStages(local, pool, timing) as stages:
            return _run_all(requests, stages, store, on_event, matrix=matrix)


def replay(
    file: str | Path,
    *,
    size: int | str | tuple[int, ...] | None = None,
    trials: int | None = None,
    time_s: float | None = None,
    strategy: str = "auto",
    seed: int = 0,
    db: str | Path | None = None,
    study: str | None = None,
    on_event: Callable[[Progress], None] | None = None,
) -> list[StudyResult]:
    """The same search with a file of recorded trials in place of a GPU, one result per table in it.

    The file holds exported records or is a cache of Kernel Tuner; `size` picks the tables of one problem. All
    results are of replayed origin, which never answers `best`. Raises as `search` does.
    """
    from autotune.replay.read import read_tables
    from autotune.replay.stages import Recorded, ReplayStages
    from autotune.replay.subject import request_of
    from autotune.store import open_store
    from autotune.study.strategies import check_strategy

    check_strategy(strategy)
    if strategy == "model":
        rule = "a recorded table has no code and no cost, so there is no model to rank its configurations by"
        raise InputError(rule, key="strategy", nearest="auto")
    _check_numbers(trials, time_s, seed)
    tables = read_tables(Path(file))
    # One number stands for all sizes equal, as elsewhere.
    label = "x".join(map(str, size)) if isinstance(size, tuple) else str(size)
    chosen = [
        table for table in tables if size is None or label in (table.problem.label, *_cube(table.problem))
    ]
    if not chosen:
        here = ", ".join(table.problem.label for table in tables)
        raise InputError(f"{file} has no table of {label}", key="size", nearest=here)
    if trials is None and time_s is None and strategy != "exhaustive":
        trials = DEFAULT_TRIALS
    results = []
    with open_store(db) as store:
        for table in chosen:
            name = study or f"replay of {table.name} by {strategy}, seed {seed}"
            request = request_of(
                table, study=name, strategy=strategy, seed=seed, trials=trials, time_s=time_s
            )
            results += _run_all([request], ReplayStages(Recorded(table)), store, on_event)
            if results[-1].interrupted:
                break
    return results


def _cube(problem: Problem) -> tuple[str, ...]:
    sizes = {str(size) for _, size in problem.sizes}
    return tuple(sizes) if len(sizes) == 1 else ()


def _run_all(
    requests: Sequence[StudyRequest],
    stages: Stages,
    store: Store,
    on_event: Callable[[Progress], None] | None,
    *,
    matrix: bool = False,
) -> list[StudyResult]:
    """One result per request, fewer after an interrupt; raises NothingFound where all came to nothing."""
    from autotune.study.request import StudyResult
    from autotune.study.study import run_matrix, run_study

    if matrix:
        # What each size may take, all together may take.
        together = [
            replace(request, time_s=request.time_s and request.time_s * len(requests)) for request in requests
        ]
        return run_matrix(together, stages, store, on_event=on_event)
    results: list[StudyResult] = []
    failures: list[NothingFound] = []
    for request in requests:
        try:
            results.append(run_study(request, stages, store, on_event=on_event))
        except NothingFound as failure:
            failures.append(failure)
            results.append(StudyResult.empty(request, str(failure)))
        if results[-1].interrupted:
            break
    if len(failures) == len(results):
        raise NothingFound("\n".join(str(failure) for failure in failures))
    return results


def _problems(spec: KernelSpec, size: Size | list[Size] | list[Problem]) -> list[Problem]:
    from autotune.problems import make_problem, parse_size

    problems = []
    for one in size if isinstance(size, list) else [size]:
        if isinstance(one, Problem):
            problems.append(one)
        else:
            problems.append(make_problem(spec, parse_size(one, spec) if isinstance(one, str) else one))
    if not problems:
        raise InputError("at least one size is needed, got an empty list", key="size")
    return list(dict.fromkeys(problems))


def _check_numbers(trials: int | None, time_s: float | None, seed: int) -> None:
    if trials is not None and trials < 1:
        raise InputError(f"must be at least 1, got {trials}", key="trials")
    if time_s is not None and time_s <= 0:
        raise InputError(f"must be longer than zero seconds, got {time_s}", key="time_s")
    if not 0 <= seed <= MAX_SEED:
        raise InputError(f"must be from 0 to {MAX_SEED}, got {seed}", key="seed")


def _check_work(problems: Sequence[Problem]) -> None:
    """Kernels have to be right for empty arrays, but there is nothing to be fast at."""
    for problem in problems:
        if not all(size for _, size in problem.sizes):
            raise InputError(f"must be at least 1 to be searched, got {problem.label}", key="size")

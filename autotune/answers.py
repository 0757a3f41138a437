"""What users ask for once something is tuned: the best configuration of a size, and the kernel as a file."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.config import Value
from autotune.errors import NothingFound
from autotune.problem import Problem
from autotune.protocol import Protocol
from autotune.spec.kernel_spec import KernelSpec

if TYPE_CHECKING:
    from autotune.choice.best import Answer
    from autotune.exporter import ExportEntry, ExportReport
    from autotune.records import TrialRecord
    from autotune.store import Store
    from autotune.target import Target


def best(
    gpu: str,
    size: int | str | Sequence[int] | Problem,
    kernel: str | KernelSpec = "sgemm",
    *,
    classes: Mapping[str, Value] | None = None,
    db: str | Path | None = None,
    folders: Sequence[Path] = (),
    protocol: Protocol | None = None,
) -> Answer:
    """The best configuration known for a size, and how it matched (`autotune.choice.best`).

    `best("a6000", (4096, 4096, 4096)).config["BM"]`. Raises InputError, and NothingFound where nothing is
    legal.
    """
    from autotune.spec.load import load_spec
    from autotune.store import open_store
    from autotune.target import find_target

    spec = kernel if isinstance(kernel, KernelSpec) else load_spec(kernel, folders)
    target = find_target(gpu, folders)
    problem = as_problem(spec, size, classes)
    with open_store(db) as store:
        return _answer(store, spec, target, problem, folders, protocol)


def export(
    gpu: str,
    path: str | Path,
    sizes: Sequence[int | str | Sequence[int] | Problem] = (),
    kernel: str | KernelSpec = "sgemm",
    *,
    format: str = "header",
    classes: Mapping[str, Value | list[Value]] | None = None,
    max_kernels: int | None = None,
    db: str | Path | None = None,
    folders: Sequence[Path] = (),
    protocol: Protocol | None = None,
) -> ExportReport:
    """Writes the tuned kernels of the sizes given, or of every size with results, as header, JSON or cubins.

    `classes` names classes other than the default, several values of one in a list: `{"trans_a": ["n", "t"]}` writes a
    header whose functions are told how A lies. Raises InputError, and NothingFound where no size is given and none
    has a result.
    """
    from autotune.exporter import export as write
    from autotune.spec.load import load_spec
    from autotune.store import open_store
    from autotune.target import find_target

    spec = kernel if isinstance(kernel, KernelSpec) else load_spec(kernel, folders)
    target = find_target(gpu, folders)
    with open_store(db) as store:
        wanted = [
            as_problem(spec, size, each) for each in _combinations(classes or {}) for size in sizes
        ] or _known_problems(store, spec, target, folders, classes or {})
        problems = list({problem.key: problem for problem in wanted}.values())
        if not problems:
            raise NothingFound(
                f"nothing is known of {spec.name} on {target.gpu.name}: "
                f"run `autotune search --gpu {target.gpu.table} --kernel {spec.name} --size 4096` first, "
                "or name sizes to export"
            )
        entries = [_entry(store, spec, target, problem, folders, protocol) for problem in problems]
    return write(spec, target.gpu, entries, Path(path), format, max_kernels)


def as_problem(
    spec: KernelSpec, size: int | str | Sequence[int] | Problem, classes: Mapping[str, Value] | None = None
) -> Problem:
    """The problem that a size in any of the ways to write it stands for."""
    from autotune.problems import make_problem, parse_size

    if isinstance(size, Problem):
        return size
    return make_problem(spec, parse_size(size, spec) if isinstance(size, str) else size, classes=classes)


def _answer(
    store: Store,
    spec: KernelSpec,
    target: Target,
    problem: Problem,
    folders: Sequence[Path],
    protocol: Protocol | None,
) -> Answer:
    from autotune.choice.best import Question, best_from

    environment = target.local.environment if target.local else None
    return best_from(store, Question.of(spec, target.gpu, problem, environment, protocol), folders)


def _entry(
    store: Store,
    spec: KernelSpec,
    target: Target,
    problem: Problem,
    folders: Sequence[Path],
    protocol: Protocol | None,
) -> ExportEntry:
    from autotune.exporter import ExportEntry

    answer = _answer(store, spec, target, problem, folders, protocol)
    baseline = _baseline(store, answer.record, folders) if answer.record else None
    return ExportEntry(problem, answer.config, answer.record, answer.match, baseline)


def _baseline(store: Store, record: TrialRecord, folders: Sequence[Path]) -> TrialRecord | None:
    """The vendor library's time in the session of the record: only those two were measured alike."""
    from autotune.choice.shipped import shipped_records
    from autotune.records import Round
    from autotune.store import RecordQuery

    own = store.records(RecordQuery(session=record.session, round=Round.BASELINE))
    shipped = shipped_records(record.kernel, record.device.key, folders)
    for candidate in [*own, *shipped]:
        same = candidate.session == record.session and candidate.problem.key == record.problem.key
        if same and candidate.round is Round.BASELINE:
            return candidate
    return None


def _combinations(classes: Mapping[str, Value | list[Value]]) -> list[dict[str, Value]]:
    listed = {name: _listed(value) for name, value in classes.items()}
    return [dict(zip(listed, values, strict=True)) for values in itertools.product(*listed.values())]


def _listed(value: Value | list[Value]) -> list[Value]:
    return value if isinstance(value, list) else [value]


def _known_problems(
    store: Store,
    spec: KernelSpec,
    target: Target,
    folders: Sequence[Path],
    classes: Mapping[str, Value | list[Value]],
) -> list[Problem]:
    """The problems that have results with the present template, own and shipped.

    Of classes that a call of an exported kernel does not show, those with the values asked for, else the default.
    Values without any result come with the largest size of the others.
    """
    from autotune.choice.shipped import shipped_records
    from autotune.exporter.variants import unseen_classes
    from autotune.records import Status
    from autotune.render import kernel_hash
    from autotune.store import RecordQuery

    device, current = target.gpu.identity.key, kernel_hash(spec)
    query = RecordQuery(kernel=spec.name, kernel_hash=current, device=device, status=Status.OK)
    found = {problem.key: problem for problem in store.problems(query)}
    for record in shipped_records(spec.name, device, folders):
        if record.kernel_hash == current and record.outcome.status is Status.OK:
            found.setdefault(record.problem.key, record.problem)
    asked = {name: _listed(value) for name, value in classes.items()}
    wanted = {**unseen_classes(spec), **asked}

    def serves(problem: Problem) -> bool:
        return all(value in wanted.get(name, [value]) for name, value in problem.classes)

    known = [found[key] for key in sorted(found) if serves(found[key])]
    for each in _combinations(classes):
        # Values that were asked for beside others are served, too, where nobody has tuned them: by one kernel, since
        # every further one is compiled in all its variants.
        if known and not any(each.items() <= dict(problem.classes).items() for problem in known):
            largest = max(known, key=lambda problem: math.prod(size for _, size in problem.sizes))
            known.append(as_problem(spec, [size for _, size in largest.sizes], each))
    return known

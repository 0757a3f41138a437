"""The best configuration known for a problem, and how it was found: never silently something else.

Answers are looked for in this order, and the first that exists is given:

1. `exact`: measured for this very problem; under the protocol asked for before any other.
2. `selected`: foretold to be the fastest of those measured to be good at other sizes (`autotune.model.pick`).
3. `nearest`: measured for a problem of the same type and classes whose sizes are close (`NEAREST_LIMIT`).
4. `predicted`: ranked by the performance model without a GPU.
5. `default`: the first of the kernel's own starts that is for the problem, else its default.

Among equals the user's own results come before shipped ones. A record answers only for the kernel hash it was
made with; another driver, toolkit, space or protocol makes an answer stale, and it says so. Replayed records
never answer.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.choice.answer import Answer, Layer, Match, Question
from autotune.choice.rank import Standing, rank
from autotune.choice.shipped import shipped_records
from autotune.errors import NothingFound
from autotune.problem import Problem, octaves
from autotune.records import Origin, Round, Status, TrialRecord
from autotune.starts import DEFAULTS
from autotune.store import RecordQuery, Store

if TYPE_CHECKING:
    from autotune.model.pick import Pick

__all__ = [
    "NEAREST_LIMIT",
    "Answer",
    "Layer",
    "Match",
    "Question",
    "best_from",
    "distance",
    "find_best",
    "staleness",
]

NEAREST_LIMIT = 1.0
"""Largest distance in octaves at which a problem answers for another: one size may be off by a factor 2."""


def find_best(
    records: Iterable[TrialRecord], question: Question, shipped: Iterable[TrialRecord] = ()
) -> Answer:
    """The answer from the user's own records and the shipped ones, in the order of this module's first lines.

    Raises NothingFound where there is no answer and the question has no default.
    """
    groups = _groups(question, {Layer.OWN: records, Layer.SHIPPED: shipped})
    for group in sorted(groups, key=lambda group: group.preference(question)):
        standings = rank(groups[group], lambda record: not staleness(record, question))
        usable = [standing for standing in standings if question.usable(standing.config)]
        if usable:
            return _answer(group, usable, question)
    if question.default is None:
        raise NothingFound(
            f"nothing is known of {question.kernel} for {question.problem.key} on {question.device}"
        )
    why = f"no result for {question.problem.label}, nor for any size within {NEAREST_LIMIT:g} octave of it"
    named = question.default_name != DEFAULTS
    what = f"the kernel's start {question.default_name!r}" if named else "the kernel's default"
    return Answer(question.default, Match.DEFAULT, f"{why}: {what}")


def best_from(store: Store | None, question: Question, folders: Sequence[Path] = ()) -> Answer:
    """The answer from a store and the shipped studies; other problems are read only where needed."""
    shipped = shipped_records(question.kernel, question.device, folders)
    own = [] if store is None else _stored(store, question, [question.problem])
    if any(_is_exact(record, question) for record in [*own, *shipped]):
        return find_best(own, question, shipped)
    if picked := question.select(store, folders):
        return _selected(picked, question)
    if store is not None:
        query = RecordQuery(kernel=question.kernel, device=question.device, status=Status.OK)
        near = [one for one in store.problems(query) if 0 < distance(one, question.problem) <= NEAREST_LIMIT]
        own += _stored(store, question, near)
    return find_best(own, question, shipped)


def staleness(record: TrialRecord, question: Question) -> tuple[str, ...]:
    """What has changed since a record was made, one sentence each; empty for a current record."""
    then, now = record.environment, question.environment
    changes = []
    if now is not None:
        pairs = {
            "driver": (then.driver, now.driver),
            "CUDA": (then.cuda, now.cuda),
            "compiler": (then.nvrtc, now.nvrtc),
            "autotune": (then.autotune, now.autotune),
        }
        # Without a GPU there is no driver, which then says nothing.
        changes = [
            f"{name} was {old}, is {new}" for name, (old, new) in pairs.items() if old and new and old != new
        ]
    if record.space_hash != question.space_hash:
        changes.append("the parameter space has changed")
    if record.protocol != question.protocol:
        changes.append(f"measured under protocol {record.protocol}, not {question.protocol}")
    return tuple(changes)


def distance(one: Problem, other: Problem) -> float:
    """Octaves between the sizes of two problems, over all sizes; infinite where anything else differs."""
    same_kind = one.dtype == other.dtype and [name for name, _ in one.sizes] == [
        name for name, _ in other.sizes
    ]
    if not same_kind or Problem((), "", one.classes).key != Problem((), "", other.classes).key:
        return math.inf
    # Nothing to do is like no other problem, though its size counts as 1 in octaves.
    if any((size == 0) != (asked == 0) for (_, size), (_, asked) in zip(one.sizes, other.sizes, strict=True)):
        return math.inf
    return octaves(dict(one.sizes), dict(other.sizes))


@dataclass(frozen=True)
class _Group:
    """Records that are ranked together."""

    layer: Layer
    origin: Origin
    problem: Problem
    protocol: str

    def preference(self, question: Question) -> tuple[bool, bool, bool, float, bool, str, str]:
        """Lowest first."""
        apart = distance(self.problem, question.problem)
        return (
            self.origin is Origin.PREDICTED,
            apart > 0,
            self.protocol != question.protocol,
            apart,
            self.layer is Layer.SHIPPED,
            self.problem.key,
            self.protocol,
        )


def _groups(
    question: Question, layers: dict[Layer, Iterable[TrialRecord]]
) -> dict[_Group, list[TrialRecord]]:
    groups: dict[_Group, list[TrialRecord]] = defaultdict(list)
    baselines: dict[_Group, list[TrialRecord]] = defaultdict(list)
    listed = {layer: list(records) for layer, records in layers.items()}
    # A kernel that failed the winner's check is wrong, whatever it was measured for.
    wrong = {
        (record.kernel_hash, record.config)
        for records in listed.values()
        for record in records
        if record.round is Round.FINAL and not record.outcome.status.timed
    }
    for layer, records in listed.items():
        for record in records:
            origin = record.outcome.origin
            if record.device.key != question.device or origin is Origin.REPLAYED:
                continue
            group = _Group(layer, origin, record.problem, record.protocol)
            if record.round is Round.BASELINE:
                baselines[group].append(record)
            elif (record.kernel_hash, record.config) in wrong:
                continue
            elif record.kernel == question.kernel and record.kernel_hash == question.kernel_hash:
                apart = distance(record.problem, question.problem)
                if apart == 0 or (origin is Origin.MEASURED and apart <= NEAREST_LIMIT):
                    groups[group].append(record)
    return {group: records + baselines[group] for group, records in groups.items()}


def _answer(group: _Group, standings: Sequence[Standing], question: Question) -> Answer:
    best = standings[0]
    apart = distance(group.problem, question.problem)
    if group.origin is Origin.PREDICTED:
        match, why = Match.PREDICTED, "predicted by the performance model, not measured"
    elif apart > 0:
        match = Match.NEAREST
        why = f"measured for {group.problem.label}, {apart:.2f} octaves from {question.problem.label}"
    else:
        match, why = Match.EXACT, f"measured for {question.problem.label}"
    return Answer(
        config=best.config,
        match=match,
        why=f"{why} ({group.layer} result)",
        record=best.record,
        layer=group.layer,
        distance=apart,
        staleness=staleness(best.record, question),
        ties=tuple(standing.config for standing in standings[1:] if best.tied(standing)),
    )


def _selected(picked: Pick, question: Question) -> Answer:
    return Answer(
        config=picked.config,
        match=Match.SELECTED,
        why=f"by a model of {picked.times} times the fastest for {question.problem.label} of those good at "
        f"{picked.places} measured sizes, the nearest {picked.nearest:.2f} octaves away",
        distance=picked.nearest,
        predicted_ms=picked.predicted_ms,
    )


def _is_exact(record: TrialRecord, question: Question) -> bool:
    return (
        record.outcome.status is Status.OK
        and record.outcome.origin is Origin.MEASURED
        and record.round is not Round.BASELINE
        and record.kernel_hash == question.kernel_hash
        and distance(record.problem, question.problem) == 0
        and question.usable(record.config)
    )


def _stored(store: Store, question: Question, problems: Iterable[Problem]) -> list[TrialRecord]:
    final = RecordQuery(kernel_hash=question.kernel_hash, device=question.device, round=Round.FINAL)
    found = [record for record in store.records(final) if not record.outcome.status.timed]
    for problem in problems:
        query = RecordQuery(device=question.device, problem=problem.key, status=Status.OK)
        found += [
            record
            for record in store.records(query)
            if record.round is Round.BASELINE or record.kernel == question.kernel
        ]
    return found

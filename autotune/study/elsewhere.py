"""What the database knows of the same kernel at other sizes and on other GPUs."""

from __future__ import annotations

from autotune.config import Config
from autotune.problem import octaves
from autotune.records import Origin, Round, TrialRecord
from autotune.render import kernel_hash
from autotune.store import RecordQuery, Store
from autotune.study.foresight import Prior
from autotune.study.request import StudyRequest

SOURCES = 4
"""From how many pairs of device and problem times are taken at most: the nearest."""
LEAST_TRIALS = 10
"""How many times one has to have to tell anything."""


def priors_of(request: StudyRequest, store: Store) -> list[Prior]:
    """Measured times by device and problem, the nearest first: of this device, then of the most similar sizes.

    The latest time of a configuration counts, however it was measured: only how times compare is made use of.
    """
    query = RecordQuery(
        kernel=request.spec.name,
        kernel_hash=kernel_hash(request.spec),
        origin=Origin.MEASURED,
        round=Round.SEARCH,
    )
    first: dict[tuple[str, str], TrialRecord] = {}
    times: dict[tuple[str, str], dict[Config, float]] = {}
    for record in store.records(query):
        key = (record.device.key, record.problem.key)
        if record.outcome.time_ms is not None and key != (request.device.key, request.problem.key):
            first.setdefault(key, record)
            times.setdefault(key, {})[record.config] = record.outcome.time_ms
    told = [key for key, known in times.items() if len(known) >= LEAST_TRIALS]
    nearest = sorted(told, key=lambda key: _distance(request, first[key]))[:SOURCES]
    return [Prior(", ".join(key), times[key]) for key in nearest]


def _distance(request: StudyRequest, record: TrialRecord) -> tuple[bool, int, float]:
    mine, other = request.problem, record.problem
    classes = sum(dict(other.classes).get(name) != value for name, value in mine.classes)
    sizes = octaves(dict(mine.sizes), dict(other.sizes))
    return record.device.key != request.device.key, classes, sizes

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fakes.toy import toy_request, toy_spec

from autotune.config import Config
from autotune.problem import Problem
from autotune.records import DeviceIdentity, Measurement, Origin, Outcome, Round, Status, TrialRecord
from autotune.render import kernel_hash
from autotune.store import open_store
from autotune.study.elsewhere import SOURCES, priors_of
from autotune.study.request import StudyRequest


def record(request: StudyRequest, n: int, place: int, device: DeviceIdentity | None = None) -> TrialRecord:
    from datetime import UTC, datetime

    return TrialRecord(
        uid=f"{n}-{place}-{device}",
        study="s",
        session="x",
        round=Round.SEARCH,
        kernel=request.spec.name,
        kernel_hash=kernel_hash(request.spec),
        space_hash="",
        config=Config.of({"A": place}),
        problem=Problem((("N", n),), "float32"),
        device=device or request.device,
        environment=request.environment,
        protocol="cold",
        outcome=Outcome(Status.OK, Origin.MEASURED, measurement=Measurement((1.0 + place,), 1)),
        board="",
        created=datetime.now(UTC),
    )


def test_the_nearest_sizes_come_first_then_other_gpus(tmp_path: Path) -> None:
    spec = toy_spec(tmp_path, {"A": list(range(20))})
    request = toy_request(spec, 10)
    (own,) = dict(request.problem.sizes).values()
    other = replace(request.device, sm_count=7)
    with open_store(tmp_path / "db.sqlite") as store:
        for place in range(12):
            for n in (own, own * 8, own * 2):
                store.add(record(request, n, place))
            store.add(record(request, own, place, other))
        # Too few to tell anything; of another kernel; a prediction's like is never asked for.
        store.add(record(request, own * 4, 0))
        for place in range(12):
            alien = record(request, own * 16, place)
            store.add(replace(alien, kernel_hash="other"))
        found = priors_of(request, store)
    near, far, elsewhere = found
    assert near.source.endswith(Problem((("N", own * 2),), "float32").key)
    assert far.source.endswith(Problem((("N", own * 8),), "float32").key)
    assert elsewhere.source.startswith(other.key)
    assert near.times_ms[Config.of({"A": 3})] == 4.0
    assert len(found) <= SOURCES

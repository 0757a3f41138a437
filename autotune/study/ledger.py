"""The records of one study, shared through the store with earlier runs and with other workers."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime

from autotune.config import Config
from autotune.records import Environment, Origin, Outcome, Round, TrialRecord
from autotune.render import kernel_hash
from autotune.space.search_space import SearchSpace
from autotune.spec.load import space_hash
from autotune.store import RecordQuery, Store
from autotune.study.request import StudyRequest


class Ledger:
    """Knows every configuration tried in the study that its space still holds, and adds what this run finds.

    Records of another kernel hash, device, problem, protocol, origin, driver or compiler never answer for this
    study, nor do configurations that the present space does not hold.
    """

    def __init__(self, request: StudyRequest, origin: Origin, store: Store, space: SearchSpace) -> None:
        self.added: list[TrialRecord] = []
        self.outside = 0
        """Earlier search records left out since the space changed."""
        self.stale = 0
        """Earlier search records left out since the driver or the compiler changed."""
        self._request = request
        self.origin = origin
        self._store = store
        self._space = space
        self._kernel_hash = kernel_hash(request.spec)
        self._space_hash = space_hash(request.spec)
        self._query = RecordQuery(study=request.study, kernel=request.spec.name)
        self._mark: int | None = None
        self._others: set[str] = set()
        self._uids: set[str] = set()
        self._tried: dict[Config, TrialRecord] = {}
        self._finals: list[TrialRecord] = []
        self._wrong: set[Config] = set()
        """Failed the check at other sizes that winners have to pass."""
        self.measured = 0
        """How many distinct configurations have a time."""
        self.best: TrialRecord | None = None
        """The fastest of `timed`."""
        self.best_ms: float | None = None
        """The fastest time on this board: what a later trial may be dropped against."""

    def refresh(self) -> list[TrialRecord]:
        """The search records that others added since the last call; all of the study's on the first."""
        first = self._mark is None
        records, self._mark = self._store.records_after(self._mark or 0, self._query)
        fresh = []
        for record in records:
            if record.uid in self._uids:
                continue
            self._uids.add(record.uid)
            if not self._belongs(record):
                continue
            if _software(record.environment) != _software(self._request.environment):
                self.stale += record.round is Round.SEARCH
                continue
            if not first:
                self._others.add(record.session)
            if record.config not in self._space:
                self.outside += record.round is Round.SEARCH
            elif record.round is Round.FINAL:
                self._add_final(record)
            elif record.round is Round.SEARCH and record.config not in self._tried:
                self._try(record)
                fresh.append(record)
        return fresh

    def get(self, config: Config) -> TrialRecord | None:
        """The search trial of a configuration, whoever ran it."""
        return self._tried.get(config)

    def add(self, config: Config, outcome: Outcome, round_: Round = Round.SEARCH) -> TrialRecord:
        """Stores one finished trial; it is durable when this returns."""
        return self.add_many([(config, outcome)], round_)[0]

    def add_many(
        self, finished: Sequence[tuple[Config, Outcome]], round_: Round = Round.SEARCH
    ) -> list[TrialRecord]:
        """The same for several at once."""
        name = self._request.spec.name
        return self._store_records(
            [self._record(name, self._kernel_hash, config, outcome, round_) for config, outcome in finished]
        )

    def add_baseline(self, name: str, outcome: Outcome) -> TrialRecord:
        """Stores a vendor routine's time under its own name."""
        return self._store_records([self._record(name, "", Config(()), outcome, Round.BASELINE)])[0]

    @property
    def sessions(self) -> tuple[str, ...]:
        """This run and those that have added to the study since it began, in one order for all."""
        return tuple(sorted({self._request.session, *self._others}))

    @property
    def tried(self) -> list[TrialRecord]:
        """One search record per configuration of the study."""
        return list(self._tried.values())

    @property
    def timed(self) -> list[TrialRecord]:
        """Those with a time, fastest first; without those that turned out wrong at other sizes."""
        timed = [
            record
            for record in self._tried.values()
            if record.outcome.time_ms is not None and record.config not in self._wrong
        ]
        return sorted(timed, key=time_ms)

    @property
    def finals(self) -> list[TrialRecord]:
        """The study's final-round records that have a time and are right."""
        return [record for record in self._finals if record.config not in self._wrong]

    def _belongs(self, record: TrialRecord) -> bool:
        request = self._request
        return (
            record.kernel_hash == self._kernel_hash
            and record.device.key == request.device.key
            and record.problem == request.problem
            and record.protocol == request.protocol.key
            and record.outcome.origin is self.origin
        )

    def _record(
        self, kernel: str, kernel_hash: str, config: Config, outcome: Outcome, round_: Round
    ) -> TrialRecord:
        request = self._request
        return TrialRecord(
            uid=uuid.uuid4().hex,
            study=request.study,
            session=request.session,
            round=round_,
            kernel=kernel,
            kernel_hash=kernel_hash,
            space_hash=self._space_hash,
            config=config,
            problem=request.problem,
            device=request.device,
            environment=request.environment,
            protocol=request.protocol.key,
            outcome=outcome,
            board=request.board,
            created=datetime.now(UTC),
        )

    def _store_records(self, records: list[TrialRecord]) -> list[TrialRecord]:
        self._store.add_many(records)
        for record in records:
            self._uids.add(record.uid)
            self.added.append(record)
            if record.round is Round.SEARCH:
                self._try(record)
            elif record.round is Round.FINAL:
                self._add_final(record)
        return records

    def _add_final(self, record: TrialRecord) -> None:
        if record.outcome.status.timed:
            self._finals.append(record)
        else:
            self._wrong.add(record.config)
            self.best = self.best_ms = None
            for tried in self._tried.values():
                self._compare(tried)

    def _try(self, record: TrialRecord) -> None:
        # Kept up to date one by one: a study may hold a hundred thousand.
        if record.config not in self._tried:
            self._tried[record.config] = record
            self.measured += record.outcome.status.timed
            self._compare(record)

    def _compare(self, record: TrialRecord) -> None:
        time = record.outcome.time_ms
        if time is None or record.config in self._wrong:
            return
        if self.best is None or time < time_ms(self.best):
            self.best = record
        if record.board == self._request.board and (self.best_ms is None or time < self.best_ms):
            self.best_ms = time


def _software(environment: Environment) -> tuple[str, ...]:
    """What decides how fast the same source runs; a new version of autotune changes the protocol if anything."""
    return environment.driver, environment.cuda, environment.nvrtc


def time_ms(record: TrialRecord) -> float:
    """The time of a record that has one."""
    assert record.outcome.time_ms is not None
    return record.outcome.time_ms

"""One problem's part in a search: what is known of it, who proposes for it, and what it comes to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from autotune.candidate import Candidate
from autotune.config import Config
from autotune.errors import GpuUnavailable, NothingFound, StageFailure
from autotune.records import Outcome, Round, Status, TrialRecord
from autotune.space.search_space import SearchSpace
from autotune.study.budget import Budget
from autotune.study.final import Compares, FinalRound, MeasuresBaseline, choose_leaders, find_ties, remeasure
from autotune.study.interrupt import Interrupt
from autotune.study.ledger import Ledger, time_ms
from autotune.study.listing import Asker
from autotune.study.progress import Occupation, group_failures
from autotune.study.request import StudyRequest, StudyResult
from autotune.trial import VendorTime


class Contest:
    """The configurations compete on one problem."""

    def __init__(
        self, request: StudyRequest, space: SearchSpace, ledger: Ledger, asker: Asker, budget: Budget
    ) -> None:
        self.request = request
        self.space = space
        self.ledger = ledger
        self.budget = budget
        self.measured_now = 0
        self.failures: Counter[Status] = Counter()
        self.notes: list[str] = []
        self._asker = asker
        self._in_flight = 0
        self._asked_all = False
        self._ended = ""
        self._asker.learn(ledger.refresh())

    @property
    def exhausted(self) -> bool:
        """Whether there is nothing left to ask for or to wait for."""
        return self._asked_all and not self._in_flight

    @property
    def wants_more(self) -> bool:
        """Whether another configuration should be begun."""
        return not self._asked_all and self.budget.allows(self.ledger.measured, self._in_flight)

    def is_over(self) -> bool:
        """Whether budget or space are used up."""
        self._ended = self.budget.verdict(self.ledger.measured)
        return bool(self._ended) or self.exhausted

    def learn_from_others(self) -> None:
        """Takes in what other workers of the same study stored meanwhile."""
        known = self.ledger.sessions
        self._asker.learn(self.ledger.refresh())
        # Also where they stored nothing but what is known here: in step with them, it would stay so.
        if self.ledger.sessions != known:
            self._asker.share(self.request.session, self.ledger.sessions)

    def ask(self) -> Config | None:
        """The next configuration to try; None where there is none left."""
        config = self._asker.ask()
        if config is None:
            self._asked_all = True
        else:
            self._in_flight += 1
        return config

    def claim(self, config: Config) -> bool:
        """Whether a configuration that another problem asked for is to be tried on this one too."""
        wanted = self.wants_more and config in self.space and self._asker.claim(config)
        self._in_flight += wanted
        return wanted

    def candidate(self, config: Config) -> Candidate:
        """The configuration as what a trial is about."""
        return Candidate(self.request.spec, self.request.gpu, self.request.problem, config)

    def store(self, finished: Sequence[tuple[Config, Outcome | None]]) -> list[TrialRecord]:
        """Stores what trials came to, then tells whoever asked; None where another worker was faster."""
        ours = [(config, outcome) for config, outcome in finished if outcome is not None]
        records = self.ledger.add_many(ours) if ours else []
        self._in_flight -= len(finished)
        for config, outcome in finished:
            if outcome is None:
                known = self.ledger.get(config)
                assert known is not None
                self._asker.tell(config, known.outcome)
                continue
            self._asker.tell(config, outcome)
            self.budget.note(outcome.status.timed)
            self.measured_now += outcome.status.timed
            self.failures[outcome.status] += not outcome.status.timed
        return records

    def measure_baseline(self, stages: MeasuresBaseline, interrupt: Interrupt) -> None:
        """Times the vendor's routine."""
        request = self.request
        try:
            baseline = interrupt.attempt(lambda: stages.baseline(request.spec, request.problem))
        except (StageFailure, GpuUnavailable) as failure:
            # Where the GPU itself is gone, the first trial says so.
            self.notes.append(f"no baseline: {failure}")
            return
        if baseline:
            self.add_baseline(baseline)

    def add_baseline(self, vendor: VendorTime) -> None:
        """Records the vendor's time beside the session's own."""
        outcome = Outcome(Status.OK, self.ledger.origin, measurement=vendor.measurement, notes=vendor.notes)
        self.ledger.add_baseline(vendor.name, outcome)

    def leaders(self) -> list[TrialRecord]:
        """What the final round is about; nothing where this run measured nothing new."""
        return choose_leaders(self.ledger.timed) if self.measured_now else []

    def final_round(self, leaders: Sequence[TrialRecord], stages: Compares, interrupt: Interrupt) -> None:
        """Measures the leaders again, interleaved."""
        candidates = [self.candidate(record.config) for record in leaders]
        final = interrupt.attempt(lambda: remeasure(candidates, stages)) or FinalRound()
        for candidate, outcome in final.outcomes:
            self.ledger.add(candidate.config, outcome, Round.FINAL)
            if not outcome.status.timed:
                self.notes.append(f"{candidate.config.key} is out: {outcome.reason}")
        if final.vendor:
            self.add_baseline(final.vendor)

    def result(self, occupation: Occupation, *, interrupted: bool) -> StudyResult:
        """The result; raises NothingFound where the study has no time at all."""
        ledger = self.ledger
        ranked = self._ranked()
        if not ranked and not interrupted:
            raise NothingFound(_nothing_worked(self.request, ledger.tried, self._ended))
        searched = [record for record in ledger.added if record.round is Round.SEARCH]
        return StudyResult(
            request=self.request,
            best=ranked[0] if ranked else None,
            records=tuple(ledger.added),
            counts=Counter(record.outcome.status for record in searched),
            measured=ledger.measured,
            legal=self.space.count,
            exhausted=self.exhausted,
            interrupted=interrupted,
            ties=find_ties(ranked[0], ranked[1:]) if ranked else (),
            baseline=tuple(record for record in ledger.added if record.round is Round.BASELINE),
            occupation=occupation,
            notes=tuple(self._all_notes(interrupted)),
        )

    def _ranked(self) -> list[TrialRecord]:
        """Fastest first: the latest final round unless trials came after it, else the search's trials."""
        finals = self.ledger.finals
        latest = finals[-1].session if finals else ""
        if finals and (latest == self.request.session or not self.measured_now):
            return sorted((record for record in finals if record.session == latest), key=time_ms)
        return self.ledger.timed

    def _all_notes(self, interrupted: bool) -> list[str]:
        """Why the run ended, then what else there is to know."""
        notes = []
        if interrupted:
            notes.append("interrupted: every finished trial is stored, the same study name goes on from here")
        elif self._ended:
            notes.append(self._ended)
        elif self.exhausted:
            notes.append(
                f"the space is exhausted: all {self.space.count} legal configurations have been tried"
            )
        if self.ledger.outside:
            notes.append(
                f"{self.ledger.outside} earlier trials lie outside the present space and are left out"
            )
        if self.ledger.stale:
            notes.append(
                f"{self.ledger.stale} earlier trials are of another driver or compiler and are left out"
            )
        return notes + self.notes


def nothing_legal(request: StudyRequest, space: SearchSpace) -> str:
    """Why a study has nothing to try, rule by rule."""
    lines = [f"no configuration of {request.spec.name} is legal on {request.gpu.name}; removed by each rule:"]
    lines += [f"  {count:>10}  {rule.because}" for rule, count in space.removed_by_rule()]
    return "\n".join(lines)


def _nothing_worked(request: StudyRequest, tried: list[TrialRecord], ended: str) -> str:
    groups = group_failures(tried)
    if not groups:
        return f"no trial of {request.spec.name} was finished: {ended or 'there was nothing to try'}"
    lines = [f"none of {len(tried)} configurations of {request.spec.name} worked on {request.gpu.name}:"]
    lines += [f"  {group.count:>6} x {group.status}: {group.reason}" for group in groups]
    return "\n".join(lines)

"""The study loop: ask for a configuration, run its trial, record it, tell the sampler; a final round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from autotune.candidate import Candidate
from autotune.config import Config
from autotune.errors import GpuUnavailable, NothingFound, StageFailure
from autotune.launch import check_call
from autotune.legality import search_space
from autotune.problems import check_problem
from autotune.records import Outcome, Round, Status, TrialRecord
from autotune.space.search_space import SearchSpace
from autotune.store import Store
from autotune.study.budget import PATIENCE, Budget
from autotune.study.final import Compares, FinalRound, MeasuresBaseline, choose_leaders, find_ties, remeasure
from autotune.study.interrupt import Interrupt
from autotune.study.ledger import Ledger, time_ms
from autotune.study.progress import Progress, group_failures, metrics
from autotune.study.request import StudyRequest, StudyResult
from autotune.study.stopwatch import Stopwatch
from autotune.study.strategies import Subject, make_sampler
from autotune.study.window import Window
from autotune.trial import Stages, VendorTime, run_trial

if TYPE_CHECKING:
    from autotune.study.samplers import LegalSampler

OnEvent = Callable[[Progress], None]


def run_study(
    request: StudyRequest,
    stages: Stages,
    store: Store,
    sampler: LegalSampler | None = None,
    on_event: OnEvent | None = None,
) -> StudyResult:
    """What a study comes to within its budget, continuing what the store already holds of it.

    Each finished trial is stored before the next begins. Ctrl-C ends the run early with what is there. The
    caller closes `stages`, which ends whatever is in flight. Raises NothingFound where no configuration is
    legal or none ever got a time, and InputError for an unknown strategy or a problem that cannot be run.
    """
    check_problem(request.spec, request.problem)
    check_call(request.spec, request.problem, request.gpu)
    space = request.space or search_space(request.spec, request.gpu, request.problem)
    if not space.count:
        raise NothingFound(_nothing_legal(request, space))
    study = _Study(request, stages, store, space, sampler, on_event)
    with Interrupt() as interrupt:
        study.measure_baseline(interrupt)
        study.search(interrupt)
        study.final_round(interrupt)
    return study.result(interrupt.requested)


class _Study:
    """The state of one run."""

    def __init__(
        self,
        request: StudyRequest,
        stages: Stages,
        store: Store,
        space: SearchSpace,
        sampler: LegalSampler | None,
        on_event: OnEvent | None,
    ) -> None:
        from autotune.study.brain import Brain

        subject = Subject(request.spec, request.gpu, request.problem, space)
        self.request = request
        self.stages = stages
        self.space = space
        self.on_event = on_event
        self.ledger = Ledger(request, stages.origin, store, space)
        self.brain = Brain(
            space, sampler or make_sampler(request.strategy, subject, request.seed, request.trials)
        )
        # Somebody who asks for everything gets it, however much of it fails.
        self.budget = Budget(
            request.trials, request.time_s, None if request.strategy == "exhaustive" else PATIENCE
        )
        self.stopwatch = Stopwatch(stages)
        self.exhausted = False
        self.ended = ""
        self.notes: list[str] = []
        self.measured_now = 0
        self.failures: Counter[Status] = Counter()
        self.brain.learn(self.ledger.refresh())

    def search(self, interrupt: Interrupt) -> None:
        """Ask, run, record, tell, until the budget or the space is used up."""
        window = Window(self.stages)
        self.emit("search")
        while not interrupt.requested:
            self.learn_from_others()
            self.ended = self.budget.verdict(self.ledger.measured)
            if self.ended:
                break
            interrupt.attempt(lambda: self.fill(window))
            if interrupt.requested or not len(window):
                break
            candidate = interrupt.attempt(lambda: self.stopwatch.wait_for(window.take))
            if candidate is None:
                break
            known = self.ledger.get(candidate.config)
            if known:
                # Another worker was faster; nothing is run twice.
                self.brain.tell(candidate.config, known.outcome)
                continue
            outcome = self.try_one(candidate, interrupt)
            if outcome is None:
                break
            record = self.ledger.add(candidate.config, outcome)
            self.brain.tell(candidate.config, outcome)
            self.budget.note(outcome.status.timed)
            self.measured_now += outcome.status.timed
            self.failures[outcome.status] += not outcome.status.timed
            self.emit("search", record)
        window.drop_all()

    def learn_from_others(self) -> None:
        """Takes in what other workers of the same study stored meanwhile."""
        known = self.ledger.sessions
        self.brain.learn(self.ledger.refresh())
        # Also where they stored nothing but what is known here: in step with them, it would stay so.
        if self.ledger.sessions != known:
            self.brain.share(self.request.session, self.ledger.sessions)

    def fill(self, window: Window) -> None:
        """Asks for candidates until enough are in flight, the budget is covered or none are left."""
        while window.has_room and self.budget.allows(self.ledger.measured, len(window)):
            config = self.brain.ask()
            if config is None:
                self.exhausted = not len(window)
                return
            window.add(self.candidate(config))

    def try_one(self, candidate: Candidate, interrupt: Interrupt) -> Outcome | None:
        """What became of the candidate; None where Ctrl-C cut it short."""
        return interrupt.attempt(lambda: run_trial(candidate, self.stopwatch, self.ledger.best_ms))

    def measure_baseline(self, interrupt: Interrupt) -> None:
        """Times the vendor's routine where the stages know one."""
        stages, request = self.stages, self.request
        if not isinstance(stages, MeasuresBaseline):
            return
        self.emit("baseline")
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
        outcome = Outcome(Status.OK, self.stages.origin, measurement=vendor.measurement, notes=vendor.notes)
        self.ledger.add_baseline(vendor.name, outcome)

    def final_round(self, interrupt: Interrupt) -> None:
        """Measures the leaders again, interleaved; left out where this run measured nothing new."""
        leaders = choose_leaders(self.ledger.timed) if self.measured_now else []
        stages = self.stages
        if not leaders or interrupt.requested or not isinstance(stages, Compares):
            return
        self.emit("final")
        candidates = [self.candidate(record.config) for record in leaders]
        final = interrupt.attempt(lambda: remeasure(candidates, stages)) or FinalRound()
        for candidate, outcome in final.outcomes:
            self.ledger.add(candidate.config, outcome, Round.FINAL)
            if not outcome.status.timed:
                self.notes.append(f"{candidate.config.key} is out: {outcome.reason}")
        if final.vendor:
            self.add_baseline(final.vendor)

    def result(self, interrupted: bool) -> StudyResult:
        """The result; raises NothingFound where the study has no time at all."""
        ledger = self.ledger
        ranked = self.ranked()
        if not ranked and not interrupted:
            raise NothingFound(_nothing_worked(self.request, ledger.tried, self.ended))
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
            notes=tuple(self.all_notes(interrupted)),
        )

    def ranked(self) -> list[TrialRecord]:
        """Fastest first: the latest final round unless trials came after it, else the search's trials."""
        finals = self.ledger.finals
        latest = finals[-1].session if finals else ""
        if finals and (latest == self.request.session or not self.measured_now):
            return sorted((record for record in finals if record.session == latest), key=time_ms)
        return self.ledger.timed

    def all_notes(self, interrupted: bool) -> list[str]:
        """Why the run ended, then what else there is to know."""
        notes = []
        if interrupted:
            notes.append("interrupted: every finished trial is stored, the same study name goes on from here")
        elif self.exhausted:
            notes.append(
                f"the space is exhausted: all {self.space.count} legal configurations have been tried"
            )
        elif self.ended:
            notes.append(self.ended)
        if self.ledger.outside:
            notes.append(
                f"{self.ledger.outside} earlier trials lie outside the present space and are left out"
            )
        if self.ledger.stale:
            notes.append(
                f"{self.ledger.stale} earlier trials are of another driver or compiler and are left out"
            )
        return notes + self.notes

    def candidate(self, config: Config) -> Candidate:
        """The configuration as what a trial is about."""
        return Candidate(self.request.spec, self.request.gpu, self.request.problem, config)

    def emit(self, phase: str, last: TrialRecord | None = None) -> None:
        """Tells whoever draws the progress."""
        if self.on_event is None:
            return
        request, budget, ledger = self.request, self.budget, self.ledger
        best = ledger.best
        elapsed = max(budget.elapsed_s, 1e-9)
        self.on_event(
            Progress(
                phase=phase,
                problem=request.problem,
                origin=self.stages.origin,
                done=ledger.measured,
                total=None if request.trials is None else min(request.trials, self.space.count),
                failures=+self.failures,
                best_ms=time_ms(best) if best else None,
                best_config=best.config if best else None,
                best_metrics=metrics(request.spec, request.problem, time_ms(best)) if best else {},
                elapsed_s=elapsed,
                time_left_s=budget.time_left_s(ledger.measured, self.measured_now),
                gpu_busy=self.stopwatch.gpu_s / elapsed,
                compile_wait=self.stopwatch.compile_wait_s / elapsed,
                last=last,
            )
        )


def _nothing_legal(request: StudyRequest, space: SearchSpace) -> str:
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

"""The study loop: ask for configurations, have them tried, record them, tell who asked; a final round.

One loop serves one problem or many. With many, their strategies take turns; what any of them asks for is compiled
once and tried on all of them while it is loaded, so that every strategy learns from every trial.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from typing import TYPE_CHECKING

from autotune.candidate import Candidate, Source
from autotune.config import Config
from autotune.errors import NothingFound
from autotune.launch import check_call
from autotune.legality import search_space
from autotune.problems import check_problem
from autotune.records import Origin, Outcome, TrialRecord
from autotune.space.search_space import SearchSpace
from autotune.store import Store
from autotune.study.budget import PATIENCE, Budget
from autotune.study.contest import Contest, nothing_legal
from autotune.study.elsewhere import priors_of
from autotune.study.final import Compares, MeasuresBaseline
from autotune.study.interrupt import Interrupt
from autotune.study.ledger import Ledger, time_ms
from autotune.study.listing import Asker, Listing
from autotune.study.progress import Occupation, Progress, metrics
from autotune.study.request import StudyRequest, StudyResult
from autotune.study.stopwatch import Stopwatch
from autotune.study.strategies import Subject, make_sampler
from autotune.study.window import Window
from autotune.trial import Stages, run_trial

if TYPE_CHECKING:
    from autotune.study.foresight import Prior
    from autotune.study.samplers import LegalSampler

OnEvent = Callable[[Progress], None]

TURN_S = 0.0005
"""The thread of trials waits this long for the interpreter; Python's own 5 ms add up to a trial's time."""
REFRESH_S = 1.0
"""How often a run over many problems looks for what other workers stored."""


def run_study(
    request: StudyRequest,
    stages: Stages,
    store: Store,
    sampler: LegalSampler | None = None,
    on_event: OnEvent | None = None,
) -> StudyResult:
    """What a study comes to within its budget, continuing what the store already holds of it.

    Each finished trial is stored before anybody is told of it. Ctrl-C ends the run early with what is there. The
    caller closes `stages`, which ends whatever is in flight. Raises NothingFound where no configuration is
    legal or none ever got a time, and InputError for an unknown strategy or a problem that cannot be run.
    """
    search = _Search([_contest(request, stages, store, sampler=sampler)], stages, on_event)
    interrupted = search.run()
    return search.contests[0].result(search.occupation, interrupted=interrupted)


def run_matrix(
    requests: Sequence[StudyRequest],
    stages: Stages,
    store: Store,
    configs: Sequence[Config] | None = None,
    on_event: OnEvent | None = None,
    *,
    final: bool = True,
) -> list[StudyResult]:
    """Like `run_study` for several problems of one kernel at once: a configuration is tried on all of them.

    With `configs`, those are tried in their order instead of what the requests' strategies ask for. Budgets are per
    problem, seconds those of the whole run. Problems for which nothing is legal or worked have an empty result;
    raises NothingFound where that are all of them. `final` rounds may be left out.
    """
    contests, results = [], {}
    for request in requests:
        try:
            contests.append(_contest(request, stages, store, configs=configs))
        except NothingFound as failure:
            results[request.session] = StudyResult.empty(request, str(failure))
    if contests:
        search = _Search(contests, stages, on_event, final=final)
        interrupted = search.run()
        for contest in contests:
            try:
                result = contest.result(search.occupation, interrupted=interrupted)
            except NothingFound as failure:
                result = StudyResult.empty(contest.request, str(failure))
            results[contest.request.session] = result
    ordered = [results[request.session] for request in requests]
    if not any(result.best or result.interrupted for result in ordered):
        raise NothingFound("\n".join(note for result in ordered for note in result.notes))
    return ordered


@contextlib.contextmanager
def _quick_turns() -> Iterator[None]:
    """Lets the thread that keeps the GPU at work have the interpreter soon when it needs it."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(TURN_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _contest(
    request: StudyRequest,
    stages: Stages,
    store: Store,
    sampler: LegalSampler | None = None,
    configs: Sequence[Config] | None = None,
) -> Contest:
    check_problem(request.spec, request.problem)
    check_call(request.spec, request.problem, request.gpu)
    space = request.space or search_space(request.spec, request.gpu, request.problem)
    if not space.count:
        raise NothingFound(nothing_legal(request, space))
    if configs is None:
        # What is recorded elsewhere must not help a replay that is to show what a strategy finds by itself.
        wanted = request.strategy == "auto" and sampler is None and stages.origin is Origin.MEASURED
        asker = _brain(request, space, sampler, priors_of(request, store) if wanted else [])
    else:
        asker = Listing(space, configs)
    # Somebody who asks for everything gets it, however much of it fails.
    patience = None if request.strategy == "exhaustive" or configs is not None else PATIENCE
    budget = Budget(request.trials, request.time_s, patience)
    return Contest(request, space, Ledger(request, stages.origin, store, space), asker, budget)


def _brain(
    request: StudyRequest, space: SearchSpace, sampler: LegalSampler | None, priors: Sequence[Prior]
) -> Asker:
    from autotune.study.brain import Brain

    subject = Subject(request.spec, request.gpu, request.problem, space, request.model)
    return Brain(space, sampler or make_sampler(request.strategy, subject, request.seed, priors))


class _Search:
    """One run."""

    def __init__(
        self, contests: Sequence[Contest], stages: Stages, on_event: OnEvent | None, *, final: bool = True
    ) -> None:
        self.contests = contests
        self.stages = stages
        self.on_event = on_event
        self.final = final
        self.stopwatch = Stopwatch(stages)
        self.occupation = Occupation()
        self.finished = 0
        self._by_problem = {contest.request.problem: contest for contest in contests}
        self._turns = cycle(contests)
        self._refreshed = 0.0

    def run(self) -> bool:
        """Baselines, the search, final rounds; gives whether it was interrupted."""
        with Interrupt() as interrupt, _quick_turns():
            self.measure_baselines(interrupt)
            window = Window(self.stages, self.try_one)
            try:
                self.search(window, interrupt)
            finally:
                window.close(wait=False)
            self.final_rounds(interrupt)
            return interrupt.requested

    def search(self, window: Window, interrupt: Interrupt) -> None:
        """Ask, try, record, tell, until the budgets or the spaces are used up."""
        self.emit("search", self.contests[0])
        while not interrupt.requested:
            self.learn_from_others()
            if all(contest.is_over() for contest in self.contests):
                break
            interrupt.attempt(lambda: self.fill(window))
            if not len(window):
                break
            interrupt.attempt(window.wait)
            self.store(window)
        window.close(wait=not interrupt.requested)
        self.store(window)

    def fill(self, window: Window) -> None:
        """Asks until enough is in flight, the budgets are covered or nothing is left; problems take turns."""
        while window.has_room and any(contest.wants_more for contest in self.contests):
            contest = next(self._turns)
            config = contest.ask() if contest.wants_more else None
            if config is not None:
                others = [one for one in self.contests if one is not contest and one.claim(config)]
                window.add([one.candidate(config) for one in (contest, *others)])

    def try_one(self, candidate: Candidate, begun: Source | Outcome) -> Outcome | None:
        """What becomes of a candidate, in the window's thread; None where another worker was faster."""
        ledger = self._by_problem[candidate.problem].ledger
        if ledger.get(candidate.config):
            return None
        return run_trial(candidate, self.stopwatch, ledger.best_ms, begun)

    def store(self, window: Window) -> None:
        """Records what the window has finished."""
        finished: dict[Contest, list[tuple[Config, Outcome | None]]] = {}
        for candidate, outcome in window.take_finished():
            finished.setdefault(self._by_problem[candidate.problem], []).append((candidate.config, outcome))
        for contest, trials in finished.items():
            records = contest.store(trials)
            self.finished += len(records)
            self.occupation = self.stopwatch.occupation(window, self.finished)
            for record in records:
                self.emit("search", contest, record)

    def learn_from_others(self) -> None:
        """Asks the store for what other workers found; not for many problems after each trial."""
        now = time.monotonic()
        if len(self.contests) == 1 or now - self._refreshed > REFRESH_S:
            self._refreshed = now
            for contest in self.contests:
                contest.learn_from_others()

    def measure_baselines(self, interrupt: Interrupt) -> None:
        """Times the vendor's routine where the stages know one."""
        if isinstance(self.stages, MeasuresBaseline):
            for contest in self.contests:
                self.emit("baseline", contest)
                contest.measure_baseline(self.stages, interrupt)

    def final_rounds(self, interrupt: Interrupt) -> None:
        """The leaders of each problem, interleaved."""
        if not self.final or not isinstance(self.stages, Compares):
            return
        for contest in self.contests:
            leaders = contest.leaders()
            if leaders and not interrupt.requested:
                self.emit("final", contest)
                contest.final_round(leaders, self.stages, interrupt)

    def emit(self, phase: str, contest: Contest, last: TrialRecord | None = None) -> None:
        """Tells whoever draws the progress."""
        if self.on_event is None:
            return
        request, budget, ledger = contest.request, contest.budget, contest.ledger
        best = ledger.best
        self.on_event(
            Progress(
                phase=phase,
                problem=request.problem,
                origin=self.stages.origin,
                done=ledger.measured,
                total=None if request.trials is None else min(request.trials, contest.space.count),
                failures=+contest.failures,
                best_ms=time_ms(best) if best else None,
                best_config=best.config if best else None,
                best_metrics=metrics(request.spec, request.problem, time_ms(best)) if best else {},
                elapsed_s=max(budget.elapsed_s, 1e-9),
                time_left_s=budget.time_left_s(ledger.measured, contest.measured_now),
                occupation=self.occupation,
                last=last,
            )
        )

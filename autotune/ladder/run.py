"""Measures a ladder: each step verified and, where asked, tuned; then all of them in turn, with the vendor's library.

    choose     every step's configuration, the production kernel's and the peak's
    compare    all of them interleaved, so that drifting clocks meet all alike
    contests   the comparisons beside the ladder, each interleaved too

Where the GPU is elsewhere the same steps are compiled for it and their times predicted; there is no library then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from autotune.candidate import Candidate, Runnable
from autotune.config import Config
from autotune.device.measure import refuse_implausible
from autotune.errors import NothingFound, StageFailure
from autotune.gpu import GpuSpec
from autotune.ladder.choose import Choice, begin, candidates, runnable, taken_over, try_all
from autotune.ladder.counts import count
from autotune.ladder.result import Comparison, Entry, LadderResult, Provenance, Trial
from autotune.ladder.steps import Contest, Ladder, Row
from autotune.launch import plan_launch
from autotune.model import sustained_clock_mhz
from autotune.occupancy import occupancy
from autotune.problem import Problem
from autotune.problems import flops, make_problem, parse_size
from autotune.protocol import Protocol as Timing
from autotune.records import Origin, Outcome
from autotune.spec.kernel_spec import KernelSpec
from autotune.spec.load import load_spec
from autotune.trial import Stages, Timed

PEAK_ROUNDS = 2**14
"""Of sixteen multiply-adds: some milliseconds on any chip."""
VENDOR_NAME = "cuBLAS"
PRODUCTION_NAME = "production"
TIMING = Timing(mode="warm", warmup_ms=5.0, max_samples=15, measure_limit_s=0.5)
"""Warm, as the seed measured."""


@runtime_checkable
class ComparesRuns(Stages, Protocol):
    """Stages that can measure several kernels in turn."""

    def compare_runs(self, runs: Sequence[Runnable], *, vendor: bool = False) -> list[Timed]:
        """One time per run, and the vendor's product on the first one's problem behind them."""
        ...


@dataclass(frozen=True)
class LadderRequest:
    """What to measure."""

    ladder: Ladder
    gpu: GpuSpec
    size: str
    provenance: Provenance
    tune: int = 1
    """Configurations of each step that are tried."""
    production: Config | None = None
    """The best one known; the default where None."""
    searched: Mapping[str, Config] = field(default_factory=dict)
    """The best ones known of steps, by kernel: tried before anything else."""
    folders: tuple[Path, ...] = ()
    tell: Callable[[str], None] = lambda text: None
    """Gets a line for each step that is done."""

    def spec(self, kernel: str) -> KernelSpec:
        """One of the ladder's kernels."""
        return load_spec(kernel, self.folders)

    def problem(self, spec: KernelSpec, size: str = "") -> Problem:
        """The ladder's problem, or that of another size, as the kernel sees it."""
        return make_problem(spec, parse_size(size or self.size, spec))


def run_ladder(request: LadderRequest, stages: Stages) -> LadderResult:
    """All rows; raises NothingFound where not a single step works."""
    ladder = request.ladder
    chosen = _choose_steps(request, stages)
    if not any(choice.best for choice in chosen.values()):
        raise NothingFound(f"no step of the ladder works on {request.gpu.name}")
    production = _choose_production(request, stages)
    entries = {
        step.kernel: replace(
            _entry(request, step.title, step.kernel, chosen[step.kernel]),
            about=step.about,
            seed=step.seed,
            seed_gflops=step.seed_gflops,
        )
        for step in ladder.steps
    }
    final = _entry(request, PRODUCTION_NAME, ladder.production, production)
    vendor, peak = None, request.gpu.peak_fp32_tflops * 1e3 * _sustained_share(request.gpu)
    if isinstance(stages, ComparesRuns):
        peak_choice = _choose_peak(request, stages)
        timed = [(name, choice) for name, choice in chosen.items() if choice.best]
        together = [*timed, (ladder.production, production), (ladder.peak, peak_choice)]
        times, vendor = _compare(request, stages, [choice for _, choice in together if choice.best])
        by_name = dict(zip([name for name, choice in together if choice.best], times, strict=True))
        entries = {
            name: _timed(request, entry, chosen[name], by_name.get(name)) for name, entry in entries.items()
        }
        final = _timed(request, final, production, by_name.get(ladder.production))
        peak = _peak_rate(request, peak_choice, by_name.get(ladder.peak))
    return LadderResult(
        ladder=ladder.name,
        size=request.size,
        origin=str(stages.origin),
        provenance=request.provenance,
        peak_gflops=peak,
        steps=tuple(entries.values()),
        vendor=vendor,
        production=final,
        seed_gpu=ladder.seed.gpu,
        seed_source=ladder.seed.source,
        seed_cublas_gflops=ladder.seed.cublas_gflops,
        comparisons=tuple(_contest(request, stages, contest, chosen) for contest in ladder.contests),
    )


# --- choosing


def _choose_steps(request: LadderRequest, stages: Stages) -> dict[str, Choice]:
    """The best of what is tried for each step; the next step compiles while one is measured."""
    plans: list[tuple[str, list[Candidate], str]] = []
    for step in request.ladder.steps:
        spec = request.spec(step.kernel)
        try:
            base = request.searched.get(step.kernel)
            found = candidates(spec, request.gpu, request.problem(spec), request.tune, base=base)
            plans.append((step.kernel, found, ""))
        except NothingFound as error:
            plans.append((step.kernel, [], str(error)))
    chosen: dict[str, Choice] = {}
    begin(plans[0][1], stages)
    for number, (kernel, plan, _) in enumerate(plans):
        if number + 1 < len(plans):
            begin(plans[number + 1][1], stages)
        chosen[kernel] = try_all(plan, stages)
        request.tell(_told(kernel, chosen[kernel]))
    return chosen


def _choose_production(request: LadderRequest, stages: Stages) -> Choice:
    spec = request.spec(request.ladder.production)
    try:
        plan = candidates(spec, request.gpu, request.problem(spec), 1, base=request.production)
    except NothingFound:
        return Choice(())
    choice = try_all(plan, stages)
    request.tell(_told(request.ladder.production, choice))
    return choice


def _choose_peak(request: LadderRequest, stages: Stages) -> Choice:
    """The fastest block size of the multiply-add kernel, with enough threads to fill the chip twice."""
    spec, gpu = request.spec(request.ladder.peak), request.gpu
    problem = make_problem(spec, (2 * gpu.sm_count * gpu.max_threads_per_sm, PEAK_ROUNDS))
    count_of = len(spec.parameters[0].values)
    return try_all(candidates(spec, gpu, problem, count_of), stages)


# --- comparing


def _compare(
    request: LadderRequest, stages: ComparesRuns, choices: Sequence[Choice]
) -> tuple[list[Timed | str], Entry | None]:
    """The times of the choices, in their order, and the library's.

    A text in place of a time says why it was refused.
    """
    runs = [runnable(choice.best, stages) for choice in choices if choice.best]
    times = stages.compare_runs(runs, vendor=True)
    theirs = times[len(runs)] if len(times) > len(runs) else None
    vendor = None
    if theirs is not None:
        vendor = Entry(
            name=VENDOR_NAME,
            kernel="",
            config={},
            time_ms=theirs.measurement.time_ms,
            gflops=runs[0].flops / theirs.measurement.time_ms / 1e6,
            samples_ms=theirs.measurement.samples_ms,
            note="; ".join(theirs.notes),
            seed_gflops=request.ladder.seed.cublas_gflops,
        )
    held = [_held_to(request.gpu, run, timed) for run, timed in zip(runs, times, strict=False)]
    return held, vendor


def _held_to(gpu: GpuSpec, run: Runnable, timed: Timed) -> Timed | str:
    try:
        refuse_implausible(run, gpu, timed.measurement, TIMING)
    except StageFailure as failure:
        return failure.reason
    return timed


def _contest(
    request: LadderRequest, stages: Stages, contest: Contest, chosen: Mapping[str, Choice]
) -> Comparison:
    """One comparison; rows that are not possible on this GPU say why."""
    entries: dict[str, Entry] = {}
    plans: dict[str, list[Candidate]] = {}
    for row in contest.rows:
        entries[row.name] = Entry(row.name, row.kernel, {}, None, None)
        try:
            plans[row.name] = _plan(request, row, contest.size, chosen)
        except NothingFound as error:
            entries[row.name] = replace(entries[row.name], note=str(error))
    for plan in plans.values():
        begin(plan, stages)
    choices = {name: try_all(plan, stages) for name, plan in plans.items()}
    for name, choice in choices.items():
        entries[name] = _entry(request, name, entries[name].kernel, choice)
    working = {name: choice for name, choice in choices.items() if choice.best}
    if working and isinstance(stages, ComparesRuns):
        times, vendor = _compare(request, stages, list(working.values()))
        for name, timed in zip(working, times, strict=True):
            entries[name] = _timed(request, entries[name], working[name], timed)
        if vendor:
            entries[VENDOR_NAME] = replace(vendor, seed_gflops=None)
    request.tell(f"compared: {contest.title}")
    return Comparison(contest.title, contest.size or request.size, tuple(entries.values()))


def _plan(request: LadderRequest, row: Row, size: str, chosen: Mapping[str, Choice]) -> list[Candidate]:
    """What is tried for a row; raises NothingFound where it is not possible on this GPU."""
    spec = request.spec(row.kernel)
    problem = request.problem(spec, size)
    if not row.like:
        return candidates(spec, request.gpu, problem, request.tune, row.fixed)
    like = chosen[row.like].best
    if like is None:
        raise NothingFound(f"{row.like} has no time here")
    return candidates(spec, request.gpu, problem, 1, row.fixed, taken_over(spec, request.gpu, like.config))


# --- rows


def _entry(request: LadderRequest, name: str, kernel: str, choice: Choice) -> Entry:
    """A row with all that is known of the choice before it is compared."""
    trials = tuple(
        Trial(dict(config), str(outcome.status), outcome.time_ms, outcome.reason)
        for config, outcome in choice.tried
    )
    if choice.best is None or choice.outcome is None:
        reason = trials[0].reason if trials else "nothing is legal on this GPU"
        return Entry(name, kernel, {}, None, None, note=reason, trials=trials)
    entry = Entry(name, kernel, dict(choice.best.config), None, None, trials=trials)
    time_ms = choice.outcome.time_ms
    assert time_ms is not None
    return _with_time(request, entry, choice.best, choice.outcome, time_ms)


def _timed(request: LadderRequest, entry: Entry, choice: Choice, timed: Timed | str | None) -> Entry:
    """The row with the time of the interleaved round; without one where that is refused."""
    if timed is None or choice.best is None or choice.outcome is None:
        return entry
    if isinstance(timed, str):
        return replace(entry, time_ms=None, gflops=None, gbps=None, limiter="", note=timed)
    done = _with_time(request, entry, choice.best, choice.outcome, timed.measurement.time_ms)
    return replace(done, samples_ms=timed.measurement.samples_ms, note="; ".join(timed.notes))


def _with_time(
    request: LadderRequest, entry: Entry, candidate: Candidate, outcome: Outcome, time_ms: float
) -> Entry:
    resources = outcome.resources
    assert resources is not None
    smem = resources.static_smem_bytes + resources.dynamic_smem_bytes
    held = occupancy(request.gpu, _threads(candidate), resources.registers, smem)
    entry = replace(
        entry,
        time_ms=time_ms,
        gflops=flops(candidate.spec, candidate.problem) / time_ms / 1e6,
        registers=resources.registers,
        smem_bytes=smem,
        spill_bytes=resources.spill_store_bytes + resources.spill_load_bytes,
        occupancy=held.fraction,
        occupancy_limiter=held.limiter,
    )
    counted = count(candidate)
    if counted is None:
        return entry
    return replace(
        entry,
        gbps=counted.global_bytes / time_ms / 1e6,
        global_bytes_per_flop=counted.global_bytes / counted.flops,
        shared_bytes_per_flop=counted.shared_bytes / counted.flops,
        limiter=counted.limiter(time_ms, held.fraction, held.limiter),
    )


def _threads(candidate: Candidate) -> int:
    return plan_launch(candidate.spec, candidate.problem, candidate.config, candidate.gpu).threads


def _peak_rate(request: LadderRequest, choice: Choice, timed: Timed | str | None) -> float:
    """1e9 multiply-adds and additions per second; raises NothingFound where they could not be measured."""
    if choice.best is None or timed is None or isinstance(timed, str):
        reason = timed or (choice.tried[0][1].reason if choice.tried else "nothing is legal")
        raise NothingFound(f"the peak of {request.gpu.name} could not be measured: {reason}")
    return flops(choice.best.spec, choice.best.problem) / timed.measurement.time_ms / 1e6


def _sustained_share(gpu: GpuSpec) -> float:
    return sustained_clock_mhz(gpu) / gpu.max_clock_mhz


def _told(kernel: str, choice: Choice) -> str:
    if choice.outcome is None or choice.outcome.time_ms is None:
        return f"{kernel}: {choice.tried[0][1].status if choice.tried else 'nothing is legal here'}"
    origin = "" if choice.outcome.origin is Origin.MEASURED else f" ({choice.outcome.origin})"
    return f"{kernel}: {choice.outcome.time_ms:.4g} ms{origin} of {len(choice.tried)} tried"

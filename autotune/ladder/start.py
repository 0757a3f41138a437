"""Runs a ladder where its GPU is: on the board in this machine, else on the compiler and the performance model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path

from autotune.answers import best
from autotune.choice.answer import Match
from autotune.compile.pool import CompilePool
from autotune.device.stages import GpuStages
from autotune.errors import NothingFound
from autotune.ladder.result import LadderResult, Provenance
from autotune.ladder.run import TIMING, LadderRequest, run_ladder
from autotune.ladder.steps import load_ladder
from autotune.predicted_stages import PredictedStages, environment_without_gpu
from autotune.problems import parse_size
from autotune.spec.load import load_spec
from autotune.target import Target
from autotune.trial import Stages


def measure_ladder(
    target: Target,
    size: str = "4096",
    tune: int = 1,
    *,
    commit: str = "",
    db: str | Path | None = None,
    folders: Sequence[Path] = (),
    tell: Callable[[str], None] = lambda text: None,
    stages: Stages | None = None,
) -> LadderResult:
    """All rows, with the best configurations that are known; `stages` replaces the target's own.

    Raises InputError, and NothingFound where no step works.
    """
    ladder = load_ladder(folders=folders)
    production = load_spec(ladder.production, folders)
    sizes = "x".join(map(str, parse_size(size, production)))
    known = best(target.gpu.table, sizes, production, db=db, folders=folders)
    searched = {}
    for step in ladder.steps:
        with suppress(NothingFound):  # said where the step's turn comes
            answer = best(target.gpu.table, sizes, step.kernel, db=db, folders=folders, protocol=TIMING)
            if answer.match is Match.EXACT:
                searched[step.kernel] = answer.config
    request = LadderRequest(
        ladder=ladder,
        gpu=target.gpu,
        size=sizes,
        provenance=_provenance(target, commit),
        tune=tune,
        production=known.config,
        searched=searched,
        folders=tuple(folders),
        tell=tell,
    )
    if target.local is None:
        tell(f"{target.gpu.name} is not in this machine: all times are PREDICTED, nothing is measured")
    if stages is not None:
        return run_ladder(request, stages)
    with ExitStack() as stack:
        pool = stack.enter_context(CompilePool())
        if target.local is None:
            return run_ladder(request, PredictedStages(pool))
        return run_ladder(request, stack.enter_context(GpuStages(target.local, pool, TIMING)))


def _provenance(target: Target, commit: str) -> Provenance:
    environment = target.local.environment if target.local else environment_without_gpu()
    return Provenance(
        gpu=target.gpu.name,
        table=target.gpu.table,
        arch=target.gpu.arch,
        board=target.local.uuid if target.local else "",
        driver=environment.driver,
        cuda=environment.cuda,
        nvrtc=environment.nvrtc,
        autotune=environment.autotune,
        protocol=TIMING.key,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=commit,
    )

"""Makes the shipped study of a recorded suite: the search's trials, and the bench's times as records of a final round.

    python tools/suite_records.py SUITE.json TRIALS.jsonl.gz STUDY.jsonl.gz

SUITE is what `autotune bench --out` wrote, TRIALS the trials of the search that tuned it, on the same kind of device.
Each shape's tuned configuration becomes a final-round record, and each library a baseline, in each mode that was
measured. Equal input makes equal output.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from autotune.bench.result import (  # noqa: E402
    TUNED,
    BenchResult,
    Entry,
    ModeResult,
    Provenance,
    ShapeResult,
    read_result,
)
from autotune.config import Config  # noqa: E402
from autotune.problem import Problem  # noqa: E402
from autotune.records import (  # noqa: E402
    Accuracy,
    Environment,
    Measurement,
    Origin,
    Outcome,
    Round,
    Status,
    TrialRecord,
)
from autotune.store.jsonl import read_records, write_records  # noqa: E402

LIBRARIES = ("cublas", "cublaslt")


@dataclass(frozen=True)
class Source:
    """What the search's trials tell of a bench that names configurations and problems by text alone."""

    example: TrialRecord
    """For what all of them share: device, space, kernel."""
    problems: dict[tuple[int, ...], Problem]
    configs: dict[str, Config]
    trials: dict[tuple[Problem, Config], TrialRecord]

    @classmethod
    def of(cls, trials: Sequence[TrialRecord], where: Provenance) -> Source:
        """Raises ValueError where a trial is not of the bench's kernel, device and environment."""
        environment = Environment(where.driver, where.cuda, where.nvrtc, where.autotune)
        for trial in trials:
            told = (trial.kernel, trial.kernel_hash, trial.device.key, trial.environment)
            if told != (where.kernel, where.kernel_hash, where.device, environment):
                raise ValueError(f"{told} is not what the bench measured: {where}")
        if len({trial.space_hash for trial in trials}) != 1:
            raise ValueError("the trials are of one space, and there is at least one")
        return cls(
            trials[0],
            {tuple(size for _, size in trial.problem.sizes): trial.problem for trial in trials},
            {trial.config.key: trial.config for trial in trials},
            {(trial.problem, trial.config): trial for trial in trials},
        )


def bench_records(result: BenchResult, trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """The records of a bench; raises ValueError for a configuration or problem that no trial holds."""
    source = Source.of(trials, result.provenance)
    found = []
    for shape in result.shapes:
        for mode in shape.modes:
            for entry in mode.entries:
                if entry.name in (TUNED, *LIBRARIES):
                    found.append(_record(source, shape, mode, entry))
    return found


def _record(source: Source, shape: ShapeResult, mode: ModeResult, entry: Entry) -> TrialRecord:
    ours = entry.name == TUNED
    if shape.sizes not in source.problems or (ours and entry.config not in source.configs):
        raise ValueError(f"no trial tells of {shape.name} and {entry.config}")
    if entry.error is None or entry.tolerance is None or entry.error > entry.tolerance:
        raise ValueError(f"{entry.name} at {shape.name} was not verified")
    config = source.configs[entry.config] if ours else Config(())
    problem, example = source.problems[shape.sizes], source.example
    searched = source.trials.get((problem, config))
    outcome = Outcome(
        Status.OK,
        Origin.MEASURED,
        # Compiled from the same source in the search; not told where it was tried at other shapes alone.
        resources=searched.outcome.resources if searched else None,
        accuracy=Accuracy(entry.error, entry.tolerance),
        measurement=Measurement(entry.samples_ms, entry.calls_per_sample, mode.clocks),
        notes=entry.notes,
    )
    identity = "\n".join((shape.session, shape.name, mode.protocol, entry.name))
    return TrialRecord(
        uid=hashlib.sha256(identity.encode()).hexdigest()[:32],
        study=example.study,
        session=shape.session,
        round=Round.FINAL if ours else Round.BASELINE,
        kernel=example.kernel if ours else entry.name,
        kernel_hash=example.kernel_hash if ours else "",
        space_hash=example.space_hash,
        config=config,
        problem=problem,
        device=example.device,
        environment=example.environment,
        protocol=mode.protocol,
        outcome=outcome,
        board=shape.board,
        created=datetime.fromisoformat(shape.created),
    )


def main() -> int:
    """Writes the study."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suite", type=Path)
    parser.add_argument("trials", type=Path)
    parser.add_argument("study", type=Path)
    options = parser.parse_args()
    trials = [trial for trial in read_records(options.trials) if trial.round is Round.SEARCH]
    records = bench_records(read_result(options.suite), trials)
    print(f"{write_records(options.study, [*trials, *records])} records")
    return 0


if __name__ == "__main__":
    sys.exit(main())

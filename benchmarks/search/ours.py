"""Runs one of our strategies, or Optuna's own TPE, on a table: a line of JSON per seed.

python benchmarks/search/ours.py TABLE NUMBER STRATEGY EVALUATIONS SEED...

TABLE is a file that `autotune search --replay` takes and NUMBER the table in it. STRATEGY `auto:elsewhere` is `auto`
that knows the other tables of the same kernel in the same folder: what was measured on every GPU but the table's own.
"""

from __future__ import annotations

import contextlib
import json
import math
import sys
import time
from pathlib import Path

from autotune.errors import InputError
from autotune.replay.loop import replay
from autotune.replay.read import read_tables
from autotune.replay.table import Table
from autotune.study.auto import Auto
from autotune.study.foresight import Prior
from autotune.study.strategies import Subject

ENDINGS = (".json", ".json.gz", ".jsonl", ".jsonl.gz")
"""Of files that may hold tables."""


def plain_tpe(table: Table, seed: int, evaluations: int) -> list[int]:
    """Optuna's TPE as it comes, over the raw parameters; illegal proposals (pruned) and repeats are free."""
    import optuna

    from autotune.study.samplers import suggest

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    rows: dict[int, None] = {}
    # Four in five proposals may be illegal or repeats; beyond that it is stuck.
    for _ in range(5 * evaluations):
        if len(rows) >= evaluations:
            break
        trial = study.ask()
        try:
            row = table.row(suggest(trial, table.space))
        except optuna.TrialPruned:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            continue
        rows[row] = None
        value = float(table.times_ms[row])
        if value == value:
            study.tell(trial, value)
        else:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
    return list(rows)


def elsewhere(file: Path, table: Table) -> list[Prior]:
    """The times of the same kernel, with the same parameters, on other GPUs: of all tables beside this one."""
    names = [one.name for one in table.parameters]
    priors = []
    for other in sorted(file.parent.iterdir()):
        if not other.name.endswith(ENDINGS):
            continue
        with contextlib.suppress(InputError):
            for found in read_tables(other):
                same = found.kernel == table.kernel and [one.name for one in found.parameters] == names
                if same and found.device.name != table.device.name:
                    pairs = zip(found.entries, found.times_ms.tolist(), strict=True)
                    times = {entry.config: time_ms for entry, time_ms in pairs if math.isfinite(time_ms)}
                    priors.append(Prior(found.device.name, times))
    return priors


def main(file: str, number: str, strategy: str, evaluations: str, *seeds: str) -> None:
    table = read_tables(Path(file))[int(number)]
    priors = elsewhere(Path(file), table) if strategy == "auto:elsewhere" else []

    def informed(subject: Subject, seed: int, evaluations: int | None) -> Auto:
        return Auto(subject.space, priors=priors, seed=seed)

    for seed in map(int, seeds):
        began = time.process_time()
        if strategy == "optuna:tpe":
            rows = plain_tpe(table, seed, int(evaluations))
        elif strategy == "auto:elsewhere":
            rows = list(replay(table, informed, seed, int(evaluations)).rows)
        else:
            rows = list(replay(table, strategy, seed, int(evaluations)).rows)
        print(json.dumps({"seed": seed, "rows": rows, "cpu_s": time.process_time() - began}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

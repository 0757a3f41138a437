"""Runs one of our strategies, or Optuna's own TPE, on a table: a line of JSON per seed.

python benchmarks/search/ours.py TABLE NUMBER STRATEGY EVALUATIONS SEED...

TABLE is a file that `autotune search --replay` takes and NUMBER the table in it.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from autotune.replay.loop import replay
from autotune.replay.read import read_tables
from autotune.replay.table import Table


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


def main(file: str, number: str, strategy: str, evaluations: str, *seeds: str) -> None:
    table = read_tables(Path(file))[int(number)]
    for seed in map(int, seeds):
        began = time.process_time()
        if strategy == "optuna:tpe":
            rows = plain_tpe(table, seed, int(evaluations))
        else:
            rows = list(replay(table, strategy, seed, int(evaluations)).rows)
        print(json.dumps({"seed": seed, "rows": rows, "cpu_s": time.process_time() - began}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Runs a search technique of pyATF on a table: a line of JSON per seed. Runs where pyATF is installed.

python pyatf_peer.py CACHE.json TECHNIQUE EVALUATIONS SEED...
"""

import inspect
import json
import random
import sys
import time
from pathlib import Path

import numpy as np
from pyatf import TP, Set, Tuner, search_techniques
from pyatf.tuning_data import CostFunctionError

STEPS_PER_EVALUATION = 20
"""Repeats are free, but a technique that finds nothing new for so long is stuck."""


def constraint(names, allowed):
    """Whether the values so far begin some configuration of the table, as a function of those names."""

    def holds(**values):
        return tuple(values[name] for name in names) in allowed

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    holds.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])
    return holds


def main(path, technique, evaluations, *seeds):
    cache = json.loads(Path(path).read_text())
    names = cache["tune_params_keys"]
    entries = list(cache["cache"].values())
    times = {tuple(entry[name] for name in names): (row, entry["time"]) for row, entry in enumerate(entries)}
    parameters = []
    for place, name in enumerate(names):
        begun = {config[: place + 1] for config in times}
        parameters.append(TP(name, Set(*cache["tune_params"][name]), constraint(names[: place + 1], begun)))
    limit = int(evaluations)
    for seed in map(int, seeds):
        random.seed(seed)
        np.random.seed(seed)
        rows = {}

        def cost(config, rows=rows):
            row, value = times[tuple(config[name] for name in names)]
            rows[row] = None
            if isinstance(value, str):
                raise CostFunctionError(value)
            return value

        tuner = Tuner().tuning_parameters(*parameters).verbosity(0)
        tuner.search_technique(getattr(search_techniques, technique)())
        tuner.make_step(cost)
        began = time.process_time()
        for _ in range(STEPS_PER_EVALUATION * limit):
            if len(rows) >= limit:
                break
            tuner.make_step(cost)
        cpu_s = time.process_time() - began
        print(json.dumps({"seed": seed, "rows": list(rows), "cpu_s": cpu_s}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Runs a strategy of Kernel Tuner in its simulation mode: a line of JSON per seed. Needs Kernel Tuner alone.

python kernel_tuner_peer.py CACHE.json STRATEGY EVALUATIONS SEED...
"""

import contextlib
import json
import os
import random
import sys
import time
from pathlib import Path

import numpy as np
from constraint import FunctionConstraint
from kernel_tuner import tune_kernel
from kernel_tuner.runners.simulation import SimulationRunner


class Log:
    """Which rows were evaluated, and the CPU seconds outside evaluating."""

    def __init__(self, keys, limit):
        self.row = {key: row for row, key in enumerate(keys)}
        self.limit = limit
        self.reset()

    def reset(self):
        self.rows = {}
        self.began = None
        self.inside_s = 0.0

    def watch(self, runner_class):
        run = runner_class.run

        def watched(runner, parameter_space, tuning_options):
            entered = time.process_time()
            if self.began is None:
                self.began = entered
            configs = list(parameter_space)
            for config in configs:
                row = self.row.get(",".join(str(value) for value in config))
                if row is not None and len(self.rows) < self.limit:
                    self.rows[row] = None
            try:
                return run(runner, configs, tuning_options)
            finally:
                self.inside_s += time.process_time() - entered

        runner_class.run = watched


def main(path, strategy, evaluations, *seeds):
    cache = json.loads(Path(path).read_text())
    names = cache["tune_params_keys"]
    legal = {tuple(entry[name] for name in names) for entry in cache["cache"].values()}
    log = Log(cache["cache"], int(evaluations))
    log.watch(SimulationRunner)
    for seed in map(int, seeds):
        random.seed(seed)
        np.random.seed(seed)
        log.reset()
        with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
            tune_kernel(
                cache["kernel_name"],
                "",
                tuple(cache["problem_size"]),
                [],
                cache["tune_params"],
                restrictions=[FunctionConstraint(lambda *values: values in legal)],
                strategy=strategy,
                strategy_options={"max_fevals": int(evaluations)},
                cache=path,
                simulation_mode=True,
                quiet=True,
                lang="CUDA",
                # It insists that one is there, and asks nothing of it in a simulation.
                block_size_names=[name for name in names if name.startswith("block_size_")] or names[:1],
            )
        cpu_s = time.process_time() - log.began - log.inside_s
        print(json.dumps({"seed": seed, "rows": list(log.rows), "cpu_s": cpu_s}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A study of slow fake trials in a process of its own: python slow_study.py FOLDER DATABASE TRIALS [trouble].

With `trouble` it has 20 configurations, the four of `TROUBLE` among them; with `ahead` it compiles ahead.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from fakes.stages import FakePipelineStages, FakeStages
from fakes.toy import toy_request, toy_spec

from autotune.records import Status
from autotune.store import open_store
from autotune.study.progress import Progress
from autotune.study.study import run_study

TRIAL_S = 0.05
TROUBLE = {3: Status.TIMEOUT, 8: Status.CRASHED, 12: Status.WRONG_RESULT, 16: Status.LAUNCH_ERROR}
"""How the configurations with these values of A end."""


def main(folder: str, database: str, trials: str, trouble: str = "") -> int:
    """Prints a line per trial, then the result."""
    spec = toy_spec(
        Path(folder),
        {"A": range(20 if trouble == "trouble" else 10), "B": range(1 if trouble == "trouble" else 10)},
    )
    kind = FakePipelineStages if trouble == "ahead" else FakeStages
    stages = kind(lambda config: 1.0 + int(config["A"]) + int(config["B"]) / 10, delay_s=TRIAL_S)
    if trouble == "trouble":
        stages.failures = lambda config: TROUBLE.get(int(config["A"]))

    def say(progress: Progress) -> None:
        if progress.last:
            print("trial", progress.done, progress.total, progress.best_ms, flush=True)

    with open_store(database) as store:
        result = run_study(toy_request(spec, int(trials)), stages, store, on_event=say)
    print("ran", len(stages.measured), "best", result.best and result.best.outcome.time_ms, flush=True)
    return 130 if result.interrupted else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""Writes what the model takes to be fastest at each shape of the SGEMM suite, for tools/gpu/suite.py to try.

    python tools/proposals.py --known RECORDS.jsonl.gz [...] --out PROPOSALS.json [--samples 4000] [--best 30]

Needs no GPU. The model is fitted to the records, which may be of an earlier version of the kernel: what it says is
only an order in which to try. It looks at random configurations whose finer parameters are left at what is usually
best, so that tiles, warps and the ways to share out the depth are covered densely, and at random neighbours of the
fastest. What is alike in all but finer parameters is proposed a few times only; what was measured with the present
kernel, not again.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from autotune.config import Config, Value  # noqa: E402
from autotune.gpu_tables import find_gpu  # noqa: E402
from autotune.legality import search_space, unpromising  # noqa: E402
from autotune.model.fitted import FittedModel  # noqa: E402
from autotune.problems import make_problem  # noqa: E402
from autotune.render import kernel_hash  # noqa: E402
from autotune.spec.kernel_spec import KernelSpec  # noqa: E402
from autotune.spec.load import load_spec  # noqa: E402
from autotune.store.jsonl import read_records  # noqa: E402
from autotune.suites import load_suite  # noqa: E402

FINER: dict[str, tuple[Value, ...]] = {
    "VM": (4,),
    "VN": (4,),
    "LANES": ("z",),
    "LOAD": ("cpasync",),
    "VB": (4, 2, 1),
    "VC": (4,),
    "PAD_A": (4,),
    "PAD_B": (0,),
    "REGDB": (True,),
    "ORDER": ("serpentine",),
    "GROUP_M": (8,),
    "SPREAD": (0, 4),
}
"""Values that the samples are drawn with, of parameters that change a time by little."""
STRUCTURE = ("KIND", "BM", "BN", "WM", "WN", "TM", "TN", "SLICEK", "CLUSTER", "SMALL", "WIDE", "WARPS")
"""Configurations that are equal in these, and in whether blocks stream, are alike."""
ALIKE = 3
"""How many of those that are alike are proposed."""
LEADERS = 5
NEIGHBOURS = 300
"""Of each of so many leaders."""


def structure(config: Config) -> tuple[object, ...]:
    """What makes two configurations alike."""
    return (*(config[name] for name in STRUCTURE), config["STREAM"] != 0)


def neighbours(spec: KernelSpec, config: Config, rng: np.random.Generator) -> list[Config]:
    """Random ones that differ in one to three parameters, legal or not."""
    found = []
    for _ in range(NEIGHBOURS):
        parameters = rng.choice(len(spec.parameters), size=int(rng.integers(1, 4)), replace=False)
        changed = [spec.parameters[at] for at in parameters]
        found.append(config.replace({one.name: one.values[rng.integers(len(one.values))] for one in changed}))
    return found


def main() -> int:
    """Fits, samples, ranks and writes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--known", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--samples", type=int, default=4000)
    parser.add_argument("--best", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    spec, gpu = load_spec("sgemm"), find_gpu("h200")
    records = [record for path in options.known for record in read_records(path)]
    own: dict[str, dict[Config, float]] = {}
    for record in records:
        if record.kernel_hash == kernel_hash(spec) and record.outcome.time_ms is not None:
            own.setdefault(record.problem.key, {})[record.config] = record.outcome.time_ms
    model = FittedModel.fit(records, spec, gpu)
    parameters = tuple(
        replace(parameter, values=FINER.get(parameter.name, parameter.values))
        for parameter in spec.parameters
    )
    narrow = replace(spec, parameters=parameters)
    rng = np.random.default_rng(options.seed)
    found = {}
    for shape in load_suite("sgemm", spec).shapes:
        problem = make_problem(spec, shape.sizes)
        space = search_space(spec, gpu, problem)
        known = own.get(problem.key, {})
        pool = search_space(narrow, gpu, problem).sample(rng, options.samples)
        for leader in sorted(known, key=known.__getitem__)[:LEADERS]:
            pool += [config for config in neighbours(spec, leader, rng) if config in space]
        configs = [
            config
            for config in dict.fromkeys(pool)
            if config not in known and not unpromising(spec, gpu, problem, config, None)
        ]
        times_ms = np.array(model.predict(problem, configs))
        counts: Counter[tuple[object, ...]] = Counter()
        best: list[Config] = []
        for at in np.argsort(times_ms, kind="stable"):
            counts[structure(configs[at])] += 1
            if counts[structure(configs[at])] <= ALIKE:
                best.append(configs[at])
            if len(best) == options.best:
                break
        found[shape.name] = [json.loads(config.to_json()) for config in best]
        foretold = f"{times_ms.min():.5f} ms foretold, {min(known.values(), default=0):.5f} known"
        print(f"{shape.name}: {len(configs)} ranked, {foretold}", flush=True)
    options.out.write_text(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

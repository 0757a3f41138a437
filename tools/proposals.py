"""Writes what the performance model takes to be fastest at each shape of the SGEMM suite, for tools/gpu/suite.py to try.

    python tools/proposals.py --known RECORDS.jsonl.gz [...] --out PROPOSALS.json [--samples 4000] [--best 30]

Needs no GPU. The model is fitted to the records, which may be of an earlier version of the kernel: what it says is
only an order in which to try. It looks at random configurations whose finer parameters are left at what is usually
best, so that tiles, warps and the ways to share out the depth are covered densely.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from autotune.config import Value  # noqa: E402
from autotune.gpu_tables import find_gpu  # noqa: E402
from autotune.legality import search_space, unpromising  # noqa: E402
from autotune.model.fitted import FittedModel  # noqa: E402
from autotune.problems import make_problem  # noqa: E402
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
    "SPREAD": (0,),
}
"""Values that the samples are drawn with, of parameters that change a time by little."""


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
        configs = [
            config
            for config in search_space(narrow, gpu, problem).sample(rng, options.samples)
            if not unpromising(spec, gpu, problem, config, None)
        ]
        times_ms = np.array(model.predict(problem, configs))
        best = np.argsort(times_ms, kind="stable")[: options.best]
        found[shape.name] = [json.loads(configs[at].to_json()) for at in best]
        print(f"{shape.name}: {len(configs)} ranked, {times_ms[best[0]]:.5f} ms foretold", flush=True)
    options.out.write_text(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

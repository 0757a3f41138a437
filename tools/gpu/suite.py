"""Tunes the SGEMM kernel for all shapes of the suite in one run on the GPU of this machine, warm.

    python tools/gpu/suite.py --out RECORDS.jsonl.gz --db FILE [--known EARLIER.jsonl.gz ...]
        [--proposals FILE] [--limit 170]

First each shape tries its starting points, what was fast at it and at shapes near it (`--known`: files of records,
also of an earlier version of the kernel) and what tools/proposals.py wrote; then, round by round until the time is
over, neighbours of its best so far. Kernels of all shapes are compiled ahead while others are measured. Each trial is
verified, and recorded as it ends.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools" / "gpu")]

from bench import Bench  # noqa: E402

from autotune.candidate import Candidate  # noqa: E402
from autotune.config import Config, Value  # noqa: E402
from autotune.gpu import GpuSpec  # noqa: E402
from autotune.legality import unpromising, violations  # noqa: E402
from autotune.problem import Problem, octaves  # noqa: E402
from autotune.problems import make_problem  # noqa: E402
from autotune.protocol import Protocol  # noqa: E402
from autotune.records import Outcome, Round, TrialRecord  # noqa: E402
from autotune.render import kernel_hash, render  # noqa: E402
from autotune.spec.kernel_spec import KernelSpec  # noqa: E402
from autotune.spec.load import space_hash  # noqa: E402
from autotune.starts import starting_point, starting_points  # noqa: E402
from autotune.store import Store, open_store  # noqa: E402
from autotune.store.jsonl import read_records  # noqa: E402
from autotune.suites import load_suite  # noqa: E402
from autotune.trial import run_trial  # noqa: E402

NEAR_SHAPES = 5
"""From how many other shapes the fastest are tried."""
OF_EACH = 3
OWN = 5
"""How many of a shape's own earlier ones are tried again."""
PER_ROUND = 10
"""Neighbours of its best that a shape tries in one round."""
STEPS = (1, 1, 2, 3)
"""In how many parameters a neighbour differs, drawn from these."""


class Shape:
    """One problem: what has been tried there, and how fast it was."""

    def __init__(self, spec: KernelSpec, gpu: GpuSpec, problem: Problem) -> None:
        self.spec, self.gpu, self.problem = spec, gpu, problem
        self.times: dict[Config, float] = {}
        self.tried: set[Config] = set()
        self.known: dict[Config, float] = {}
        self.proposed: list[Config] = []

    def leaders(self, count: int) -> list[Config]:
        """The fastest of this run, else the fastest known before."""
        times = self.times or self.known
        return sorted(times, key=times.__getitem__)[:count]

    def takes(self, config: Config) -> bool:
        """Whether the configuration is legal and new here, and does not seem hopeless."""
        if config in self.tried or violations(self.spec, self.gpu, self.problem, config):
            return False
        return not unpromising(self.spec, self.gpu, self.problem, config, None)

    def first_round(self, others: Sequence[Shape]) -> list[Config]:
        """Starting points, what was fast here, what was fast nearby, what was proposed."""
        points = (
            *starting_points(self.spec, self.gpu, self.problem),
            starting_point(self.spec, self.gpu, self.problem),
        )
        listed = [point.config for point in points] + self.leaders(OWN)
        sizes = dict(self.problem.sizes)
        near = sorted(
            (octaves(sizes, dict(other.problem.sizes)), place) for place, other in enumerate(others)
        )
        for _, place in [one for one in near if others[one[1]].known][:NEAR_SHAPES]:
            listed += others[place].leaders(OF_EACH)
        listed += self.proposed
        return [config for config in dict.fromkeys(listed) if self.takes(config)]

    def neighbours(self, rng: np.random.Generator) -> list[Config]:
        """Random ones that differ little from one of the best."""
        leaders = self.leaders(3)
        found: dict[Config, None] = {}
        for _ in range(400):
            if len(found) == PER_ROUND or not leaders:
                break
            base = leaders[min(len(leaders) - 1, int(rng.geometric(0.6)) - 1)]
            changes: dict[str, Value] = {}
            for _ in range(int(rng.choice(STEPS))):
                parameter = self.spec.parameters[int(rng.integers(len(self.spec.parameters)))]
                changes[parameter.name] = parameter.values[int(rng.integers(len(parameter.values)))]
            config = base.replace(changes)
            if config not in found and self.takes(config):
                found[config] = None
        return list(found)


def known_records(paths: Iterable[Path], spec: KernelSpec) -> Iterator[TrialRecord]:
    """Timed trials in the present space; the kernel may have been an earlier one, so times only say where to look."""
    for path in paths:
        for record in read_records(path):
            same = record.kernel == spec.name and record.space_hash == space_hash(spec)
            if same and record.outcome.time_ms is not None:
                yield record


def try_all(
    bench: Bench, store: Store, jobs: Sequence[tuple[Shape, Config]], session: str, until: float
) -> Counter[str]:
    """Runs the trials in order, with all their kernels compiling ahead."""
    counts: Counter[str] = Counter()
    candidates = [Candidate(shape.spec, shape.gpu, shape.problem, config) for shape, config in jobs]
    for candidate in candidates:
        source = render(candidate.spec, candidate.gpu, candidate.problem, candidate.config)
        bench.stages.prefetch(candidate, source)
    for (shape, config), candidate in zip(jobs, candidates, strict=True):
        if time.monotonic() > until:
            break
        outcome = run_trial(candidate, bench.stages, min(shape.times.values(), default=None))
        shape.tried.add(config)
        if outcome.time_ms is not None:
            shape.times[config] = outcome.time_ms
        counts[str(outcome.status)] += 1
        store.add_many([record(bench, candidate, outcome, session)])
    return counts


def record(bench: Bench, candidate: Candidate, outcome: Outcome, session: str) -> TrialRecord:
    """The trial with its full identity."""
    return TrialRecord(
        uid=uuid.uuid4().hex,
        study="suite",
        session=session,
        round=Round.SEARCH,
        kernel=candidate.spec.name,
        kernel_hash=kernel_hash(candidate.spec),
        space_hash=space_hash(candidate.spec),
        config=candidate.config,
        problem=candidate.problem,
        device=bench.gpu.identity,
        environment=bench.gpu.environment,
        protocol=bench.stages.protocol.key,
        outcome=outcome,
        board=bench.gpu.uuid,
        created=datetime.now(UTC),
    )


def main() -> int:
    """Tunes until the time is over; prints what each shape came to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--known", type=Path, nargs="*", default=[])
    parser.add_argument("--proposals", type=Path, help="configurations to try, by shape")
    parser.add_argument("--limit", type=float, default=170, help="seconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--db", type=Path, required=True, help="the database to add to")
    options = parser.parse_args()
    began = time.monotonic()
    until = began + options.limit
    rng = np.random.default_rng(options.seed)
    session = uuid.uuid4().hex
    with Bench.open() as bench, open_store(options.db) as store, bench.protocol(Protocol().warm()):
        spec, gpu = bench.spec, bench.gpu.spec
        proposals = json.loads(options.proposals.read_text()) if options.proposals else {}
        shapes = []
        for one in load_suite("sgemm", spec).shapes:
            shapes.append(Shape(spec, gpu, make_problem(spec, one.sizes)))
            shapes[-1].proposed = [Config.of(values) for values in proposals.get(one.name, [])]
        by_problem = {shape.problem.key: shape for shape in shapes}
        extra: dict[str, Shape] = {}
        for earlier in known_records(options.known, spec):
            key = earlier.problem.key
            shape = by_problem.get(key) or extra.setdefault(key, Shape(spec, gpu, earlier.problem))
            assert earlier.outcome.time_ms is not None
            shape.known[earlier.config] = min(
                earlier.outcome.time_ms, shape.known.get(earlier.config, math.inf)
            )
        everything = [*shapes, *extra.values()]
        counts: Counter[str] = Counter()
        rounds = 0
        while time.monotonic() < until:
            jobs = [
                (shape, config)
                for shape in shapes
                for config in (
                    shape.neighbours(rng)
                    if rounds
                    else shape.first_round([other for other in everything if other is not shape])
                )
            ]
            counts += try_all(bench, store, jobs, session, until)
            rounds += 1
            best = {shape.problem.label: min(shape.times.values(), default=None) for shape in shapes}
            print(f"round {rounds}: {time.monotonic() - began:.0f} s, {dict(counts)}", flush=True)
            print(json.dumps(best), flush=True)
        from autotune.store import RecordQuery

        store.export_jsonl(options.out, RecordQuery(study="suite"))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A table such as an exhaustive run leaves, made up: the closed form with other constants, hidden factors and noise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from fakes.trials import trial

from autotune.config import Config
from autotune.gpu import GpuSpec
from autotune.legality import search_space
from autotune.model.closed_form import prepare
from autotune.model.constants import CONSTANT_NAMES, Constants
from autotune.occupancy import occupancy
from autotune.problem import Problem
from autotune.problems import make_problem
from autotune.records import Measurement, Origin, Outcome, Resources, Status, TrialRecord
from autotune.spec.kernel_spec import KernelSpec

HIDDEN_BY_VALUE = 0.06
HIDDEN_BY_CONFIG = 0.06
HIDDEN_BY_SIZE = 0.02
"""Standard deviations: of what each parameter's value adds, each configuration, and each configuration per octave."""
FAILURES = 0.03


def made_up(
    spec: KernelSpec,
    gpu: GpuSpec,
    sizes: Sequence[int | tuple[int, ...]],
    count: int,
    seed: int = 0,
    noise: float = 0.03,
    *,
    kernel_hash: str = "k1",
    configs: Sequence[Config] | None = None,
) -> list[TrialRecord]:
    """Records of `count` configurations at each of the sizes."""
    rng = np.random.default_rng(seed)
    problems = [make_problem(spec, size) for size in sizes]
    if configs is None:
        configs = search_space(spec, gpu, problems[0]).sample(rng, count)
    constants = Constants.scaled(rng.uniform(-0.35, 0.35, len(CONSTANT_NAMES)))
    values: dict[tuple[str, str], float] = {}
    hidden = np.zeros(len(configs))
    for row, config in enumerate(configs):
        for name, value in config.items():
            hidden[row] += values.setdefault((name, str(value)), rng.normal(0, HIDDEN_BY_VALUE))
    hidden += rng.normal(0, HIDDEN_BY_CONFIG, len(configs))
    slope = rng.normal(0, HIDDEN_BY_SIZE, len(configs))
    resources = _resources(spec, gpu, problems[0], configs, rng)
    broken = rng.random(len(configs)) < FAILURES
    records = []
    for problem in problems:
        times = prepare(spec, gpu, problem, configs, resources).terms.time_ms(constants)
        octaves = np.mean([np.log2(max(size, 1) / 1024) for _, size in problem.sizes])
        logs = np.log(times) + hidden + slope * octaves + rng.normal(0, noise, len(configs))
        for row, config in enumerate(configs):
            if broken[row]:
                outcome = Outcome(Status.LAUNCH_ERROR, Origin.MEASURED, "too many resources", resources[row])
            else:
                time_ms = float(np.exp(logs[row]))
                outcome = Outcome(
                    Status.OK,
                    Origin.MEASURED,
                    resources=resources[row],
                    measurement=Measurement((time_ms,), 1),
                )
            records.append(
                trial(
                    outcome,
                    config,
                    problem,
                    kernel=spec.name,
                    kernel_hash=kernel_hash,
                    device=gpu.identity,
                    uid=f"{seed}-{problem.key}-{row}",
                )
            )
    return records


def _resources(
    spec: KernelSpec, gpu: GpuSpec, problem: Problem, configs: Sequence[Config], rng: np.random.Generator
) -> list[Resources]:
    prepared = prepare(spec, gpu, problem, configs)
    found = []
    for row in range(len(configs)):
        registers = int(min(gpu.max_registers_per_thread, prepared.use.registers[row] + rng.integers(0, 24)))
        threads = int(prepared.use.threads[row])
        smem = int(np.broadcast_to(prepared.columns["smem_bytes"], (len(configs),))[row])
        blocks = max(1, occupancy(gpu, threads, registers, smem).blocks_per_sm)
        found.append(Resources(registers, 0, 0, 0, 0, smem, blocks))
    return found

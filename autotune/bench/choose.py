"""Which configurations stand for a kernel: the best one known, and the one it has before anything is tuned."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from autotune.bench.run import Choose, Pick, Picks
from autotune.choice.best import Question, best_from, find_best
from autotune.gpu import GpuSpec
from autotune.problem import Problem
from autotune.protocol import Protocol
from autotune.records import Environment
from autotune.spec.kernel_spec import KernelSpec
from autotune.store import Store


def chooser(
    store: Store, spec: KernelSpec, gpu: GpuSpec, environment: Environment, folders: Sequence[Path] = ()
) -> Choose:
    """Answers from a database and the shipped studies, each question once: a run sees one state of them."""

    @cache
    def choose(problem: Problem, protocol: Protocol) -> Picks:
        question = Question.of(spec, gpu, problem, environment, protocol)
        answer, default = best_from(store, question, folders), find_best([], question)
        return Picks(Pick(answer.config, str(answer.match)), Pick(default.config, str(default.match)))

    return choose

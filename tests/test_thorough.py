from types import SimpleNamespace

import pytest
from fakes.gpu import gemm_launch, runnable

from autotune.candidate import Candidate, CompiledKernel
from autotune.config import Config
from autotune.device.stages import run_with_values
from autotune.errors import StageFailure
from autotune.gpu_tables import find_gpu
from autotune.problems import make_problem
from autotune.records import Accuracy, Resources, Status
from autotune.spec.load import load_spec
from autotune.thorough import thorough_cases, verify_thoroughly

SPEC = load_spec("sgemm")


def candidate():
    config = Config.of({name: SPEC.defaults[name] for name in SPEC.parameter_names})
    return Candidate(SPEC, find_gpu("h200"), make_problem(SPEC, 512), config)


class FakeStages:
    """Compiles nothing; `judge` says what becomes of a run."""

    def __init__(self, judge):
        self.judge = judge
        self.seen = []
        self.sources = set()

    def compile(self, candidate, source):
        self.sources.add(source.text)
        resources = Resources(32, 0, 0, 0, 0)
        return CompiledKernel("key", None, source.entry, candidate.gpu.arch, resources, "fake", 0.0)

    def verify_run(self, run, data="", values=None):
        case = SimpleNamespace(sizes=dict(run.problem.sizes), classes=dict(run.problem.classes), data=data)
        case.values, case.launch = dict(values or {}), run.launch
        self.seen.append(case)
        return self.judge(case)


def test_cases_cover_what_breaks_kernels():
    stages = FakeStages(lambda case: Accuracy(0.1 * case.sizes["K"], 4.0, case.sizes["M"] * case.sizes["N"]))
    accuracy = verify_thoroughly(candidate(), stages)
    seen = stages.seen
    assert any(case.sizes["K"] < 16 and case.sizes["K"] > 0 for case in seen)
    assert any(case.sizes["K"] == 0 and case.classes["beta"] == "general" for case in seen)
    assert any(case.sizes["M"] == 0 and case.launch.empty for case in seen)
    assert any(case.data == "nan" and case.values == {"alpha": 0.0} for case in seen)
    for name in ("align_a", "align_b", "align_c", "beta"):
        assert {case.classes[name] for case in seen} == set(
            next(c.values for c in SPEC.problem.classes if c.name == name)
        )
    odd = [case for case in seen if case.classes["align_a"] == 1]
    assert any(plan.offset % 4 for case in odd for plan in case.launch.buffers)
    assert accuracy.worst_error == max(0.1 * case.sizes["K"] for case in seen)
    assert accuracy.elements == sum(case.sizes["M"] * case.sizes["N"] for case in seen)
    assert len(stages.sources) > 4  # other classes are other compiled variants
    assert sum(case.sizes["M"] * case.sizes["N"] * case.sizes["K"] for case in seen) < 1e9


def test_first_failure_is_named_with_its_problem():
    def judge(case):
        if case.sizes["K"] == 0:
            raise StageFailure(Status.WRONG_RESULT, "C[0, 0] is nan", Accuracy(9.0, 4.0, 1))
        return Accuracy(0.1, 4.0, 1)

    with pytest.raises(StageFailure, match=r"no depth \(M=257,N=131,K=0.*C\[0, 0\] is nan") as caught:
        verify_thoroughly(candidate(), FakeStages(judge))
    assert caught.value.status is Status.WRONG_RESULT
    assert caught.value.accuracy.worst_error == 9.0


def test_all_cases_are_different_problems_or_values():
    cases = list(thorough_cases(SPEC, candidate().problem))
    assert len(cases) < 40
    assert {case.what for case in cases} >= {"sizes off the tile", "whole tiles", "no depth", "align_b 2"}


def test_scalars_of_a_run_are_replaced():
    run = run_with_values(runnable(gemm_launch(4, 4, 4)), {"alpha": 0.0, "unknown": 3})
    assert [plan.value for plan in run.launch.arguments if plan.name == "alpha"] == [0.0]
    assert [plan.value for plan in run.launch.arguments if plan.name == "K"] == [4]

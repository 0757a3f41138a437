from __future__ import annotations

from pathlib import Path

import pytest
from fakes.exported import scale_spec

from autotune.config import Config
from autotune.errors import InputError
from autotune.exporter.variants import MAX_ROWS, class_rules, compiled_rows
from autotune.gpu_tables import find_gpu
from autotune.problems import make_problem
from autotune.spec.kernel_spec import KernelSpec
from autotune.spec.load import load_spec

GPU = find_gpu("a6000")


@pytest.fixture(scope="module")
def sgemm() -> KernelSpec:
    return load_spec("sgemm")


def test_classes_of_sgemm_are_read_off_the_call(sgemm: KernelSpec) -> None:
    rules = {rule.name: rule for rule in class_rules(sgemm, [make_problem(sgemm, 512)])}
    assert {name: rule.kind for name, rule in rules.items()} == {
        "trans_a": "fixed",
        "trans_b": "fixed",
        "align_a": "alignment",
        "align_b": "alignment",
        "align_c": "alignment",
        "beta": "scalar",
    }
    assert rules["beta"].scalar == "beta"
    assert rules["beta"].pinned == (("zero", 0.0),)
    assert rules["beta"].rest == "general"


@pytest.mark.parametrize("size", [4096, 4092, 4095, (1, 1, 1)])
@pytest.mark.parametrize("load", ["cpasync", "prefetch"])
def test_every_class_and_size_of_sgemm_has_code(
    sgemm: KernelSpec, size: int | tuple[int, ...], load: str
) -> None:
    config = Config.of({**sgemm.defaults, "LOAD": load, "STAGES": 2})
    rows = compiled_rows(sgemm, GPU, make_problem(sgemm, size), config)
    assert 4 <= len(rows) <= MAX_ROWS
    assert len({row.source.text for row in rows}) == len(rows)
    for beta in ("zero", "general"):
        general = [
            row
            for row in rows
            if dict(row.variants)["GUARD_ALL"] and dict(row.problem.classes)["beta"] == beta
            if all(dict(row.problem.classes)[f"align_{each}"] == 1 for each in "abc")
        ]
        assert len(general) == 1
    for level in {row.level for row in rows}:  # what guards more comes later, since it is slower
        guards = [
            (dict(row.variants)["GUARD"], dict(row.variants)["GUARD_ALL"])
            for row in rows
            if row.level == level
        ]
        assert guards == sorted(guards)


def test_fast_code_comes_first_and_asks_only_for_the_alignment_it_uses(sgemm: KernelSpec) -> None:
    config = Config.of({**sgemm.defaults, "VB": 1})
    first = compiled_rows(sgemm, GPU, make_problem(sgemm, 4096), config)[0]
    variants, classes = dict(first.variants), dict(first.problem.classes)
    assert variants["GUARD"] is False
    assert variants["BETA_ZERO"] is True
    assert (classes["align_b"], classes["align_c"]) == (1, 4)


def test_guarded_only_leaves_out_the_unguarded(sgemm: KernelSpec) -> None:
    rows = compiled_rows(sgemm, GPU, make_problem(sgemm, 4096), Config.of(sgemm.defaults), guarded_only=True)
    assert rows
    assert all(dict(row.variants)["GUARD"] for row in rows)


def test_template_that_uses_sizes_is_refused(tmp_path: Path) -> None:
    spec = scale_spec(tmp_path, "scale")
    template = tmp_path / "templates" / "scale" / "scale.cu.j2"
    template.write_text(template.read_text() + "// {{ N }}\n")
    with pytest.raises(InputError, match="uses the sizes themselves"):
        compiled_rows(spec, GPU, make_problem(spec, 64), Config.of(spec.defaults))

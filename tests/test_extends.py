"""Specs that take over another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.errors import InputError
from autotune.gpu_tables import find_gpu
from autotune.problems import make_problem
from autotune.render import check_template, kernel_hash, render
from autotune.spec.kernel_spec import KernelSpec
from autotune.spec.load import load_spec, read_spec, space_hash

FAMILY = Path(__file__).parent / "data" / "family"
MATVEC = load_spec("matvec", [FAMILY])
H200 = find_gpu("h200")


def read(tmp_path: Path, text: str) -> KernelSpec:
    path = tmp_path / "own.yaml"
    path.write_text(f"kernel: own\nextends: matvec\n{text}")
    return read_spec(path, [FAMILY])


def test_everything_is_taken_over(tmp_path: Path) -> None:
    own = read(tmp_path, "")
    assert own.name == "own"
    for part in ("template", "problem", "parameters", "derived", "arguments", "starts", "constants"):
        assert getattr(own, part) == getattr(MATVEC, part)
    assert kernel_hash(own) == kernel_hash(MATVEC)
    assert space_hash(own) == space_hash(MATVEC)


def test_mappings_are_merged_and_lists_replaced(tmp_path: Path) -> None:
    own = read(
        tmp_path,
        "problem:\n  flops: 3*M*K\n  classes:\n    mood: {values: [good, bad], default: \"'good'\"}\n"
        "parameters: {SPLIT: [1, 2], MORE: [1]}\nstarts: []\nconstants: {TAIL: dirty}\n",
    )
    assert [kind.name for kind in own.problem.classes] == ["trans_a", "align_a", "mood"]
    assert own.problem.flops.text == "3*M*K"
    assert own.problem.bytes == MATVEC.problem.bytes
    assert [(p.name, p.values) for p in own.parameters] == [
        ("THREADS", (32, 64)),
        ("SPLIT", (1, 2)),
        ("MORE", (1,)),
    ]
    assert own.starts == ()
    problem = make_problem(own, 8)
    text = render(own, H200, problem, own.default_config("h200").replace({"SPLIT": 2})).text
    assert "*arrived = 0" not in text
    check_template(own, H200)


def test_a_list_may_continue(tmp_path: Path) -> None:
    own = read(tmp_path, 'arguments:\n  - "..."\n  - {scalar: alpha, value: 1.0}\n')
    assert [argument.name for argument in own.arguments] == [*(a.name for a in MATVEC.arguments), "alpha"]
    with pytest.raises(InputError, match=r"own.yaml:5: arguments.7.value: unknown name 'Q'"):
        read(tmp_path, 'arguments:\n  - "..."\n  - {scalar: alpha, value: Q}\n')


def test_mistakes_name_the_file_they_are_in(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"own.yaml:3: parameters.SPLIT: must not be empty"):
        read(tmp_path, "parameters: {SPLIT: []}\n")
    with pytest.raises(InputError, match=r"matvec.yaml:28: starts.0.config.SPLIT: must be one of the values"):
        read(tmp_path, "parameters: {SPLIT: [1, 2]}\n")
    with pytest.raises(InputError, match=r"own.yaml:3: parameter: unknown key .nearest: parameters"):
        read(tmp_path, "parameter: {SPLIT: [1]}\n")


def test_what_is_extended_must_be_there_and_another_one(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("kernel: own\nextends: matvek\n")
    with pytest.raises(InputError, match=r"own.yaml:2: extends: no file .*matvec"):
        read_spec(path, [FAMILY])
    path.write_text("kernel: own\nextends: [matvec]\n")
    with pytest.raises(
        InputError, match=r"own.yaml:2: extends: must be the name of a kernel, got \['matvec'\]"
    ):
        read_spec(path, [FAMILY])
    kernels = tmp_path / "configs" / "kernels"
    kernels.mkdir(parents=True)
    (kernels / "one.yaml").write_text("kernel: one\nextends: two\n")
    (kernels / "two.yaml").write_text("kernel: two\nextends: one\n")
    with pytest.raises(InputError, match=r"two.yaml:2: extends: a kernel must not extend itself, got 'one'"):
        load_spec("one", [tmp_path])


def test_constants_are_names_of_their_own(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the name 'SPLIT' is taken by parameters"):
        read(tmp_path, "constants: {SPLIT: 3}\n")
    with pytest.raises(InputError, match=r"constants.TAIL"):
        read(tmp_path, "constants: {TAIL: [1]}\n")

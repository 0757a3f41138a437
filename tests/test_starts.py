"""What runs before anything is measured: the spec's starts, else its defaults."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from autotune.choice.best import Match, Question, find_best
from autotune.errors import InputError
from autotune.gpu_tables import find_gpu
from autotune.legality import violations
from autotune.problems import make_problem
from autotune.spec.load import load_spec, read_spec
from autotune.starts import DEFAULTS, starting_point, starting_points

FAMILY = Path(__file__).parent / "data" / "family"
MATVEC = load_spec("matvec", [FAMILY])
H200 = find_gpu("h200")


@pytest.mark.parametrize(
    ("sizes", "names", "split"),
    [((4, 8), [], 1), ((64, 64), ["rows"], 2), ((1, 4096), ["long rows", "rows"], 4)],
)
def test_those_whose_condition_holds_in_order(sizes: tuple[int, int], names: list[str], split: int) -> None:
    problem = make_problem(MATVEC, sizes)
    assert [point.name for point in starting_points(MATVEC, H200, problem)] == names
    first = starting_point(MATVEC, H200, problem)
    assert first.name == (names or [DEFAULTS])[0]
    assert (first.config["SPLIT"], first.config["THREADS"]) == (split, 32)


def read(tmp_path: Path, old: str, new: str):  # type: ignore[no-untyped-def]
    text = (FAMILY / "configs/kernels/matvec.yaml").read_text()
    assert old in text
    path = tmp_path / "k.yaml"
    path.write_text(text.replace(old, new))
    return read_spec(path, [FAMILY])


def test_what_is_not_legal_is_passed_over(tmp_path: Path) -> None:
    spec = read(tmp_path, "variants:", "constraints:\n  - {rule: SPLIT < 4, because: so}\n\nvariants:")
    point = starting_point(spec, H200, make_problem(spec, (1, 4096)))
    assert (point.name, point.exact) == ("rows", True)
    none = read(tmp_path, "variants:", "constraints:\n  - {rule: SPLIT == 4, because: so}\n\nvariants:")
    point = starting_point(none, H200, make_problem(none, 8))
    assert (point.name, point.config["SPLIT"], point.exact) == (DEFAULTS, 4, False)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("SPLIT: 4}}", "SPLIT: 3}}", "starts.0.config.SPLIT: must be one of the values of SPLIT, got 3"),
        ("SPLIT: 4}}", "SPLITS: 4}}", "starts.0.config.SPLITS: unknown parameter 'SPLITS' .nearest: SPLIT"),
        ("when: K >= 64", "when: SPLIT >= 64", "starts.1.when: unknown name 'SPLIT'"),
        ("name: long rows", "name: rows", "starts.1.name: a name stands once, got 'rows' again"),
        ("name: long rows", "nam: rows", "starts.0.nam: unknown key .nearest: name"),
    ],
)
def test_mistakes_are_told(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, old, new)


def test_best_answers_with_the_start_and_says_so() -> None:
    answer = find_best([], Question.of(MATVEC, H200, make_problem(MATVEC, (1, 4096))))
    assert (answer.match, answer.config["SPLIT"]) == (Match.DEFAULT, 4)
    assert answer.why.endswith(": the kernel's start 'long rows'")
    plain = find_best([], Question.of(MATVEC, H200, make_problem(MATVEC, 8)))
    assert plain.why.endswith(": the kernel's default")


def test_shipped_starts_are_legal_where_they_are_meant() -> None:
    sizes = [1, 4, 16, 48, 64, 128, 256, 1024, 4095, 4096, 16384]
    for name in ("sgemm", "sgemm_epilogue", "sgemm_batched"):
        spec = load_spec(name)
        batch = {"BATCH": 8} if "BATCH" in spec.problem.sizes else {}
        shapes = itertools.product(sizes, sizes, (64, 1024, 4096, 65536))
        problems = [make_problem(spec, {"M": m, "N": n, "K": k, **batch}) for m, n, k in shapes]
        for start in spec.starts:
            config = spec.default_config("h200").replace(start.config)
            meant = [each for each in problems if start.when.evaluate({**H200.names(), **each.names()})]
            assert meant, start.name
            assert not violations(spec, H200, meant[0], config), start.name

import pytest

from autotune.errors import InputError
from autotune.problem import Problem
from autotune.problems import bytes_moved, check_problem, flops, make_problem, packed_pitches, parse_size
from autotune.spec.load import load_spec

SGEMM = load_spec("sgemm")


def test_classes_follow_from_packed_pitches():
    problem = make_problem(SGEMM, (64, 30, 7))
    assert packed_pitches(SGEMM, problem) == {"lda": 7, "ldb": 30, "ldc": 30}
    plain = {"trans_a": "n", "trans_b": "n"}
    assert dict(problem.classes) == {**plain, "align_a": 1, "align_b": 2, "align_c": 2, "beta": "zero"}
    assert problem.key == "M=64,N=30,K=7;float32;trans_a=n,trans_b=n,align_a=1,align_b=2,align_c=2,beta=zero"
    assert problem.label == "64x30x7"


def test_one_number_stands_for_all_sizes():
    assert make_problem(SGEMM, 128) == make_problem(SGEMM, {"K": 128, "M": 128, "N": 128})
    assert dict(make_problem(SGEMM, 128).sizes) == {"M": 128, "N": 128, "K": 128}


def test_given_classes_win():
    problem = make_problem(SGEMM, 64, classes={"beta": "general", "align_a": 1})
    chosen = dict(problem.classes)
    assert (chosen["align_a"], chosen["align_b"], chosen["beta"]) == (1, 4, "general")


def test_work():
    zero = make_problem(SGEMM, (2, 3, 5))
    general = make_problem(SGEMM, (2, 3, 5), classes={"beta": "general"})
    assert (flops(SGEMM, zero), flops(SGEMM, general)) == (60.0, 66.0)
    assert (bytes_moved(SGEMM, zero), bytes_moved(SGEMM, general)) == (
        4.0 * (10 + 15 + 6),
        4.0 * (10 + 15 + 12),
    )


def test_empty_problems_are_problems():
    assert flops(SGEMM, make_problem(SGEMM, (4, 4, 0))) == 0


@pytest.mark.parametrize(
    ("sizes", "options", "message"),
    [
        (-1, {}, "size: M must be a whole number from 0"),
        (2**31, {}, "size: M must be a whole number"),
        (True, {}, "size: M must be a whole number"),
        (1.5, {}, "sizes are whole numbers, one or 3, got 1.5"),
        ("64", {}, "sizes are whole numbers, one or 3, got '64'"),
        (None, {}, "sizes are whole numbers"),
        ((1, 2), {}, "needs 3 sizes (MxNxK), got 2"),
        ((1, 2, 3.0), {}, "K must be a whole number"),
        ({"M": 1, "N": 2}, {}, "got none for K"),
        ({"M": 1, "N": 2, "k": 3}, {}, "has no size 'k'"),
        (4, {"dtype": "float64"}, "computes in float32, got 'float64'"),
        (4, {"classes": {"align_d": 1}}, "has no problem class 'align_d' (nearest: align_"),
        (4, {"classes": {"align_a": 3}}, "classes.align_a: must be one of 4, 2, 1, got 3"),
        (4, {"classes": {"align_a": True}}, "got true"),
        (4, {"classes": {"beta": "zer"}}, "got zer (nearest: zero)"),
    ],
)
def test_impossible_problems_are_refused(sizes, options, message):
    with pytest.raises(InputError) as refused:
        make_problem(SGEMM, sizes, **options)
    assert message in str(refused.value)


def test_sizes_from_text():
    assert parse_size("4096", SGEMM) == (4096, 4096, 4096)
    assert parse_size(" 4096x64X7 ", SGEMM) == (4096, 64, 7)
    for wrong in ("", "4096x64", "axbxc", "1x2x3x4", "-1", "1.5", "9" * 12, "4096x64x"):
        with pytest.raises(InputError, match="size: "):
            parse_size(wrong, SGEMM)


def test_a_problem_of_another_kernel_is_refused():
    good = make_problem(SGEMM, 64)
    check_problem(SGEMM, good)
    for wrong in (
        Problem((("M", 1), ("N", 2)), "float32"),
        Problem(good.sizes, "float64", good.classes),
        Problem(good.sizes, good.dtype, good.classes[:1]),
        Problem(good.sizes[::-1], good.dtype, good.classes),
        Problem((("M", -1), *good.sizes[1:]), good.dtype, good.classes),
    ):
        with pytest.raises(InputError):
            check_problem(SGEMM, wrong)

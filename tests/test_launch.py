"""Launch plans: names, grid and block, and buffers with exactly the alignment that their class states."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.candidate import BufferPlan, ScalarPlan
from autotune.config import Config
from autotune.errors import InputError
from autotune.expressions import Expression
from autotune.gpu_tables import find_gpu
from autotune.launch import buffer_layout, check_call, config_names, item_bytes, plan_arguments, plan_launch
from autotune.problems import make_problem
from autotune.spec.kernel_spec import ArrayArgument, LaunchSpec, ScalarArgument
from autotune.spec.load import load_spec

A6000 = find_gpu("a6000")
SGEMM = load_spec("sgemm")
DEFAULT = Config.of(SGEMM.defaults)


def test_names_without_a_problem_are_parameters_derived_and_the_gpus() -> None:
    names = config_names(SGEMM, A6000, DEFAULT)
    assert (names["threads"], names["lanes_m"], names["lanes_n"]) == (128, 4, 8)
    assert names["smem_bytes"] == 4 * 3 * 16 * (132 + 128)
    assert names["compute_capability"] == 86
    assert "M" not in names
    assert "GUARD" not in names


def test_names_with_a_problem_add_sizes_classes_and_variants() -> None:
    names = config_names(SGEMM, A6000, DEFAULT, make_problem(SGEMM, (128, 256, 30)))
    assert (names["M"], names["N"], names["K"], names["beta"]) == (128, 256, 30, "zero")
    assert names["GUARD"] is True
    assert names["BETA_ZERO"] is True
    assert (names["align_a"], names["LOAD_B"], names["STORE_C"]) == (2, 4, 4)


def test_a_plan_has_the_arguments_in_the_order_of_the_signature() -> None:
    plan = plan_launch(SGEMM, make_problem(SGEMM, (1000, 300, 64)), DEFAULT, A6000)
    assert plan.grid == (8 * 3, 1, 1)
    assert plan.block == (128, 1, 1)
    assert plan.threads == 128
    assert plan.dynamic_smem_bytes == 4 * 3 * 16 * (132 + 128)
    assert [argument.name for argument in plan.arguments] == [
        "M", "N", "K", "alpha", "A", "lda", "B", "ldb", "beta", "C", "ldc", "workspace",
    ]  # fmt: skip
    scalars = {item.name: item.value for item in plan.arguments if isinstance(item, ScalarPlan)}
    assert scalars == {
        "M": 1000, "N": 300, "K": 64, "alpha": 1.0, "lda": 64, "ldb": 300, "beta": 0.0, "ldc": 300,
    }  # fmt: skip
    assert plan.buffers[0] == BufferPlan("A", "in", (1000, 64), "float32", 64, 0)
    assert plan.buffers[2].role == "inout"


def test_scalars_follow_the_class() -> None:
    plan = plan_launch(SGEMM, make_problem(SGEMM, 64, classes={"beta": "general"}), DEFAULT, A6000)
    scalars = {item.name: item.value for item in plan.arguments if isinstance(item, ScalarPlan)}
    assert scalars["beta"] == 0.5


@pytest.mark.parametrize("sizes", [(0, 64, 64), (64, 0, 64)])
def test_an_empty_output_is_an_empty_launch(sizes: tuple[int, int, int]) -> None:
    assert plan_launch(SGEMM, make_problem(SGEMM, sizes), DEFAULT, A6000).empty


def test_an_empty_reduction_still_launches() -> None:
    plan = plan_launch(SGEMM, make_problem(SGEMM, (64, 64, 0)), DEFAULT, A6000)
    assert not plan.empty
    assert plan.buffers[0].shape == (64, 0)
    assert plan.buffers[0].pitch >= 1


@pytest.mark.parametrize(
    ("align", "width", "pitch", "offset"),
    [
        (4, 64, 64, 0),
        (4, 65, 68, 0),
        (2, 64, 64, 2),
        (2, 65, 66, 2),
        (1, 64, 64, 1),
        (1, 65, 65, 1),
    ],
)
def test_a_buffer_is_as_aligned_as_its_class_and_no_more(
    align: int, width: int, pitch: int, offset: int
) -> None:
    problem = make_problem(SGEMM, (8, 8, width), classes={"align_a": align})
    plan = plan_launch(SGEMM, problem, DEFAULT, A6000)
    assert (plan.buffers[0].pitch, plan.buffers[0].offset) == (pitch, offset)
    assert {item.name: item.value for item in plan.arguments if isinstance(item, ScalarPlan)}["lda"] == pitch


def test_the_default_class_of_a_packed_array_gives_a_packed_array() -> None:
    for width in range(1, 20):
        problem = make_problem(SGEMM, (8, 8, width))
        assert plan_launch(SGEMM, problem, DEFAULT, A6000).buffers[0].pitch == width


def test_wide_elements_are_fully_aligned_sooner() -> None:
    problem = replace(make_problem(SGEMM, 64), classes=(("align_a", 2),))
    array = ArrayArgument("x", "in", (Expression.parse("M"),), "float64", align="align_a")
    assert buffer_layout(array, problem).offset == 0
    assert buffer_layout(replace(array, dtype="float32"), problem).offset == 2


def test_arrays_without_an_alignment_class_are_packed_and_aligned() -> None:
    array = ArrayArgument("x", "out", (Expression.parse("M"), Expression.parse("K + 1")), "float32")
    layout = buffer_layout(array, make_problem(SGEMM, 64))
    assert (layout.shape, layout.pitch, layout.offset) == ((64, 65), 65, 0)


def test_grids_of_several_dimensions() -> None:
    launch = LaunchSpec(
        (Expression.parse("ceil_div(N, BN)"), Expression.parse("ceil_div(M, BM)")),
        (Expression.parse("32"), Expression.parse("threads // 32")),
        Expression.parse("0"),
    )
    plan = plan_launch(replace(SGEMM, launch=launch), make_problem(SGEMM, (512, 256, 64)), DEFAULT, A6000)
    assert (plan.grid, plan.block, plan.threads) == ((2, 4, 1), (32, 4, 1), 128)


def test_a_grid_must_be_whole_numbers() -> None:
    launch = replace(SGEMM.launch, grid=(Expression.parse("M / 3"),))
    with pytest.raises(InputError, match="whole number"):
        plan_launch(replace(SGEMM, launch=launch), make_problem(SGEMM, 64), DEFAULT, A6000)


def test_an_unknown_element_type_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="float64"):
        item_bytes("float80")


def test_numbers_beyond_their_type_are_refused() -> None:
    wide = make_problem(SGEMM, (5, 2**31 - 1, 8), classes={"align_b": 4})
    with pytest.raises(
        InputError, match=r"arguments\.ldb: is passed as int32, .* to 2147483647, got 2147483648"
    ):
        plan_arguments(SGEMM, wide)
    for text, dtype, fits in (
        ("M * N", "int32", False),
        ("M * N", "int64", True),
        ("M - 10 ** 6", "uint64", False),
        ("M / 3", "int32", False),
        ("M // 3 * 1.0", "int32", True),
        ("M * N", "float32", True),
        ("200", "int8", False),
        ("200", "uint8", True),
    ):
        spec = replace(SGEMM, arguments=(*SGEMM.arguments, ScalarArgument("x", dtype, Expression(text))))
        if fits:
            plan_arguments(spec, make_problem(SGEMM, 2**16))
        else:
            with pytest.raises(InputError, match=r"arguments\.x: "):
                plan_arguments(spec, make_problem(SGEMM, 2**16))


def test_arrays_beyond_the_memory_are_refused() -> None:
    check_call(SGEMM, make_problem(SGEMM, 2**16), A6000)
    with pytest.raises(InputError, match=r"arrays of 131072x131072x131072 take 206,158,430,208 bytes"):
        check_call(SGEMM, make_problem(SGEMM, 2**17), A6000)

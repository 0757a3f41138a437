"""Bank conflicts of the accesses that tiled matrix products make; the simulation against a plain count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.banks import access_costs, count_wavefronts, wavefronts
from autotune.errors import InputError
from autotune.expressions import Expression
from autotune.spec.kernel_spec import SharedAccess
from autotune.spec.load import load_spec


def access(address: str, width: str = "1") -> SharedAccess:
    return SharedAccess("x", Expression.parse(address), Expression.parse(width))


# --- storing A transposed: As[k][m], pitch BM + PAD_A

VECTOR_STORE = access("(lane % (BK // 4) * 4) * (BM + PAD_A) + lane // (BK // 4)")
ASYNC_STORE = access("lane % BK * (BM + PAD_A) + lane // BK")


def test_a_transposed_from_wide_loads_is_two_way_at_bk_8_and_free_with_pad_4() -> None:
    assert wavefronts(VECTOR_STORE, {"BK": 8, "BM": 128, "PAD_A": 0}) == 2
    assert wavefronts(VECTOR_STORE, {"BK": 8, "BM": 128, "PAD_A": 4}) == 1


def test_async_copies_of_four_bytes_are_eight_way_at_bk_8_and_free_with_pad_4() -> None:
    assert wavefronts(ASYNC_STORE, {"BK": 8, "BM": 128, "PAD_A": 0}) == 8
    assert wavefronts(ASYNC_STORE, {"BK": 8, "BM": 128, "PAD_A": 4}) == 1


@pytest.mark.parametrize("depth", [16, 32])
def test_no_padding_frees_async_copies_of_deep_tiles(depth: int) -> None:
    """The pitch stays a multiple of 4 for the vector reads, so rows start in only 8 different banks."""
    for pad in range(0, 32, 4):
        assert wavefronts(ASYNC_STORE, {"BK": depth, "BM": 128, "PAD_A": pad}) >= 2


# --- reading fragments with 16-byte loads

ROWMAJOR_A, ROWMAJOR_B = access("lane // LN * 4", "4"), access("lane % LN * 4", "4")
Z_A = access("(lane // (2 * LN) * 2 + lane % 2) * 4", "4")
Z_B = access("lane % (2 * LN) // 2 * 4", "4")


@pytest.mark.parametrize("lanes_n", [8, 4])
def test_row_major_lanes_cost_two_and_four_wavefronts(lanes_n: int) -> None:
    assert wavefronts(ROWMAJOR_A, {"LN": lanes_n}) == 2
    assert wavefronts(ROWMAJOR_B, {"LN": lanes_n}) == 4


@pytest.mark.parametrize("lanes_n", [8, 4])
def test_z_order_costs_two_and_two(lanes_n: int) -> None:
    assert wavefronts(Z_A, {"LN": lanes_n}) == 2
    assert wavefronts(Z_B, {"LN": lanes_n}) == 2


# --- the simulation itself


def test_one_word_for_all_lanes_is_one_wavefront() -> None:
    assert count_wavefronts([7] * 32, 1) == 1


def test_a_stride_of_32_words_is_a_wavefront_per_lane() -> None:
    assert count_wavefronts([32 * lane for lane in range(32)], 1) == 32


def test_consecutive_wide_words_take_as_many_wavefronts_as_the_data_needs() -> None:
    assert count_wavefronts(list(range(32)), 1) == 1
    assert count_wavefronts([2 * lane for lane in range(32)], 2) == 2
    assert count_wavefronts([4 * lane for lane in range(32)], 4) == 4


lane_words = st.lists(st.integers(0, 400), min_size=32, max_size=32)


@given(lane_words)
def test_narrow_accesses_cost_the_fullest_bank(words: list[int]) -> None:
    banks = [len({word for word in words if word % 32 == bank}) for bank in range(32)]
    assert count_wavefronts(words, 1) == max(banks)


@given(lane_words, st.sampled_from([2, 4]))
def test_wide_accesses_lie_between_the_data_and_one_wavefront_per_lane(words: list[int], width: int) -> None:
    addresses = [word * width for word in words]
    touched = {address + offset for address in addresses for offset in range(width)}
    assert -(-len(touched) // 32) <= count_wavefronts(addresses, width) <= 32


@given(lane_words, st.sampled_from([1, 2, 4]), st.integers(1, 50))
def test_moving_an_access_by_whole_rows_of_banks_changes_nothing(
    words: list[int], width: int, rows: int
) -> None:
    addresses = [word * width for word in words]
    moved = [address + 32 * rows for address in addresses]
    assert count_wavefronts(moved, width) == count_wavefronts(addresses, width)


@pytest.mark.parametrize(
    ("address", "width", "message"),
    [
        ("lane * 2", "4", "divisible by the width 4"),
        ("lane", "3", "1, 2 or 4"),
        ("lane - 1", "1", "lane 0 has -1"),
    ],
)
def test_impossible_accesses_are_refused(address: str, width: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        wavefronts(access(address, width), {})


def test_the_shipped_kernel_declares_its_accesses() -> None:
    spec = load_spec("sgemm")
    assert {item.name for item in spec.shared_accesses} == {"read_a", "read_b", "write_a", "write_b"}
    names = {**spec.defaults, "lanes_m": 4, "lanes_n": 8}
    assert [(cost.name, cost.wavefronts, cost.ideal) for cost in access_costs(spec, names)] == [
        ("read_a", 2, 2),
        ("read_b", 2, 2),
        ("write_a", 2, 1),  # BK = 16: see above, padding alone cannot free it
        ("write_b", 4, 4),
    ]

"""GPU tables: shipped boards, names as users write them, devices told apart, faults with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.errors import InputError
from autotune.gpu_tables import BoardTable, find_gpu, list_gpus, table_for_device
from autotune.paths import shipped
from autotune.spec.yaml_file import read_yaml

GIB = 2**30

BOARDS = [
    "a10", "a100_pcie_40gb", "a100_pcie_80gb", "a100_sxm4_40gb", "a100_sxm4_80gb", "a6000", "b200",
    "h100_pcie", "h100_sxm5", "h200", "l4", "l40s", "rtx3090", "rtx4090", "rtx5090", "t4",
]  # fmt: skip


def test_the_shipped_boards() -> None:
    assert [gpu.table for gpu in list_gpus()] == BOARDS


@pytest.mark.parametrize("table", BOARDS)
def test_peak_rate_agrees_with_the_vendors(table: str) -> None:
    gpu = find_gpu(table)
    assert gpu.quoted_fp32_tflops is not None
    # A6000: the quoted 30 is what power allows; B200: the vendor quotes another clock.
    slack = {"a6000": 0.30, "b200": 0.08}.get(table, 0.02)
    assert gpu.peak_fp32_tflops == pytest.approx(gpu.quoted_fp32_tflops, rel=slack)


@pytest.mark.parametrize("table", BOARDS)
def test_limits_are_consistent(table: str) -> None:
    gpu = find_gpu(table)
    assert gpu.smem_per_block_bytes + gpu.smem_reserved_bytes == gpu.smem_per_sm_bytes
    assert gpu.max_threads_per_sm % gpu.max_threads_per_block in (0, 512)
    assert gpu.fp32_lanes_per_sm in (64, 128)
    assert 0 < gpu.l2_bytes < gpu.memory_bytes


def test_every_number_names_a_source_that_is_spelt_out() -> None:
    files = [file for file in (shipped("configs") / "gpus").glob("*.yaml") if file.stem in BOARDS]
    assert len(files) == len(BOARDS)
    for file in files:
        board = BoardTable.model_validate(read_yaml(file).data)
        assert all(len(text) > 15 for text in board.sources.values()), file


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("a6000", "a6000"),
        ("A6000", "a6000"),
        ("RTX A6000", "a6000"),
        ("rtx-a6000", "a6000"),
        ("NVIDIA RTX A6000", "a6000"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("geforce 4090", "rtx4090"),
        ("a10", "a10"),
        ("Tesla T4", "t4"),
        ("t4", "t4"),
        ("NVIDIA A100-SXM4-80GB", "a100_sxm4_80gb"),
        ("A100 80GB PCIe", "a100_pcie_80gb"),
        ("h100_sxm5", "h100_sxm5"),
        ("NVIDIA H100 80GB HBM3", "h100_sxm5"),
        ("H200", "h200"),
    ],
)
def test_names_as_users_write_them(name: str, table: str) -> None:
    assert find_gpu(name).table == table


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("a100", "a100_pcie_40gb, a100_pcie_80gb, a100_sxm4_40gb, a100_sxm4_80gb"),
        ("NVIDIA A100", "a100_pcie_40gb, a100_pcie_80gb, a100_sxm4_40gb, a100_sxm4_80gb"),
        ("H100", "h100_pcie, h100_sxm5"),
        ("A100 SXM4", "a100_sxm4_40gb, a100_sxm4_80gb"),
    ],
)
def test_an_ambiguous_name_is_refused_with_the_choices(name: str, choices: str) -> None:
    with pytest.raises(InputError, match=choices):
        find_gpu(name)


@pytest.mark.parametrize(("name", "nearest"), [("a6001", "a6000"), ("h20", "h200"), ("rtx4080", "rtx4090")])
def test_an_unknown_name_tells_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(InputError) as caught:
        find_gpu(name)
    assert caught.value.nearest == nearest


@pytest.mark.parametrize("name", ["", "-", "nvidia", "nvidia h200 mig 3g.71gb"])
def test_a_name_that_says_too_little_or_too_much_matches_nothing(name: str) -> None:
    with pytest.raises(InputError):
        find_gpu(name)


def test_devices_are_told_apart_by_memory_sms_and_slice() -> None:
    a100 = {"compute_capability": (8, 0), "sm_count": 108}
    assert table_for_device("NVIDIA A100-SXM4-40GB", memory_bytes=42405855232, **a100) == "a100_sxm4_40gb"
    assert table_for_device("NVIDIA A100-SXM4-80GB", memory_bytes=85_100_000_000, **a100) == "a100_sxm4_80gb"
    assert table_for_device("NVIDIA A100-SXM4-40GB", memory_bytes=85_100_000_000, **a100) is None
    assert table_for_device("Tesla T4", (7, 5), 40, 15843721216) == "t4"
    assert table_for_device("NVIDIA H200", (9, 0), 132, 150_110_011_392) == "h200"
    assert table_for_device("NVIDIA H200", (9, 0), 60, 150_110_011_392) is None
    assert table_for_device("NVIDIA H200 MIG 3g.71gb", (9, 0), 60, 75 * GIB, "3g.71gb") is None
    assert table_for_device("NVIDIA H200", (9, 0), 132, 150_110_011_392, "7g.141gb") is None
    assert table_for_device("NVIDIA RTX A4000", (8, 6), 48, 16 * GIB) is None


def test_a_device_with_ecc_keeps_its_table() -> None:
    # ECC takes a sixteenth of GDDR memory.
    assert table_for_device("NVIDIA RTX A6000", (8, 6), 84, 48 * GIB * 15 // 16 - 600 * 2**20) == "a6000"


BOARD = """\
table: mine
name: My GPU
compute_capability: "8.6"
sm_count: {value: 10, source: me}
max_clock_mhz: {value: 1000, source: me}
memory_bytes: {value: 1000000, source: me}
memory_gbps: {value: 100, source: me}
l2_bytes: {value: 1000, source: me}
sources: {me: counted by hand}
"""


def write_board(folder: Path, text: str, name: str = "mine") -> None:
    (folder / "configs" / "gpus").mkdir(parents=True, exist_ok=True)
    (folder / "configs" / "gpus" / f"{name}.yaml").write_text(text)


def test_a_project_folder_adds_boards_and_replaces_shipped_ones(tmp_path: Path) -> None:
    write_board(tmp_path, BOARD)
    write_board(tmp_path, BOARD.replace("table: mine", "table: a6000").replace("My", "Another"), "a6000")
    assert find_gpu("my gpu", [tmp_path]).registers_per_sm == 65536
    assert find_gpu("a6000", [tmp_path]).sm_count == 10
    assert find_gpu("a6000").sm_count == 84


@pytest.mark.parametrize("table", ["mine", "zz_mine"])
def test_a_device_meets_the_first_folders_table_of_its_name(tmp_path: Path, table: str) -> None:
    """Whatever its name sorts to, beside a shipped table, and one of a later folder, of the same CUDA name."""
    first, second = tmp_path / "first", tmp_path / "second"
    own = (shipped("configs") / "gpus" / "h200.yaml").read_text()
    write_board(first, own.replace("table: h200", f"table: {table}"), table)
    write_board(second, own.replace("table: h200", "table: aa_other"), "aa_other")
    device = ("NVIDIA H200", (9, 0), 132, 150_110_011_392)
    assert table_for_device(*device, folders=[first, second]) == table
    assert table_for_device(*device, folders=[second, first]) == "aa_other"
    assert table_for_device(*device) == "h200"


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("sm_count:", "sm_cuont:", 4, "unknown key (nearest: sm_count)"),
        ("value: 10,", "value: -10,", 4, "sm_count.value: must be greater than 0, got -10"),
        ("value: 10,", "valeu: 10,", 4, "valeu: unknown key (nearest: value)"),
        ("value: 10,", "value: ten,", 4, "sm_count.value: must be a valid integer, got 'ten'"),
        ('"8.6"', '"8.5"', 3, "must be one of 7.5, 8.0"),
        ('"8.6"', "8.6", 3, "compute_capability: must be a valid string, got 8.6"),
        ("table: mine", "table: other", 1, "must be the file's name 'mine', got 'other'"),
        ("{me: counted by hand}", "{you: counted by hand}", 1, "sources must spell out me"),
        ("name: My GPU\n", "", 1, "name: is required"),
        ("name: My GPU", "name: My GPU\nname: again", 3, "second time"),
    ],
)
def test_a_fault_is_reported_with_file_and_line(
    tmp_path: Path, old: str, new: str, line: int, message: str
) -> None:
    write_board(tmp_path, BOARD.replace(old, new))
    with pytest.raises(InputError) as caught:
        list_gpus([tmp_path])
    assert f"mine.yaml:{line}: " in str(caught.value)
    assert message in str(caught.value)

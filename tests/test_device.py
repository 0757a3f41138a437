import shutil
import sys

import pytest
from fakes.devices import FakeNvml, facts

from autotune import paths
from autotune.device import local as device
from autotune.device import nvml
from autotune.device.local import local_gpus, mig_profile, select_gpu, uuid_text
from autotune.errors import GpuUnavailable, InputError
from autotune.records import ClockReading
from autotune.target import find_target

A6000 = {
    "pci": "0000:18:00",
    "uuid": "GPU-a6a6a6a6-0000",
    "name": "NVIDIA RTX A6000",
    "max_clock": 2100,
    "clock": 1800,
    "temperature": 70,
    "reasons": 4,
}
H200 = {
    "pci": "0000:3b:00",
    "uuid": "GPU-72007200-0000",
    "name": "NVIDIA H200",
    "max_clock": 1980,
    "clock": 1200,
    "temperature": 40,
    "reasons": 1,
}


def a6000_facts():
    return facts(
        A6000["pci"],
        A6000["name"],
        A6000["uuid"],
        compute_capability=(8, 6),
        sm_count=84,
        memory_bytes=50_899_116_032,
        memory_clock_khz=8_001_000,
        memory_bus_bits=384,
        clock_khz=1_800_000,
        l2_bytes=6 * 2**20,
        smem_per_sm_bytes=100 * 1024,
        smem_per_block_bytes=99 * 1024,
        max_threads_per_sm=1536,
        max_blocks_per_sm=16,
    )


@pytest.fixture
def machine(monkeypatch):
    """Two boards: the management library sorts by bus id (backwards here), CUDA by speed."""

    def build(boards=(H200, A6000), cuda=None, driver=True):
        monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(list(boards), driver))
        listed = (facts(H200["pci"], uuid=H200["uuid"]), a6000_facts()) if cuda is None else cuda
        monkeypatch.setattr(device, "_ask_child", lambda: listed)
        device._local_gpus.cache_clear()

    yield build
    device._local_gpus.cache_clear()


def test_no_driver_no_gpus(machine):
    machine(driver=False)
    assert local_gpus() == []
    assert nvml.driver_versions().driver == ""
    assert nvml.clock_reader("0000:18:00")() is None
    with pytest.raises(GpuUnavailable, match="no NVIDIA GPU"):
        select_gpu("0", local_gpus())


def test_T50_index_name_and_uuid_mean_one_board_everywhere(machine):
    machine()
    gpus = local_gpus()
    assert [gpu.spec.table for gpu in gpus] == ["a6000", "h200"]  # by bus id, as nvidia-smi numbers them
    for board, table, names in (
        (A6000, "a6000", ("0", A6000["uuid"], "GPU-a6a6", "a6000", "NVIDIA RTX A6000")),
        (H200, "h200", ("1", H200["uuid"], "GPU-7200", "H200", "nvidia h200")),
    ):
        for name in names:
            gpu = find_target(name).local
            assert gpu == select_gpu(name, gpus)
            assert gpu.pci_bus_id == board["pci"]
            assert gpu.identity.name == board["name"]
            assert gpu.identity.table == table
            # The worker sees this board alone, by a name that both libraries agree on.
            assert gpu.worker_env()["CUDA_VISIBLE_DEVICES"] == board["uuid"]
            # Clocks and power are read from the board at the same bus id.
            assert nvml.clock_reader(gpu.pci_bus_id)().sm_clock_mhz == board["clock"]


def test_select_gpu_says_what_is_here(machine):
    machine()
    with pytest.raises(InputError, match=r"here: 0, a6000.*nearest: a6000"):
        select_gpu("a600", local_gpus())


def test_hidden_boards_are_left_out(machine):
    machine(cuda=(facts(H200["pci"], uuid=H200["uuid"]),))
    (only,) = local_gpus()
    assert only.index == 1
    assert only.uuid == H200["uuid"]


def test_specification_joins_table_and_device(machine):
    machine()
    h200 = select_gpu("h200", local_gpus())
    assert h200.spec.arch == "sm_90"
    assert h200.spec.fp32_lanes_per_sm == 128
    assert h200.spec.max_clock_mhz == 1980
    assert h200.spec.l2_bytes == 60 * 2**20  # the device's own word
    assert 4000 < h200.spec.memory_gbps < 5000
    assert h200.environment.driver == "580.159.03"
    assert h200.environment.cuda == "13.0"


def test_board_without_table_is_described_by_itself(machine):
    odd = facts("0000:3b:00", "NVIDIA H200 Special Edition", sm_count=100)
    machine(cuda=(odd,))
    (gpu,) = local_gpus()
    assert gpu.spec.table == "h200_special_edition"
    assert gpu.spec.sm_count == 100
    assert gpu.spec.memory_gbps == pytest.approx(4917, rel=0.01)


def test_board_meets_the_table_of_a_project(machine, tmp_path):
    machine(cuda=(facts("0000:3b:00", "NVIDIA H200 Special Edition", sm_count=100),))
    shipped_table = (paths.shipped("configs") / "gpus" / "h200.yaml").read_text()
    own = shipped_table.replace("table: h200", "table: special").replace("value: 132", "value: 100")
    file = tmp_path / "configs" / "gpus" / "special.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(own.replace("name: NVIDIA H200", "name: NVIDIA H200 Special Edition"))
    # Named by its own table it is the board that is here, not one to predict for.
    target = find_target("special", (tmp_path,))
    assert target.local is not None
    assert target.local.identity.table == target.gpu.table == "special"
    assert find_target("local").gpu.table == "h200_special_edition"


def test_mig_slice_is_no_whole_gpu(machine):
    slice_ = facts("0000:3b:00", "NVIDIA H200 MIG 3g.71gb", "MIG-11", sm_count=60, memory_bytes=75 * 10**9)
    machine(cuda=(slice_,))
    (gpu,) = local_gpus()
    assert gpu.identity.mig_profile == gpu.spec.mig_profile == "3g.71gb"
    assert gpu.identity.table != "h200"
    assert gpu.worker_env()["CUDA_VISIBLE_DEVICES"] == "MIG-11"
    assert mig_profile("NVIDIA H200") == ""
    assert uuid_text(bytes(range(16)), "NVIDIA H200") == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"


def test_clock_reading_names_the_reasons(machine):
    machine()
    assert nvml.clock_reader("0000:18:00")() == ClockReading(1800, 2100, 70, "power cap")
    assert nvml.clock_reader("0000:3b:00")() == ClockReading(1200, 1980, 40, "")  # idling is no throttling
    machine(boards=({**A6000, "max_clock": 2100} | {"reasons": 4 | 64},))
    assert nvml.clock_reader("0000:18:00")().throttle_reasons == "power cap,temperature (hardware)"
    silent = {key: A6000[key] for key in ("pci", "uuid", "name")}
    machine(boards=(silent,))
    assert nvml.clock_reader("0000:18:00")() is None


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="there is a driver")
def test_listing_in_a_child_without_a_driver_is_told(monkeypatch):
    with pytest.raises(GpuUnavailable, match="CUDA cannot list its devices"):
        device._ask_child()

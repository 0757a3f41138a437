import dataclasses
import gc

import pytest
from fakes.cublas import FakeCublasLibrary, FakeCublasLtLibrary
from fakes.gpu import FakeGpu, gemm_launch, right, runnable

from autotune.device.cublas import Cublas
from autotune.device.cublaslt import CublasLt
from autotune.device.messages import (
    CUBLAS,
    Baseline,
    ChooseRoutine,
    Compare,
    Inspect,
    Measure,
    Prepare,
    Verify,
    VerifyRoutine,
    Workload,
)
from autotune.device.worker import KEPT_WORKLOADS, Worker
from autotune.errors import StageFailure
from autotune.protocol import Protocol
from autotune.records import Status

PROTOCOL = Protocol()


def broken(gpu, launch, addresses):
    raise StageFailure(Status.CRASHED, "running: cudaErrorIllegalAddress")


def start(**options):
    gpu = FakeGpu({"right": right, "broken": broken}, **options)
    library = FakeCublasLibrary(gpu)
    lt = FakeCublasLtLibrary(gpu)
    return gpu, Worker(
        gpu,
        lambda: Cublas(7, gpu.allocate(64), gpu.address, library),
        lambda: None,
        lambda: CublasLt(7, gpu.allocate(64), gpu.address, lt),
    )


def test_verify_measure_inspect():
    gpu, worker = start()
    run = runnable(gemm_launch(16, 16, 16))
    workload = Workload.of(run, PROTOCOL)
    assert worker.handle(Prepare(workload)) == (workload,)
    assert worker.handle(Verify(run, workload)).worst_error < 4
    assert worker.handle(Measure(run, workload, PROTOCOL)).measurement.time_ms == pytest.approx(1.0)
    assert worker.handle(Inspect(run)).blocks_per_sm == 2
    assert gpu.loaded_now <= 1
    with pytest.raises(TypeError, match="not a request"):
        worker.handle("hello")


def test_reference_is_computed_once_per_problem(monkeypatch):
    made = []
    import autotune.device.worker as module

    original = module.Trap
    monkeypatch.setattr(module, "Trap", lambda *a: made.append(1) or original(*a))
    _, worker = start()
    run = runnable(gemm_launch(16, 16, 16))
    for _ in range(3):
        worker.handle(Verify(run, Workload.of(run, PROTOCOL)))
    assert len(made) == 1
    worker.handle(Verify(run, dataclasses.replace(Workload.of(run, PROTOCOL), seed=9)))
    assert len(made) == 2


def test_T12_failures_and_many_problems_keep_nothing():
    gpu, worker = start()
    for k in range(1, 60):
        run = runnable(gemm_launch(16, 16, k), "broken" if k % 3 == 0 else "right")
        workload = Workload.of(run, PROTOCOL)
        if k % 3 == 0:
            with pytest.raises(StageFailure, match="IllegalAddress"):
                worker.handle(Verify(run, workload))
        else:
            worker.handle(Verify(run, workload))
        assert gpu.loaded_now <= 1
    gc.collect()
    assert len(worker._traps) <= KEPT_WORKLOADS
    assert len(worker._sets) <= 1


def test_memory_limits_what_is_kept():
    _, worker = start(memory_bytes=2**20)
    for k in range(1, 6):
        run = runnable(gemm_launch(16, 16, k))
        worker.handle(Verify(run, Workload.of(run, PROTOCOL)))
    assert len(worker._traps) == 1


def test_T56_vendor_routine_is_measured_as_a_kernel_is():
    gpu, worker = start(time_ms=lambda entry, number: 2.0**-4)
    run = runnable(gemm_launch(64, 64, 64))
    workload = Workload.of(run, PROTOCOL)
    worker.handle(Measure(run, workload, PROTOCOL))  # makes the buffer sets that both then use
    gpu.log.clear()
    gpu.clock_ms = 0.0
    ours = worker.handle(Measure(run, workload, PROTOCOL))
    kernel_log = gpu.log.copy()
    gpu.log.clear()
    gpu.clock_ms = 0.0
    theirs = worker.handle(Baseline(workload, PROTOCOL))
    assert theirs.measurement.time_ms / ours.measurement.time_ms == pytest.approx(1.0)
    assert theirs.measurement.calls_per_sample == ours.measurement.calls_per_sample
    assert [entry.replace("cublas", "right") for entry in gpu.log] == kernel_log
    assert "cuBLAS 13.0.2" in theirs.notes[0]
    assert "heuristic" in theirs.notes[0]


def test_compare_has_the_vendor_last():
    gpu, worker = start(time_ms=lambda entry, number: 2.0 if entry == "cublas" else 3.0)
    run = runnable(gemm_launch(64, 64, 64))
    workload = Workload.of(run, PROTOCOL)
    times = worker.handle(Compare((run, run), (workload, workload), PROTOCOL, (CUBLAS,)))
    assert [timed.measurement.time_ms for timed in times] == pytest.approx([3.0, 3.0, 2.0])
    assert gpu.loaded_now <= 1


def test_the_fastest_of_the_heuristics_candidates_is_chosen_verified_and_compared():
    times = {"right": 3.0, "cublas": 2.0, "cublaslt 0": 2.5, "cublaslt 1": 1.5, "cublaslt 3": 1.7}
    _, worker = start(time_ms=lambda entry, number: times[entry])
    run = runnable(gemm_launch(24, 16, 32, 0.5, pad=1, offset=1))
    workload = Workload.of(run, PROTOCOL)
    chosen = worker.handle(ChooseRoutine(workload, dataclasses.replace(PROTOCOL, max_samples=3), 16))
    # The third is listed but refused by the library, the last is dropped from the list by its state.
    assert [time for _, time in chosen.tried] == [
        pytest.approx(2.5),
        pytest.approx(1.5),
        None,
        pytest.approx(1.7),
    ]
    assert chosen.routine.name == "cublaslt"
    assert "fastest of 4 candidates" in chosen.routine.notes[0]
    assert "algorithm 1, tile 21" in chosen.routine.notes[0]
    worker.handle(Prepare(workload))
    for routine in (CUBLAS, chosen.routine):
        assert worker.handle(VerifyRoutine(routine, workload)).worst_error < 4
    timed = worker.handle(Compare((run,), (workload,), PROTOCOL, (CUBLAS, chosen.routine)))
    assert [one.measurement.time_ms for one in timed] == pytest.approx([3.0, 2.0, 1.5])
    assert [one.notes[0].split()[0] for one in timed[1:]] == ["cuBLAS", "cublasLt"]


def test_a_library_that_is_wrong_is_told():
    _, worker = start()
    workload = Workload.of(runnable(gemm_launch(16, 16, 16)), PROTOCOL)
    chosen = worker.handle(ChooseRoutine(workload, PROTOCOL, 1))
    worker._vendor_lt()._library.spoilt = True
    with pytest.raises(StageFailure, match="is nan"):
        worker.handle(VerifyRoutine(chosen.routine, workload))

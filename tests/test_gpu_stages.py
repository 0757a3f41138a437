import multiprocessing
import pickle
import shutil
import time
from pathlib import Path

import pytest
from fakes.devices import facts
from fakes.gpu import GPU, gemm_launch, runnable

from autotune.child.errors import ChildDied, ChildRaised, ChildTimeout
from autotune.device.cuda_errors import failure as cuda_failure
from autotune.device.local import LocalGpu
from autotune.device.lock import device_lock
from autotune.device.messages import Hello, Measure, Prepare, Stats, Verify, WorkerStats
from autotune.device.stages import STARTS, GpuStages
from autotune.errors import GpuUnavailable, StageFailure
from autotune.protocol import Protocol
from autotune.records import Accuracy, DeviceIdentity, Environment, Measurement, Status
from autotune.trial import Timed

RUN = runnable(gemm_launch(16, 16, 16))
ACCURACY = Accuracy(0.5, 4.0, 256)


def local_gpu(watchdog=False):
    identity = DeviceIdentity("fake", "Fake GPU", "9.0", 10, 2**30)
    environment = Environment("580.1", "13.0", "13.0", "0.1.0")
    return LocalGpu(GPU, identity, environment, "GPU-aa", "0000:18:00", 0, watchdog)


class FakePool:
    workers = 1


class FakeChild:
    """A worker process whose answers are planted by message type: values, or errors to raise."""

    def __init__(self, world, env):
        self.world, self.env = world, env
        self.closed = False
        world.append(self)

    def request(self, message, timeout_s):
        assert not self.closed
        assert all(child.closed for child in self.world if child is not self), "an earlier worker still runs"
        self.world.log.append((type(message).__name__, timeout_s))
        answer = self.world.answers[type(message)]
        answer = answer.pop(0) if isinstance(answer, list) else answer
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def kill(self):
        pass

    def close(self):
        self.closed = True
        self.world.log.append(("closed", 0))


class World(list):
    def __init__(self, **answers):
        super().__init__()
        self.log = []
        self.answers = {
            Hello: facts("0000:18:00"),
            Prepare: (),
            Verify: ACCURACY,
            Measure: Timed(Measurement((1.0,), 1)),
            Stats: WorkerStats(0, 0, 0),
        }
        self.answers |= {globals()[name]: answer for name, answer in answers.items()}


def stages(world, tmp_path, protocol=None, watchdog=False):
    return GpuStages(
        local_gpu(watchdog),
        FakePool(),
        protocol,
        start_child=lambda env: FakeChild(world, env),
        lock_folder=tmp_path,
    )


def test_verify_and_measure_use_one_worker(tmp_path):
    world = World()
    with stages(world, tmp_path) as ours:
        assert ours.verify_run(RUN) == ACCURACY
        assert ours.measure_run(RUN).measurement.time_ms == 1.0
        assert ours.stats().requests == 0
    assert len(world) == 1
    assert [name for name, _ in world.log] == ["Hello", "Prepare", "Verify", "Measure", "Stats", "closed"]
    assert world[0].env["CUDA_VISIBLE_DEVICES"] == "GPU-aa"
    # Data and reference have a limit of their own: the kernel's is short.
    limits = dict(world.log)
    assert limits["Verify"] == limits["Measure"] == Protocol().run_limit_s < limits["Prepare"]


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (ChildTimeout(timeout_s=10.0), Status.TIMEOUT, "longer than 10 s and was killed"),
        (ChildDied(output="Xid 31\n", returncode=-11), Status.CRASHED, "ended by SIGSEGV: Xid 31"),
        (ChildRaised(kind="ValueError", message="odd"), Status.CRASHED, "ValueError: odd"),
        (StageFailure(Status.CRASHED, "running: cudaErrorIllegalAddress"), Status.CRASHED, "IllegalAddress"),
    ],
)
def test_T07_T09_a_lost_worker_is_gone_before_the_next_one_starts(tmp_path, error, status, words):
    world = World(Verify=[error, ACCURACY])
    with stages(world, tmp_path) as ours:
        with pytest.raises(StageFailure, match=words) as caught:
            ours.verify_run(RUN)
        assert caught.value.status is status
        assert world[0].closed
        assert ours.restarts == 1
        assert ours.verify_run(RUN) == ACCURACY  # FakeChild asserts that no earlier one is alive
        assert ours.measure_run(RUN).measurement.time_ms == 1.0
    assert len(world) == 2


@pytest.mark.parametrize("status", [Status.WRONG_RESULT, Status.LAUNCH_ERROR])
def test_worker_lives_on_after_failures_that_leave_the_context(tmp_path, status):
    world = World(Verify=[StageFailure(status, "no"), ACCURACY])
    with stages(world, tmp_path) as ours:
        with pytest.raises(StageFailure):
            ours.verify_run(RUN)
        ours.verify_run(RUN)
    assert len(world) == 1


def test_interrupt_ends_the_worker(tmp_path):
    world = World(Verify=[KeyboardInterrupt()])
    with stages(world, tmp_path) as ours:
        with pytest.raises(KeyboardInterrupt):
            ours.verify_run(RUN)
        assert world[0].closed


def test_T60_watchdog_timeout_has_a_hint_and_later_trials_go_on(tmp_path):
    world = World(Verify=[ChildTimeout(timeout_s=1.8), ACCURACY])
    with stages(world, tmp_path, watchdog=True) as ours:
        with pytest.raises(StageFailure, match="display watchdog") as caught:
            ours.verify_run(RUN)
        assert caught.value.status is Status.TIMEOUT
        assert ours.verify_run(RUN) == ACCURACY
    assert dict(world.log)["Verify"] < 2.0


def test_T60_watchdog_error_of_the_driver_is_a_timeout_with_the_hint():
    class Error(Exception):
        status = 702

    failed = cuda_failure(Error("CUDA_ERROR_LAUNCH_TIMEOUT"), "running")
    assert failed.status is Status.TIMEOUT
    assert "display watchdog" in failed.reason


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (1, Status.LAUNCH_ERROR),
        (209, Status.LAUNCH_ERROR),
        (701, Status.LAUNCH_ERROR),
        (700, Status.CRASHED),
        (716, Status.CRASHED),
        (719, Status.CRASHED),
        (999, Status.CRASHED),
    ],
)
def test_errors_of_the_driver_are_classed(code, status):
    error = RuntimeError("CUDA_ERROR_X: text")
    error.status = code
    failed = cuda_failure(error, "launching")
    assert failed.status is status
    assert "launching: CUDA_ERROR_X: text" in failed.reason
    assert pickle.loads(pickle.dumps(failed)).reason == failed.reason


def test_gpu_that_never_answers_is_lost(tmp_path):
    world = World(Hello=ChildDied(returncode=-9))
    with stages(world, tmp_path) as ours, pytest.raises(GpuUnavailable, match="no worker starts"):
        ours.verify_run(RUN)
    assert len(world) == STARTS
    assert all(child.closed for child in world)


def test_a_slow_start_is_tried_again(tmp_path):
    world = World(Hello=[ChildDied(returncode=-9), facts("0000:18:00")])
    with stages(world, tmp_path) as ours:
        assert ours.verify_run(RUN) == ACCURACY


def test_T50_worker_on_another_board_is_refused(tmp_path):
    world = World(Hello=facts("0000:3b:00"))
    with stages(world, tmp_path) as ours, pytest.raises(GpuUnavailable, match=r"0000:18:00.*0000:3b:00"):
        ours.verify_run(RUN)
    assert world[0].closed


def hold(folder, seconds, ready):
    with device_lock("0000:18:00", Path(folder)):
        ready.set()
        time.sleep(seconds)


def test_board_is_locked_across_processes(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    other = context.Process(target=hold, args=(str(tmp_path), 0.5, ready))
    other.start()
    assert ready.wait(20)
    start = time.monotonic()
    with device_lock("0000:3b:00", tmp_path):  # another board is free
        assert time.monotonic() - start < 0.3
    with device_lock("0000:18:00", tmp_path):
        assert time.monotonic() - start > 0.2
    other.join()
    assert not list(tmp_path.glob("*:*"))


def test_T09_hang_and_crash_in_a_real_process(tmp_path):
    from autotune.child.process import ChildProcess

    children = []

    def start(env):
        children.append(ChildProcess("fakes.gpu_worker", env=env))
        return children[-1]

    def run(entry):
        return runnable(gemm_launch(16, 16, 16), entry)

    protocol = Protocol(run_limit_s=1.0)
    with GpuStages(local_gpu(), FakePool(), protocol, start_child=start, lock_folder=tmp_path) as ours:
        assert ours.verify_run(run("right")).worst_error < 1
        begin = time.monotonic()
        with pytest.raises(StageFailure, match="longer than 1 s") as caught:
            ours.verify_run(run("hang"))
        assert caught.value.status is Status.TIMEOUT
        assert time.monotonic() - begin < 5
        assert not children[0].alive
        assert ours.measure_run(run("right")).measurement.time_ms == pytest.approx(1.0)
        with pytest.raises(StageFailure, match="SIGSEGV") as caught:
            ours.verify_run(run("crash"))
        assert caught.value.status is Status.CRASHED
        with pytest.raises(StageFailure, match="is nan"):
            ours.verify_run(run("wrong"))
        times = ours.compare_runs([run("right"), run("right")], vendor=True)
        assert len(times) == 3
        assert "heuristic" in times[2].notes[0]
        compared = ours.compare([run("right")])
        assert len(compared.measurements) == 1
        assert compared.vendor is not None
        assert compared.vendor.name == "cublas"
    assert len(children) == 3
    assert not any(child.alive for child in children)


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="there is a driver")
def test_without_a_driver_the_gpu_is_unavailable(tmp_path):
    with (
        GpuStages(local_gpu(), FakePool(), lock_folder=tmp_path) as ours,
        pytest.raises(GpuUnavailable, match="driver"),
    ):
        ours.verify_run(RUN)

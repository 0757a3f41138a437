import dataclasses
import itertools
import math
import statistics
from collections import Counter

import numpy as np
import pytest
from fakes.gpu import GPU, FakeGpu, gemm_launch, runnable

from autotune.device.measure import BufferSets, compare_calls, measure_call, refuse_implausible, sets_wanted
from autotune.device.messages import Workload
from autotune.device.sampling import clearly_slower, enough, half_width, joined, turn_order
from autotune.errors import StageFailure
from autotune.protocol import Protocol
from autotune.records import ClockReading, Measurement, Status

COLD, WARM = Protocol(), Protocol().warm()


def measured(gpu, protocol=COLD, best_ms=None, read_clocks=lambda: None, launch=None, entry="kernel"):
    launch = launch or gemm_launch(64, 64, 64)
    sets = BufferSets(gpu, Workload.of(runnable(launch), protocol))
    return measure_call(
        gpu, lambda addresses: gpu.bind(entry, launch, addresses), sets, protocol, best_ms, read_clocks
    )


def noisy(each_ms, relative, seed=1):
    rng = np.random.default_rng(seed)
    return lambda entry, number: each_ms * (1 + relative * abs(rng.standard_normal()))


def test_half_width_is_an_order_statistic_interval():
    assert half_width([1.0]) == math.inf
    assert half_width([1.0, 1.0, 1.2]) == pytest.approx(0.1)
    twenty = [1 + i / 100 for i in range(20)]  # 95% interval of the median: 6th to 15th value
    assert half_width(twenty) == pytest.approx((twenty[14] - twenty[5]) / 2 / statistics.median(twenty))


def test_half_width_covers_the_true_median():
    rng = np.random.default_rng(5)
    for count in (8, 15, 30):
        hits = 0
        for _ in range(400):
            samples = list(rng.lognormal(0, 0.2, count))
            middle = statistics.median(samples)
            hits += abs(1 - middle) <= 2 * half_width(samples) * middle
        assert hits / 400 > 0.93


def test_sampling_stops_when_precise_and_never_goes_on_for_ever():
    steady = measured(FakeGpu(time_ms=lambda *_: 5.0))
    assert steady.measurement.time_ms == pytest.approx(5.0)
    assert len(steady.measurement.samples_ms) <= 7
    assert steady.measurement.calls_per_sample == 1
    wild = measured(FakeGpu(time_ms=noisy(2.0, 0.5)))
    assert len(wild.measurement.samples_ms) == COLD.max_samples
    assert any(note.startswith("noisy") for note in wild.notes)
    slow = measured(FakeGpu(time_ms=noisy(700.0, 0.5)))
    assert 1 <= len(slow.measurement.samples_ms) <= 3
    assert enough([1.0] * 5, COLD)
    assert not enough([1.0] * 4, COLD)


def test_drop_rule_needs_a_clear_distance_and_two_samples_unless_it_is_large():
    assert not clearly_slower([], 1.0)
    assert not clearly_slower([1.45], 1.0)
    assert clearly_slower([1.55], 1.0)
    assert not clearly_slower([1.55], None)
    assert not clearly_slower([9.0, 9.0], None)
    assert not clearly_slower([1.2, 1.2], 1.0)
    assert not clearly_slower([1.3, 9.0], 1.0)  # within its own spread
    assert clearly_slower([1.4, 1.41], 1.0)
    assert not clearly_slower([1.2, 3.0, 3.0], 1.0)


def test_slow_candidate_is_dropped_after_its_first_samples():
    for each_ms, samples in ((20.0, 1), (14.0, 2)):
        timed = measured(FakeGpu(time_ms=noisy(each_ms, 0.02)), best_ms=10.0)
        assert timed.dropped
        assert len(timed.measurement.samples_ms) == samples
    assert not measured(FakeGpu(time_ms=noisy(11.0, 0.02)), best_ms=10.0).dropped


def test_samples_are_taken_only_where_the_rank_is_in_doubt():
    behind = measured(FakeGpu(time_ms=noisy(11.0, 0.02)), best_ms=10.0)
    assert len(behind.measurement.samples_ms) == 3
    near = measured(FakeGpu(time_ms=noisy(10.0, 0.05)), best_ms=10.0)
    assert len(near.measurement.samples_ms) > COLD.min_samples
    # Everything else being equal to another tuner's rules: neither dropped nor stopped early.
    seven = dataclasses.replace(COLD, min_samples=7, max_samples=7, racing=False)
    slow = measured(FakeGpu(time_ms=noisy(20.0, 0.02)), seven, best_ms=10.0)
    assert not slow.dropped
    assert len(slow.measurement.samples_ms) == 7


@pytest.mark.parametrize("each_ms", [0.002, 0.05, 1.0])
def test_a_dropped_candidate_takes_little_of_a_busy_gpu(each_ms):
    gpu = FakeGpu(time_ms=lambda entry, number: each_ms)
    measured(gpu)  # the clocks are up
    before = gpu.clock_ms
    assert measured(gpu, best_ms=each_ms / 2).dropped
    flush_ms = 0.15
    assert gpu.clock_ms - before < 3 + 3 * each_ms + flush_ms


def test_T17_short_kernels_are_timed_without_the_host():
    idle = FakeGpu(time_ms=lambda *_: 0.003, host_us_per_call=0)
    loaded = FakeGpu(time_ms=lambda *_: 0.003, host_us_per_call=25)
    times = [measured(gpu, protocol) for gpu in (idle, loaded) for protocol in (COLD, WARM)]
    for timed in times:
        assert timed.measurement.time_ms == pytest.approx(0.003, rel=0.01)
        assert timed.measurement.calls_per_sample > 20
    # The estimate that the host spoilt is corrected: samples stay about as long as asked for.
    assert times[2].measurement.calls_per_sample * 0.003 > 0.5 * COLD.sample_ms


def test_cold_samples_flush_outside_the_timed_part():
    gpu = FakeGpu(time_ms=lambda *_: 3.0)
    measured(gpu)
    sampling = gpu.log[gpu.log.index("flush") :]
    for i, entry in enumerate(sampling):
        if entry == "flush":
            assert sampling[i + 1 : i + 4] == ["mark", "kernel", "mark"]
    assert gpu.flushed >= 2 * gpu.l2_bytes * sampling.count("flush")
    warm = FakeGpu(time_ms=lambda *_: 3.0)
    assert measured(warm, WARM).measurement.time_ms == pytest.approx(3.0)
    assert warm.flushed == 0


def test_cold_calls_rotate_over_four_times_the_l2():
    gpu = FakeGpu(time_ms=lambda *_: 0.01)
    measured(gpu)
    set_bytes = 3 * 64 * 64 * 4
    last_graph = [addresses["A"] for _, addresses in gpu.launches[-100:]]
    assert len(set(last_graph)) * set_bytes > 4 * gpu.l2_bytes
    assert last_graph[0] != last_graph[1]
    warm = FakeGpu(time_ms=lambda *_: 0.01)
    measured(warm, WARM)
    assert len({addresses["A"] for _, addresses in warm.launches}) == 1


def test_buffer_sets_are_bounded_by_memory_and_all_alike():
    assert sets_wanted(1000, 2**20, 2**25, 2**40, cold=True) == 129
    assert sets_wanted(3, 2**20, 2**25, 2**40, cold=True) == 3
    assert sets_wanted(1000, 2**20, 2**25, 2**24, cold=True) == 8
    assert sets_wanted(1000, 2**30, 2**25, 2**20, cold=True) == 1
    assert sets_wanted(1000, 2**20, 2**25, 2**40, cold=False) == 1
    gpu = FakeGpu()
    launch = gemm_launch(5, 7, 3, 0.5, pad=2, offset=1)
    sets = BufferSets(gpu, Workload.of(runnable(launch), COLD))
    sets.grow(4)
    tables = [gpu.array(launch, sets.addresses(number), "B").copy() for number in range(4)]
    assert all(np.array_equal(table, tables[0]) for table in tables)
    assert np.isfinite(tables[0]).all()
    assert len({sets.addresses(number)["B"] for number in range(4)}) == 4
    assert all(address % 256 == 4 for address in sets.addresses(2).values())


def test_compare_takes_turns_and_meets_drift_alike():
    # The clock drops by 30% half-way: one after the other, the second would look slower.
    gpu = FakeGpu()
    gpu.time_ms = lambda entry, number: (2.0 if entry == "a" else 2.1) * (1.3 if gpu.clock_ms > 120 else 1)
    launch = gemm_launch(64, 64, 64)
    sets = BufferSets(gpu, Workload.of(runnable(launch), COLD))
    binds = [(lambda addresses, e=entry: gpu.bind(e, launch, addresses), sets) for entry in ("a", "b", "a")]
    first, second, again = compare_calls(gpu, binds, COLD)
    assert len(first.measurement.samples_ms) == len(second.measurement.samples_ms)
    assert second.measurement.time_ms / first.measurement.time_ms == pytest.approx(1.05, rel=0.02)
    assert again.measurement.time_ms == pytest.approx(first.measurement.time_ms)
    rounds = [entry for entry in gpu.log if entry in ("a", "b")]
    assert all(rounds[at : at + 3].count("b") == 1 for at in range(-15, -3, 3))


@pytest.mark.parametrize("count", range(1, 9))
def test_T56_nobody_is_always_last_or_always_behind_the_same_one(count):
    rounds = count * (1 + count % 2)
    orders = [turn_order(count, number) for number in range(rounds)]
    assert all(sorted(order) == list(range(count)) for order in orders)
    for place in range(count):
        seen = Counter(order[place] for order in orders)
        assert set(seen.values()) == {rounds // count}
        assert len(seen) == count
    followed = Counter(pair for order in orders for pair in itertools.pairwise(order))
    assert len(followed) == count * (count - 1)
    assert len(set(followed.values())) <= 1
    assert turn_order(count, rounds) == turn_order(count, 0)


def test_T56_what_comes_last_in_a_round_costs_nobody_more_than_others():
    """A chip on which the last of each round takes 3% longer: the same kernel three times is as fast each time."""
    gpu = FakeGpu()

    def time_ms(entry, number):
        before = len(gpu.log) - 1 - gpu.log[::-1].index("sync") if "sync" in gpu.log else 0
        return 2.06 if gpu.log[before:].count("a") == 3 else 2.0

    gpu.time_ms = time_ms
    launch = gemm_launch(64, 64, 64)
    sets = BufferSets(gpu, Workload.of(runnable(launch), COLD))
    bind = lambda addresses: gpu.bind("a", launch, addresses)  # noqa: E731
    protocol = dataclasses.replace(COLD, min_samples=12, max_samples=12)
    times = [
        statistics.mean(one.measurement.samples_ms)
        for one in compare_calls(gpu, [(bind, sets)] * 3, protocol)
    ]
    assert max(times) / min(times) == pytest.approx(1.0, abs=1e-6)


def test_compare_grows_shared_sets_before_any_graph():
    gpu = FakeGpu(time_ms=lambda entry, number: 0.02 if entry == "a" else 0.002)
    launch = gemm_launch(64, 64, 64)
    sets = BufferSets(gpu, Workload.of(runnable(launch), COLD))
    binds = [(lambda addresses, e=entry: gpu.bind(e, launch, addresses), sets) for entry in ("a", "b")]
    compare_calls(gpu, binds, COLD)
    valid = {sets.addresses(number)["A"] for number in range(sets.count)}
    assert {addresses["A"] for _, addresses in gpu.launches[-200:]} <= valid


def clocks(share, reasons=""):
    return lambda: ClockReading(int(1980 * share), 1980, 60, reasons)


def test_T18_a_constant_low_clock_ends_flagged_as_throttled():
    gpu = FakeGpu(time_ms=noisy(3.0 / 0.59, 0.001))
    timed = measured(gpu, read_clocks=clocks(0.59, "power cap"))
    assert len(timed.measurement.samples_ms) >= COLD.min_samples
    assert gpu.now() < COLD.measure_limit_s + 1
    assert timed.measurement.clocks.sm_clock_mhz == 1168
    assert any(note.startswith("throttled: SM clock at 59%") for note in timed.notes)
    assert any("power cap" in note for note in timed.notes)
    assert not any("throttled" in note for note in measured(FakeGpu(), read_clocks=clocks(1.0)).notes)


def test_T18_the_clock_drops_no_candidate():
    kept = {}
    for share in (0.3, 1.0):
        times = {f"k{i}": 2.0 + i for i in range(6)}
        kept[share] = [
            name
            for name, each in times.items()
            if not measured(
                FakeGpu(time_ms=noisy(each, 0.005)), best_ms=4.0, read_clocks=clocks(share), entry=name
            ).dropped
        ]
    assert kept[0.3] == kept[1.0] == ["k0", "k1", "k2"]


def test_clock_readings_join_to_the_worst():
    both = joined(
        [ClockReading(1900, 1980, 50, "power cap"), None, ClockReading(1500, 1980, 60, "power cap")]
    )
    assert both == ClockReading(1500, 1980, 60, "power cap")
    assert joined([None]) is None


def test_impossible_rates_are_refused():
    # 10 SMs x 128 lanes x 2 x 1 GHz = 2.56 TFLOP/s; 100 GB/s.
    launch = gemm_launch(64, 64, 64)
    quick = Measurement((1.0,), 1)
    refuse_implausible(runnable(launch, flops=2.6e9, moved=1e8), GPU, quick, COLD)
    with pytest.raises(StageFailure, match=r"2\.7 TFLOP/s exceeds the chip's 2\.56 TFLOP/s") as caught:
        refuse_implausible(runnable(launch, flops=2.7e9), GPU, quick, COLD)
    assert caught.value.status is Status.IMPLAUSIBLE
    fast_board = Measurement((1.0,), 1, ClockReading(1100, 1100, 50))
    refuse_implausible(runnable(launch, flops=2.7e9), GPU, fast_board, COLD)
    with pytest.raises(StageFailure, match="GB/s"):
        refuse_implausible(runnable(launch, moved=1.1e8), GPU, quick, COLD)
    refuse_implausible(runnable(launch, moved=1.1e8), GPU, quick, WARM)  # may sit in the L2
    half = dataclasses.replace(runnable(launch, flops=9e9).problem, dtype="float16")
    refuse_implausible(dataclasses.replace(runnable(launch, flops=9e9), problem=half), GPU, quick, COLD)


def test_a_chip_that_was_idle_is_warmed_until_its_clocks_are_up() -> None:
    """Met on an H200: after a pause the same routine measured 1.5 times as long as right afterwards."""
    gpu = FakeGpu()
    gpu.time_ms = lambda entry, number: 0.02 if gpu.clock_ms < 200 else 0.01
    assert measured(gpu, COLD).measurement.time_ms == pytest.approx(0.01)


def test_a_chip_at_work_is_not_warmed_again() -> None:
    gpu = FakeGpu(time_ms=lambda entry, number: 0.01)
    measured(gpu, COLD)
    before = gpu.clock_ms
    measured(gpu, COLD)
    assert gpu.clock_ms - before < 100


def test_T14_random_data_is_the_default_and_its_kind_and_seed_are_stored() -> None:
    assert Protocol().data == "normal"
    keys = {Protocol().key, Protocol(data="zeros").key, Protocol(data_seed=2).key, Protocol().warm().key}
    assert len(keys) == 4


def test_T13_cold_ranks_by_what_comes_from_memory_and_the_flush_is_not_timed() -> None:
    """Two kernels whose data fit in the L2: equal when warm, 1.5 times apart when nothing of it is there."""
    gpu = FakeGpu(l2_bytes=2**22)
    resident: set[int] = set()
    flushed = 0

    def time_ms(entry: str, number: int) -> float:
        nonlocal flushed
        if gpu.flushed > flushed:
            flushed = gpu.flushed
            resident.clear()
        address = gpu.launches[-1][1]["A"]
        cold = address not in resident
        resident.add(address)
        return 0.01 * (1.5 if entry == "scattered" and cold else 1.0)

    gpu.time_ms = time_ms
    cold = [measured(gpu, COLD, entry=entry).measurement.time_ms for entry in ("in_order", "scattered")]
    warm = [measured(gpu, WARM, entry=entry).measurement.time_ms for entry in ("in_order", "scattered")]
    assert cold[1] / cold[0] == pytest.approx(1.5, rel=0.05)
    assert warm[1] / warm[0] == pytest.approx(1.0, rel=0.05)

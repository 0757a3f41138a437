from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import signal
from pathlib import Path

import pytest
from fakes.bench import bench_stages, local_gpu
from fakes.cublas import FakeCublasLtLibrary
from fakes.gpu import right
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.bench.choose import chooser
from autotune.bench.keep import baseline_records
from autotune.bench.request import BenchRequest, choose_modes, choose_shapes
from autotune.bench.result import (
    BenchResult,
    Entry,
    Failed,
    ModeResult,
    Provenance,
    ShapeResult,
    read_result,
    to_document,
    write_result,
)
from autotune.bench.run import Bench, Pick, Picks
from autotune.bench.summary import mean_over, same_twice, summarise
from autotune.bench.table import COLUMNS, MEAN_COLUMNS, failures, mean_rows, rows
from autotune.errors import GpuUnavailable, InputError, StageFailure
from autotune.gpu_tables import find_gpu
from autotune.legality import violations
from autotune.problems import make_problem
from autotune.protocol import Protocol
from autotune.records import Origin, Round, Status
from autotune.spec.load import load_spec
from autotune.store import RecordQuery, open_store
from autotune.suites import Shape, Suite, load_suite

SPEC = load_spec("sgemm")
GPU = find_gpu("h200")
SUITE = Suite(
    "small",
    (
        Shape("cube_64", "cube", (64, 64, 64)),
        Shape("thin_1", "thin", (1, 64, 64)),
        Shape("thin_4", "thin", (4, 64, 32)),
    ),
)
WARM, COLD = Protocol().warm(), Protocol()
TIMES = {
    "kernel 0": 2.0,
    "kernel 1": 3.0,
    "cublas": 4.0,
    "cublaslt 0": 3.0,
    "cublaslt 1": 2.5,
    "cublaslt 3": 2.6,
}
TIMES["copy"] = 1.6


@pytest.fixture(autouse=True)
def small_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.bench.copies.LARGE_BYTES", 2**16)


def request(**changes) -> BenchRequest:
    local = local_gpu(changes.pop("driver", "580.1"))
    values = {
        "spec": SPEC,
        "suite": SUITE,
        "shapes": SUITE.shapes,
        "protocols": (WARM,),
        "gpu": local.spec,
        "device": local.identity,
        "environment": local.environment,
        "board": local.uuid,
        "session": "s1",
    }
    return BenchRequest(**{**values, **changes})


def choose(problem, protocol) -> Picks:
    """Another kernel than the default for the tuned one."""
    default = SPEC.default_config("h200")
    tuned = default.replace({"GROUP_M": 4})
    assert not violations(SPEC, GPU, problem, tuned)
    return Picks(Pick(tuned, "exact"), Pick(default, "default"))


def measured(tmp_path, *, times=TIMES, previous=None, asked=None, picks=choose, events=None, **options):
    asked = asked or request()
    saved = []
    with bench_stages(tmp_path, times, **options) as (stages, _):
        bench = Bench(
            asked,
            stages,
            picks,
            on_event=(events if events is not None else []).append,
            on_shape=lambda shape, result: saved.append((shape.name, result)),
        )
        return bench.run(previous), saved


def test_everything_is_measured_beside_everything(tmp_path):
    result, saved = measured(tmp_path, asked=request(protocols=(WARM, COLD)))
    assert [shape.name for shape in result.shapes] == ["cube_64", "thin_1", "thin_4"]
    assert [name for name, _ in saved] == ["cube_64", "thin_1", "thin_4"]
    assert [len(sofar.shapes) for _, sofar in saved] == [1, 2, 3]
    assert saved[0][1].left_out == ("thin_1", "thin_4")
    for shape in result.shapes:
        assert [mode.mode for mode in shape.modes] == ["warm", "cold"]
        assert shape.complete
    cube = result.shapes[0].mode("warm")
    assert [entry.name for entry in cube.entries] == [
        "tuned", "default", "tuned again", "copy", "cublas", "cublaslt",
    ]  # fmt: skip
    ratios = {name: cube.ratio(name) for name in ("cublas", "cublaslt", "default", "tuned again", "copy")}
    assert ratios == pytest.approx(
        {"cublas": 2.0, "cublaslt": 1.25, "default": 1.5, "tuned again": 1.0, "copy": 0.8}
    )
    for entry in cube.entries:
        assert entry.name == "copy" or entry.error <= entry.tolerance
        assert len(entry.samples_ms) == len(cube.entries[0].samples_ms) >= Protocol().min_samples
    assert cube.clocks.sm_clock_mhz == 1980
    assert len(cube.candidates) == 4
    assert "fastest of 4 candidates" in cube.entry("cublaslt").notes[0]
    assert "heuristic" in cube.entry("cublas").notes[0]
    assert cube.entry("tuned").gbps == pytest.approx(4 * 3 * 64 * 64 / 2.0e-3 / 1e9)
    assert result.copy_gbps == pytest.approx(2**16 / 1.6e-3 / 1e9)


def test_a_shape_that_memory_cannot_limit_has_no_copy(tmp_path):
    big = Shape("big", "cube", (320, 320, 320))
    result, _ = measured(tmp_path, asked=request(suite=Suite("one", (big,)), shapes=(big,)))
    assert result.shapes[0].modes[0].entry("copy") is None
    assert rows(result, "warm")[0][COLUMNS.index("GB/s")] == "-"


def test_the_default_alone_is_measured_once_and_compared_with_itself(tmp_path):
    def untuned(problem, protocol):
        default = Pick(SPEC.default_config("h200"), "default")
        return Picks(default, default)

    result, _ = measured(tmp_path, picks=untuned)
    mode = result.shapes[0].modes[0]
    assert [entry.name for entry in mode.entries] == ["tuned", "tuned again", "copy", "cublas", "cublaslt"]
    assert mode.ratio("default") == 1.0


def test_a_kernel_that_no_library_computes_is_measured_alone(tmp_path):
    other = dataclasses.replace(SPEC, reference=double)
    result, _ = measured(
        tmp_path,
        asked=request(spec=other, shapes=SUITE.shapes[:1]),
        kernels=dict.fromkeys(("kernel 0", "kernel 1"), twice),
    )
    mode = result.shapes[0].modes[0]
    assert [entry.name for entry in mode.entries] == ["tuned", "default", "tuned again", "copy"]
    assert mode.failed == ()


def double(arrays, scalars, xp):
    return {"C": 2.0 * (arrays["A"].astype(xp.float64) @ arrays["B"])}


def twice(gpu, launch, addresses):
    right(gpu, launch, addresses)
    gpu.array(launch, addresses, "C")[...] *= 2


def test_what_fails_is_told_and_the_others_go_on(tmp_path):
    class Refusing(FakeCublasLtLibrary):
        def cublasLtMatmulAlgoGetHeuristic(self, *_):
            return 15

    result, _ = measured(tmp_path, broken=("kernel 0",), lt=Refusing, asked=request(shapes=SUITE.shapes[:1]))
    mode = result.shapes[0].modes[0]
    assert {failed.name for failed in mode.failed} == {"tuned", "cublaslt"}
    assert [entry.name for entry in mode.entries] == ["default", "copy", "cublas"]
    assert mode.ratio("cublas") is None
    assert mean_over(result.shapes, "warm", "cublas") is None
    assert not result.shapes[0].complete
    assert any("compile_error: no" in line for line in failures(result))
    assert rows(result, "warm")[0][-1] == "failed"


def test_a_wrong_kernel_has_no_time(tmp_path):
    result, _ = measured(
        tmp_path, kernels={"kernel 0": lambda *_: None}, asked=request(shapes=SUITE.shapes[:1])
    )
    mode = result.shapes[0].modes[0]
    assert mode.entry("tuned") is None
    assert "wrong_result" in mode.failed[0].reason


def test_an_impossible_time_is_refused(tmp_path, monkeypatch):
    def refuse(run, gpu, measurement, protocol):
        if measurement.time_ms < 2.1:
            raise StageFailure(Status.IMPLAUSIBLE, "exceeds the chip's")

    monkeypatch.setattr("autotune.bench.run.refuse_implausible", refuse)
    result, _ = measured(tmp_path, asked=request(shapes=SUITE.shapes[:1]))
    mode = result.shapes[0].modes[0]
    assert [failed.name for failed in mode.failed] == ["tuned", "tuned again", "copy"]
    assert "exceeds the chip's" in mode.failed[0].reason
    assert [entry.name for entry in mode.entries] == ["default", "cublas", "cublaslt"]


def test_an_earlier_result_is_gone_on_from(tmp_path):
    first, _ = measured(tmp_path, asked=request(shapes=SUITE.shapes[:1]))
    events = []
    second, saved = measured(tmp_path, previous=first, events=events)
    assert [name for name, _ in saved] == ["thin_1", "thin_4"]
    assert len(second.shapes) == 3
    assert second.shapes[0] == first.shapes[0]
    assert events[0].text == "measured before"
    again, saved = measured(tmp_path, previous=second, asked=request(fresh=True, shapes=SUITE.shapes[:1]))
    assert [name for name, _ in saved] == ["cube_64"]
    assert len(again.shapes) == 3


@pytest.mark.parametrize(
    "changes", [{"driver": "600.1"}, {"commit": "abc"}, {"protocols": (COLD,)}, {"protocols": (WARM, COLD)}]
)
def test_what_was_measured_otherwise_is_measured_again(tmp_path, changes):
    first, _ = measured(tmp_path)
    _, saved = measured(tmp_path, previous=first, asked=request(**changes))
    assert len(saved) == 3


def test_another_best_configuration_is_measured_again(tmp_path):
    first, _ = measured(tmp_path)

    def better(problem, protocol):
        picks = choose(problem, protocol)
        if dict(problem.sizes)["M"] != 1:
            return picks
        other = picks.tuned.config.replace({"GROUP_M": 16})
        return Picks(Pick(other, "exact"), picks.default)

    _, saved = measured(tmp_path, previous=first, picks=better)
    assert [name for name, _ in saved] == ["thin_1"]


def test_time_and_ctrl_c_keep_what_is_there(tmp_path):
    clock = iter([0.0, 1.0, 50.0])
    with bench_stages(tmp_path, TIMES) as (stages, _):
        result = Bench(request(limit_s=10.0), stages, choose, clock=lambda: next(clock)).run()
    assert [shape.name for shape in result.shapes] == ["cube_64"]
    assert result.left_out == ("thin_1", "thin_4")
    assert not result.interrupted

    def stop(progress):
        if progress.number == 2:
            signal.raise_signal(signal.SIGINT)

    with bench_stages(tmp_path, TIMES) as (stages, _):
        result = Bench(request(), stages, choose, on_event=stop).run()
    assert [shape.name for shape in result.shapes] == ["cube_64"]
    assert result.interrupted
    assert result.left_out == ("thin_1", "thin_4")


def test_libraries_become_baselines_in_the_database(tmp_path):
    asked = request(protocols=(WARM, COLD))
    result, _ = measured(tmp_path, asked=asked)
    with open_store(tmp_path / "results.sqlite") as store:
        store.add_many([record for shape in result.shapes for record in baseline_records(asked, shape)])
        records = store.records(RecordQuery(round=Round.BASELINE))
        assert len(records) == 12
        assert {record.kernel for record in records} == {"cublas", "cublaslt"}
        assert {record.protocol for record in records} == {WARM.key, COLD.key}
        for record in records:
            assert record.outcome.status is Status.OK
            assert record.outcome.origin is Origin.MEASURED
            assert record.outcome.accuracy is not None
        # Nothing of ours was stored, and nothing ships for transposed operands, so nothing of ours is known.
        problem = make_problem(SPEC, (64, 64, 64), classes={"trans_a": "t", "trans_b": "t"})
        picks = chooser(store, SPEC, GPU, asked.environment)(problem, WARM)
        assert picks.tuned == picks.default


def test_shapes_and_modes_by_name():
    suite = load_suite("sgemm", SPEC)
    assert choose_shapes(suite, []) == suite.shapes
    assert len(choose_shapes(suite, ["skinny_n"])) == 4
    assert [shape.name for shape in choose_shapes(suite, ["odd_129x257x65", "cube_64x64x64"])] == [
        "cube_64x64x64",
        "odd_129x257x65",
    ]
    with pytest.raises(InputError, match="no shape or group 'skiny_n'") as caught:
        choose_shapes(suite, ["skiny_n"])
    assert caught.value.nearest == "skinny_n"
    assert [protocol.mode for protocol in choose_modes("cold, warm,cold")] == ["cold", "warm"]
    for text in ("hot", ""):
        with pytest.raises(InputError, match="must"):
            choose_modes(text)


TIME = st.floats(1e-3, 1e3)


@st.composite
def results(draw) -> BenchResult:
    shapes = []
    for number in range(draw(st.integers(1, 4))):
        names = ["tuned", "tuned again", "default", "cublas", "cublaslt", "copy"]
        entries = tuple(
            Entry(
                name,
                tuple(draw(st.lists(TIME, min_size=1, max_size=4))),
                3,
                0.5,
                4.0,
                bytes=8.0,
                notes=("n",),
            )
            for name in names
            if draw(st.integers(0, 9))
        )
        mode = ModeResult(
            "warm", WARM.key, entries, (Failed("x", "why"),), False, None, (("a", None), ("b", 2.0))
        )
        group = draw(st.sampled_from(["", "one", "two"]))
        shapes.append(
            ShapeResult(f"s{number}", group, (1, 2, 3), 12.0, 24.0, (mode,), "s", "b", "2026-01-01")
        )
    told = Provenance("small", "sgemm", "hash", "", "H200", "h200/9.0", "580", "13.0", "13.0", "0.1.0")
    return BenchResult(told, draw(st.none() | TIME), tuple(shapes), ("left",), draw(st.booleans()))


@settings(max_examples=40, deadline=None)
@given(results())
def test_results_survive_their_json(tmp_path_factory, result):
    path = tmp_path_factory.mktemp("bench") / "results.json"
    write_result(result, path)
    back = read_result(path)
    for one, other in zip(result.shapes, back.shapes, strict=True):
        for entry, read in zip(one.modes[0].entries, other.modes[0].entries, strict=True):
            assert read.samples_ms == pytest.approx(entry.samples_ms, rel=1e-5)
            assert dataclasses.replace(read, samples_ms=entry.samples_ms) == entry
    write_result(back, path)
    assert read_result(path) == back
    assert [file.name for file in path.parent.iterdir()] == ["results.json"]


@settings(max_examples=40, deadline=None)
@given(results())
def test_geometric_means_are_those_of_their_shapes(result):
    summary = json.loads(json.dumps(summarise(result.shapes)))["warm"]["groups"]
    for rival in ("cublas", "cublaslt", "default"):
        ratios = [ratio for shape in result.shapes if (ratio := shape.modes[0].ratio(rival)) is not None]
        if not ratios:
            assert rival not in summary["all"]
            continue
        told = summary["all"][rival]
        assert told["mean"] == pytest.approx(math.prod(ratios) ** (1 / len(ratios)))
        assert told["worst"] == min(ratios)
        assert told["shapes"] == len(ratios)
    listed = mean_rows(result, "warm")
    assert all(len(row) == len(MEAN_COLUMNS) for row in listed)
    assert all(len(row) == len(COLUMNS) for row in rows(result, "warm"))
    again = same_twice(result.shapes, "warm")
    assert again is None or again[0] <= again[1]
    assert set(to_document(result)) >= {"summary", "provenance", "shapes", "copy_gbps"}


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"format": 99}', '{"format": 1, "provenance": {}}'])
def test_a_file_that_is_no_result_is_named(tmp_path, text):
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(InputError, match="no result of `autotune bench`") as caught:
        read_result(path)
    assert caught.value.where == str(path)


def test_results_that_cannot_be_written_are_told(tmp_path):
    told = Provenance("small", "sgemm", "hash", "", "H200", "h200/9.0", "580", "13.0", "13.0", "0.1.0")
    with pytest.raises(InputError, match="cannot write"):
        write_result(BenchResult(told, None, ()), Path(tmp_path / "missing" / "results.json"))


def test_the_picture_shows_every_shape_and_its_means(tmp_path):
    from autotune.bench.plot import plot

    result, _ = measured(tmp_path)
    path = tmp_path / "suite.svg"
    plot(result, path)
    assert path.stat().st_size > 1000
    plot(result, tmp_path / "suite.png")
    assert (tmp_path / "suite.png").read_bytes().startswith(b"\x89PNG")


def test_pictures_that_cannot_be_drawn_are_refused_before_anything_is_measured(tmp_path, monkeypatch):
    from autotune.bench import plot as module

    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="need matplotlib") as caught:
        module.check_plot(tmp_path / "suite.png")
    assert "cuda-autotune[plot]" in caught.value.nearest
    monkeypatch.setattr(module, "find_spec", lambda name: object())
    for path in (tmp_path / "suite.txt", tmp_path / "missing" / "suite.png"):
        with pytest.raises(InputError, match=r"must end|no such folder"):
            module.check_plot(path)
    module.check_plot(tmp_path / "suite.png")


def test_the_command_writes_resumes_and_exits_as_it_says(tmp_path, monkeypatch, user_data):
    from click.testing import CliRunner

    from autotune import target
    from autotune.cli import cli

    suite = tmp_path / "small.yaml"
    suite.write_text(
        "name: small\nshapes: [{name: one, group: g, M: 16, N: 16, K: 16}, {name: two, M: 8, N: 16, K: 8}]\n"
    )
    out = tmp_path / "results.json"
    command = [
        "bench",
        "--suite",
        str(suite),
        "--out",
        str(out),
        "--mode",
        "warm",
        "--db",
        str(tmp_path / "db.sqlite"),
    ]
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments):
        return CliRunner().invoke(cli, [*command, *arguments], standalone_mode=False)

    monkeypatch.setattr(target, "find_target", lambda *_: target.Target(GPU, None))
    assert isinstance(invoke().exception, GpuUnavailable)  # exit code 3
    assert not out.exists()

    monkeypatch.setattr(target, "find_target", lambda *_: target.Target(GPU, local_gpu()))
    with bench_stages(tmp_path, TIMES) as (stages, _):
        monkeypatch.setattr("autotune.device.stages.GpuStages", lambda *_: contextlib.nullcontext(stages))
        done = invoke("--shapes", "g")
        assert done.return_value == 0, done.exception
        assert "times as fast" in done.stdout
        assert "the same kernel twice" in done.stdout
        assert [shape.name for shape in read_result(out).shapes] == ["one"]
        done = invoke("--json")
        assert done.return_value == 0, done.exception
        assert "one: measured before" in done.stderr
        document = json.loads(done.stdout)
        assert [shape["name"] for shape in document["shapes"]] == ["one", "two"]
        assert document == json.loads(out.read_text())
        afresh = invoke("--commit", "abc", "--limit", "0")
        assert "measured afresh" in afresh.stderr
        assert "not measured: one, two" in afresh.stderr
        assert afresh.return_value == 0
        assert len(read_result(out).shapes) == 2, "nothing was measured: what is there stays"
    with open_store(tmp_path / "db.sqlite") as store:
        assert len(store.records()) == 4
    assert isinstance(invoke("--out", str(tmp_path / "missing" / "a.json")).exception, InputError)
    with bench_stages(tmp_path, TIMES, broken=("kernel 0", "kernel 1")) as (stages, _):
        monkeypatch.setattr("autotune.device.stages.GpuStages", lambda *_: contextlib.nullcontext(stages))
        assert invoke("--fresh").return_value == 4

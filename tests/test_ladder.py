"""The ladder: what is measured, counted, shown and kept."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.ladder import FakeLadderStages, h200_board, numpy_stages

from autotune.answers import best
from autotune.candidate import Candidate
from autotune.choice.answer import Match
from autotune.cli import main
from autotune.config import Config
from autotune.device import local as device
from autotune.errors import InputError, NothingFound
from autotune.gpu_tables import find_gpu
from autotune.ladder.choose import candidates
from autotune.ladder.counts import count
from autotune.ladder.plot import check_plot, plot
from autotune.ladder.result import LadderResult, read_result, write_result
from autotune.ladder.run import TIMING
from autotune.ladder.start import measure_ladder
from autotune.ladder.steps import load_ladder
from autotune.ladder.table import COLUMNS, bars, compared_rows, remarks, rows
from autotune.problems import make_problem
from autotune.spec.load import load_spec
from autotune.target import Target

H200, A6000, T4 = find_gpu("h200"), find_gpu("a6000"), find_gpu("t4")
LADDER = load_ladder()
SPEED = {step.kernel: 100.0 - 5 * number for number, step in enumerate(LADDER.steps)} | {
    LADDER.production: 2.6,
    LADDER.peak: 4.6,
}


@pytest.fixture(autouse=True)
def _nobodys_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("AUTOTUNE_CACHE", str(tmp_path / "cache"))


def time_of(candidate: Candidate) -> float:
    return SPEED[candidate.spec.name]


def measured(
    stages: FakeLadderStages | None = None, gpu=H200, size: str = "4096", tune: int = 1
) -> LadderResult:
    return measure_ladder(Target(gpu, None), size, tune, stages=stages or FakeLadderStages(time_of))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> LadderResult:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        return measured()


def test_every_step_is_a_kernel_and_every_ladder_kernel_a_step() -> None:
    shipped = {f"ladder/{path.stem}" for path in Path("configs/kernels/ladder").glob("*.yaml")}
    assert {step.kernel for step in LADDER.steps} == shipped
    for contest in LADDER.contests:
        for row in contest.rows:
            spec = load_spec(row.kernel)
            assert row.like in ("", *shipped)
            assert set(row.fixed) <= set(spec.parameter_names)


def test_what_a_search_has_found_for_a_step_stands_for_it() -> None:
    found = best("h200", 4096, "ladder/warp_tiles", protocol=TIMING)
    assert found.match is Match.EXACT, "a shipped study"
    step = next(step for step in measured().steps if step.kernel == "ladder/warp_tiles")
    assert step.config == dict(found.config) != dict(load_spec("ladder/warp_tiles").default_config("h200"))
    elsewhere = next(step for step in measured(size="1024").steps if step.kernel == "ladder/warp_tiles")
    assert elsewhere.config == dict(load_spec("ladder/warp_tiles").default_config("h200"))


def test_all_are_compared_in_one_round_with_the_library() -> None:
    stages = FakeLadderStages(time_of)
    result = measured(stages)
    together = [step.kernel for step in LADDER.steps] + [LADDER.production, LADDER.peak]
    assert stages.compared[0] == together
    assert len(stages.compared) == 1 + len(LADDER.contests)
    assert result.vendor is not None
    flops = 2 * 4096**3
    assert result.vendor.gflops == pytest.approx(flops / 2.7 / 1e6)
    assert result.steps[0].gflops == pytest.approx(flops / 100 / 1e6)
    assert result.peak_gflops == pytest.approx(32 * 2 * 132 * 2048 * 2**14 / 4.6 / 1e6)
    assert result.origin == "measured"


def test_tuning_tries_the_default_and_what_the_model_likes() -> None:
    stages = FakeLadderStages(lambda one: SPEED[one.spec.name] - 0.5 * (one.config.get("BANKS") == "pad"))
    result = measured(stages, tune=6)
    by_kernel = {entry.kernel: entry for entry in result.steps}
    assert len(by_kernel["ladder/naive"].trials) == 3  # all there are
    assert len(by_kernel["ladder/warp_tiles"].trials) == 6
    default = load_spec("ladder/banks").default_config("h200")
    assert Config.of(dict(by_kernel["ladder/banks"].trials[0].config)) == default
    assert len({json.dumps(dict(trial.config)) for trial in by_kernel["ladder/warp_tiles"].trials}) == 6


def test_double_buffering_is_compared_on_one_tile(recorded: LadderResult) -> None:
    comparison = recorded.comparisons[0]
    tiles = [
        {name: entry.config[name] for name in ("BM", "BN", "BK", "WM", "WN", "TM", "TN", "WNITER")}
        for entry in comparison.entries
        if entry.kernel
    ]
    assert len(tiles) == 4
    assert all(tile == tiles[0] for tile in tiles)


def test_a_wrong_kernel_has_no_time_and_a_reason() -> None:
    result = measured(FakeLadderStages(time_of, wrong=["ladder/tma"]))
    (tma,) = [entry for entry in result.steps if entry.kernel == "ladder/tma"]
    assert tma.gflops is None
    assert "nan" in tma.note
    assert any(line.startswith("TMA and mbarriers: C[0, 0] is nan") for line in remarks(result))
    with pytest.raises(NothingFound):
        measured(FakeLadderStages(time_of, wrong=[step.kernel for step in LADDER.steps]))


def test_a_time_that_the_chip_cannot_reach_is_refused() -> None:
    result = measured(FakeLadderStages(lambda one: 0.01 if one.spec.name == "ladder/naive" else time_of(one)))
    assert result.steps[0].gflops is None
    assert "TFLOP/s exceeds" in result.steps[0].note


def test_an_older_chip_leaves_out_what_it_does_not_have() -> None:
    stages = FakeLadderStages(lambda one: 20.0 + time_of(one))
    result = measured(stages, gpu=T4)
    missing = {entry.kernel for entry in result.steps if entry.gflops is None}
    assert missing == {"ladder/double_cpasync", "ladder/tma", "ladder/split_k"}
    note = next(entry.note for entry in result.comparisons[0].entries if "cp.async" in entry.name)
    assert "legal" in note


def test_counts_are_those_of_the_kernels() -> None:
    def counted(name: str, size: int = 4096):
        spec = load_spec(f"ladder/{name}")
        found = count(Candidate(spec, A6000, make_problem(spec, size), spec.default_config("a6000")))
        assert found is not None
        return found

    cube = 4096**3
    assert counted("coalesced").global_bytes == pytest.approx(cube / 32 * (32 + 128) + 4 * 4096**2)
    assert counted("shared_tiles").global_bytes == pytest.approx(8 * cube / 32 + 4 * 4096**2)
    assert counted("block_tiles_2d").global_bytes == pytest.approx(8 * cube / 128 + 4 * 4096**2)
    # Two reads for each multiply-add; and eight for 64 of them.
    assert counted("shared_tiles").shared_bytes == pytest.approx(8 * cube * (1 + 1 / 32))
    reads = 4 * cube * (16 / 64)
    assert counted("block_tiles_2d").shared_bytes == pytest.approx(reads + 4 * cube * 2 / 128)
    # What tiles compute beyond the edges is not counted as work done.
    assert counted("block_tiles_2d", 130).flops == 2 * 130**3


def test_the_limiter_is_the_busiest_unit_or_waits() -> None:
    spec = load_spec("ladder/shared_tiles")
    found = count(Candidate(spec, A6000, make_problem(spec, 4096), spec.default_config("a6000")))
    assert found is not None
    name, _ = found.busiest(1.0)
    assert name == "shared memory"
    busy = found.unit_ms[name]
    assert found.limiter(busy / 0.8, 0.66, "threads") == "shared memory 80%"
    assert (
        found.limiter(busy / 0.3, 0.25, "registers") == "latency (25% occupied, registers; shared memory 30%)"
    )


def test_pinned_values_hold_in_every_candidate() -> None:
    spec = load_spec("ladder/split_k")
    problem = make_problem(spec, (256, 256, 16384))
    found = candidates(spec, H200, problem, 8, {"SPLIT": 8, "REDUCE": "cluster"})
    assert len(found) == 8
    assert all(one.config["SPLIT"] == 8 and one.config["REDUCE"] == "cluster" for one in found)
    with pytest.raises(NothingFound, match="clusters need"):
        candidates(spec, A6000, problem, 8, {"SPLIT": 8, "REDUCE": "cluster"})


def test_what_is_written_is_read_back(recorded: LadderResult, tmp_path: Path) -> None:
    write_result(recorded, tmp_path / "ladder.json")
    assert read_result(tmp_path / "ladder.json") == recorded


@pytest.mark.parametrize(
    ("key", "value"),
    [("peak_gflops", 0), ("peak_gflops", float("nan")), ("seed_cublas_gflops", float("inf"))],
)
def test_figures_of_a_ladder_can_be_drawn(
    key: str, value: float, recorded: LadderResult, tmp_path: Path
) -> None:
    path = tmp_path / "ladder.json"
    write_result(recorded, path)
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(InputError, match=r"finite number|greater than 0"):
        read_result(path)


def test_deep_json_is_no_ladder(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_text("[" * 200_000)
    with pytest.raises(InputError, match="is not JSON"):
        read_result(path)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("[", "is not JSON"),
        ("{}", "is not a ladder of format 1"),
        ('{"format": 1, "ladder": 5}', "not a whole ladder"),
        ('{"format": 1, "colour": 5}', "has no colour"),
    ],
)
def test_other_files_are_no_ladders(text: str, rule: str, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(InputError, match=rule):
        read_result(tmp_path / "other.json")


def test_the_table_has_the_seeds_column(recorded: LadderResult) -> None:
    shown = [dict(zip(COLUMNS, row, strict=True)) for row in rows(recorded)]
    assert shown[0]["seed GFLOP/s"] == 309.0
    assert shown[0]["% cuBLAS"] == "2.7%"
    assert shown[8]["seed % cuBLAS"] == "93.7%"
    assert shown[-1]["step"] == "cuBLAS"
    assert max(len(bar) for _, bar, _ in bars(recorded)) <= 52
    assert compared_rows(recorded.comparisons[0])[0][3] == "1.00x"
    slower = replace(recorded, steps=recorded.steps[::-1])
    assert any("is slower than" in line for line in remarks(slower))


def test_the_picture_is_drawn(recorded: LadderResult, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    check_plot(tmp_path / "ladder.png")
    plot(recorded, tmp_path / "ladder.png")
    assert (tmp_path / "ladder.png").read_bytes().startswith(b"\x89PNG")
    for bad in (tmp_path / "ladder.txt", tmp_path / "none" / "ladder.png"):
        with pytest.raises(InputError):
            check_plot(bad)


def test_a_recorded_ladder_is_shown_without_a_gpu(
    recorded: LadderResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_result(recorded, tmp_path / "ladder.json")
    with pytest.raises(SystemExit) as ended:
        main(["ladder", "--table", str(tmp_path / "ladder.json")])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    for words in (
        "double buffer (registers)",
        "21,779",
        "peak of FP32 multiply-adds",
        "split-K for few tiles",
    ):
        assert words in said
    with pytest.raises(SystemExit):
        main(["ladder", "--table", str(tmp_path / "ladder.json"), "--json"])
    assert json.loads(capsys.readouterr().out)["steps"][0]["kernel"] == "ladder/naive"


def test_without_a_gpu_the_exit_code_is_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(device, "local_gpus", lambda folders=(): [])
    with pytest.raises(SystemExit) as ended:
        main(["ladder"])
    assert ended.value.code == 3
    assert "--gpu a6000" in capsys.readouterr().err


@pytest.mark.slow
def test_the_script_runs_on_a_gpu_of_numpy(tmp_path: Path) -> None:
    path = Path(__file__).parents[1] / "tools" / "gpu" / "ladder.py"
    module = importlib.util.spec_from_file_location("ladder_script", path)
    assert module is not None
    assert module.loader is not None
    script = importlib.util.module_from_spec(module)
    module.loader.exec_module(script)
    entries = [load_spec(step.kernel).entry for step in LADDER.steps] + ["sgemm"]
    quick = replace(TIMING, warmup_ms=0.1, max_samples=5)
    options = script.parse(
        ["--out", str(tmp_path), "--size", "64", "--tune", "1", "--commit", "abc", "--limit", "0"]
    )
    board = h200_board()
    with numpy_stages(entries, tmp_path, quick) as stages:
        assert script.record(options, Target(board.spec, board), stages) == 0
    result = read_result(tmp_path / "ladder.json")
    assert result.provenance.commit == "abc"
    assert result.provenance.driver == "580.1"
    assert all(entry.samples_ms for entry in result.entries)
    verified = json.loads((tmp_path / "verified.json").read_text())
    assert set(verified.values()) == {"not verified: no time left"}

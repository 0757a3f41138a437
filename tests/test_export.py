from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from fakes.exported import entry, scale_spec
from fakes.trials import trial
from hypothesis import given
from hypothesis import strategies as st

from autotune import answers
from autotune.config import Config, Value
from autotune.errors import InputError
from autotune.exporter import export
from autotune.exporter.entries import ExportEntry, cover, unique_sizes
from autotune.gpu_tables import find_gpu
from autotune.problem import octaves
from autotune.problems import make_problem
from autotune.render import kernel_hash
from autotune.spec.kernel_spec import KernelSpec
from autotune.spec.load import load_spec
from autotune.store import open_store

GPU = find_gpu("a6000")
SGEMM = load_spec("sgemm")


def numbered(number: int) -> Config:
    return Config.of({**SGEMM.defaults, "GROUP_M": number})


@pytest.fixture
def spec(tmp_path: Path) -> KernelSpec:
    return scale_spec(tmp_path, "scale")


@given(
    st.lists(st.tuples(st.tuples(*[st.integers(0, 8192)] * 3), st.integers(0, 5)), min_size=1, max_size=8),
    st.integers(1, 6),
)
def test_cover_keeps_few_configurations_whose_sizes_are_near_all(
    sizes: list[tuple[tuple[int, int, int], int]], most: int
) -> None:
    entries = [entry(SGEMM, size, numbered(number)) for size, number in sizes]
    kept = cover(entries, most)
    configs = {each.config for each in entries}
    assert len({each.config for each in kept}) == min(most, len(configs))
    assert kept == [each for each in entries if each in kept]
    assert cover(entries, None) == entries


def test_cover_drops_what_others_serve_best() -> None:
    entries = [entry(SGEMM, size, numbered(i)) for i, size in enumerate([64, 1000, 1024, 8192])]
    assert [each.problem.label for each in cover(entries, 3)] == [
        "64x64x64",
        "1000x1000x1000",
        "8192x8192x8192",
    ]
    assert len(cover(entries, 1)) == 1
    with pytest.raises(InputError, match="at least one"):
        cover(entries, 0)


def test_distance_counts_ratios_alike_in_both_directions() -> None:
    assert octaves({"M": 8, "N": 1}, {"M": 16, "N": 1}) == octaves({"M": 16, "N": 1}, {"M": 8, "N": 1}) > 0
    assert octaves({"M": 0}, {"M": 1}) == 0


def test_measured_entries_win_over_predicted_and_faster_over_slower() -> None:
    slow, fast = (entry(SGEMM, 64, numbered(i), time_ms=i, gpu=GPU) for i in (4, 1))
    guess = entry(SGEMM, 64, numbered(8), time_ms=0.1, gpu=GPU, predicted=True)
    untried = entry(SGEMM, 64, numbered(16))
    assert unique_sizes([untried, guess, slow, fast]) == [fast]
    assert unique_sizes([untried, guess]) == [guess]


def test_record_of_another_size_gives_no_figures() -> None:
    near = entry(SGEMM, 4096, time_ms=6.0, gpu=GPU)
    borrowed = ExportEntry(entry(SGEMM, 4000).problem, near.config, near.record, "nearest")
    assert not borrowed.measured
    assert borrowed.time_ms is None
    assert borrowed.gflops(SGEMM) is None


def test_json_holds_one_entry_a_size_with_figures_and_provenance(tmp_path: Path) -> None:
    entries = [entry(SGEMM, 4096, time_ms=6.0, gpu=GPU), entry(SGEMM, 256)]
    report = export(SGEMM, GPU, entries, tmp_path / "out.json", format="json")
    text = (tmp_path / "out.json").read_text()
    document = json.loads(text)
    first, second = document["entries"]
    assert first["sizes"] == {"M": 256, "N": 256, "K": 256}
    assert (first["measured"], first["time_ms"], first["provenance"]) == (False, None, None)
    assert second["config"] == dict(SGEMM.defaults)
    assert second["gflops"] == pytest.approx(22907, rel=1e-4)
    assert second["provenance"]["environment"]["driver"] == "580.1"
    assert (report.kernels, report.sizes, report.predicted, report.bytes) == (1, 2, True, len(text))
    export(SGEMM, GPU, list(reversed(entries)), tmp_path / "again.json", format="json")
    assert (tmp_path / "again.json").read_text() == text


def test_cubin_folder_has_all_a_driver_api_caller_needs(
    tmp_path: Path, spec: KernelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    monkeypatch.setenv("AUTOTUNE_CACHE", str(tmp_path / "cache"))
    template = tmp_path / "templates" / "scale" / "scale.cu.j2"
    template.write_text(template.read_text().replace("#include <cuda_fp16.h>\n", ""))
    out = tmp_path / "kernels"
    report = export(spec, GPU, [entry(spec, 64)], out, format="cubin")
    meta = json.loads((out / "meta.json").read_text())
    (kernel,) = meta["kernels"]
    labels = [variant["variants"] for variant in kernel["variants"]]
    assert labels[0] == {"LOAD": 4, "GUARD": False}
    assert {"LOAD": 1, "GUARD": True} in labels
    for variant in kernel["variants"]:
        assert (out / variant["image"]).read_bytes()[:4] == b"\x7fELF"
        assert "scale(" in (out / variant["source"]).read_text()
        assert (variant["entry"], variant["block"], variant["dynamic_smem_bytes"]) == (
            "scale",
            [32, 1, 1],
            1024,
        )
    assert [argument["name"] for argument in meta["arguments"]] == ["M", "N", "factor", "X", "ld"]
    assert meta["grid"] == ["ceil_div(M, BM)"]
    assert report.bytes == sum(file.stat().st_size for file in out.iterdir())

    (out / "stray").write_text("of an earlier export")
    export(spec, GPU, [entry(spec, 64)], out, format="cubin")
    assert not (out / "stray").exists()
    (out / "meta.json").unlink()
    with pytest.raises(InputError, match="not an earlier export"):
        export(spec, GPU, [entry(spec, 64)], out, format="cubin")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "configs", "kernels", "templates"]


def test_unknown_format_and_nothing_to_export_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        export(SGEMM, GPU, [entry(SGEMM, 64)], tmp_path / "x", format="heder")
    assert refused.value.nearest == "header"
    with pytest.raises(InputError, match="nothing to export"):
        export(SGEMM, GPU, [], tmp_path / "x")


def test_files_are_written_whole_and_keep_their_permissions(tmp_path: Path) -> None:
    target = tmp_path / "sgemm.json"
    export(SGEMM, GPU, [entry(SGEMM, 64)], target, format="json")
    target.chmod(0o640)
    export(SGEMM, GPU, [entry(SGEMM, 128)], target, format="json")
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["sgemm.json"]
    for bad in (tmp_path, tmp_path / "absent" / "x.json"):
        with pytest.raises(InputError):
            export(SGEMM, GPU, [entry(SGEMM, 64)], bad, format="json")


def test_layouts_asked_for_that_nobody_tuned_are_served_by_one_kernel(tmp_path: Path) -> None:
    config = Config.of(SGEMM.default_config("a6000"))
    with open_store(tmp_path / "db.sqlite") as store:
        for number, size in enumerate((256, 512)):
            problem = make_problem(SGEMM, size)
            record = trial(
                1.0, config, problem, kernel_hash=kernel_hash(SGEMM), device=GPU.identity, uid=f"u{number}"
            )
            store.add(record)
    classes: dict[str, Value | list[Value]] = {"trans_a": ["n", "t"]}
    report = answers.export("a6000", tmp_path / "s.cuh", classes=classes, db=tmp_path / "db.sqlite")
    assert report.sizes == 3
    assert "enum class sgemm_trans_a { n, t };" in (tmp_path / "s.cuh").read_text()

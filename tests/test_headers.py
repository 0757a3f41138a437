"""Includes are found as the compiler finds them, and a missing one is explained."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.compile.headers import included_files, missing_header, toolkit_candidates, toolkit_folders


def test_included_files_are_followed_and_circles_end(tmp_path: Path) -> None:
    beside, other = tmp_path / "kernel", tmp_path / "other"
    (beside / "sub").mkdir(parents=True)
    other.mkdir()
    (beside / "a.cuh").write_text('#include "sub/b.cuh"\n')
    (beside / "sub/b.cuh").write_text('  #  include "../a.cuh"\n#include <c.cuh>\n')
    (other / "c.cuh").write_text("int c;\n")
    included = included_files('#include "a.cuh"\n#include <not_here.h>\n', beside, [other])
    assert list(included.digests) == [str(beside / "a.cuh"), str(beside / "sub/b.cuh"), str(other / "c.cuh")]
    assert included.complete


def test_a_changed_file_has_another_digest(tmp_path: Path) -> None:
    header = tmp_path / "a.cuh"
    header.write_text("int a = 1;")
    before = included_files('#include "a.cuh"', tmp_path, []).digests[str(header)]
    header.write_text("int a = 22;")
    assert included_files('#include "a.cuh"', tmp_path, []).digests[str(header)] != before


def test_an_included_macro_leaves_the_list_incomplete(tmp_path: Path) -> None:
    assert not included_files("#define H <x.h>\n#include H\n", tmp_path, []).complete


def test_a_toolkit_named_by_the_environment_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "include").mkdir()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert (tmp_path / "include").resolve() in toolkit_folders()
    assert set(toolkit_folders()) <= {folder.resolve() for folder in toolkit_candidates()}


@pytest.mark.parametrize(
    ("header", "cure"),
    [
        ("cuda_fp16.h", "pip install nvidia-cuda-runtime"),
        ("nv/target", "pip install nvidia-cuda-cccl"),
        ("crt/host_defines.h", "pip install nvidia-cuda-crt"),
        ("cstdint", "cuda/std"),
        ("mine.cuh", "--include-path"),
    ],
)
def test_a_missing_header_says_where_it_was_looked_for_and_what_supplies_it(header: str, cure: str) -> None:
    for words in ("cannot open source file", "could not open source file"):
        message = missing_header(
            f'k.cu(1): catastrophic error: {words} "{header}"\n', [Path("/a"), Path("/b/c")]
        )
        assert message is not None
        assert header in message
        assert "/a, /b/c" in message
        assert cure in message
    assert missing_header("k.cu(1): error: expected a declaration", [Path("/a")]) is None

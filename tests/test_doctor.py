"""The doctor finds what is amiss, says how to mend it, and never falls over himself."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from autotune import doctor
from autotune.compile import nvrtc
from autotune.device import nvml
from autotune.doctor import Finding, diagnose


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AUTOTUNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path


def test_a_sound_machine_without_a_gpu(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "library", lambda: None)
    found = by_name(diagnose())
    for name in ("Python", "packages", "compiler", "test compile", "database", "cache"):
        assert found[name].ok, found[name]
    assert nvrtc.version() in found["compiler"].detail
    assert "registers" in found["test compile"].detail
    for name in ("driver", "GPUs"):
        assert not found[name].ok
        assert found[name].cure
    assert list(home.iterdir()) == []  # looking changes nothing


def test_a_missing_compiler_is_named_with_its_package(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise nvrtc.NvrtcMissing("the CUDA compiler NVRTC cannot be loaded (no libnvrtc.so)")

    monkeypatch.setattr(nvrtc, "library", missing)
    nvrtc.architectures.cache_clear()
    found = by_name(diagnose())
    assert not found["compiler"].ok
    assert "pip install nvidia-cuda-nvrtc" in found["compiler"].cure
    assert "test compile" not in found


def test_a_missing_package_and_no_host_compiler(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "PACKAGES", ["numpy", "no-such-package"])
    monkeypatch.setenv("CXX", "no-such-compiler")
    found = by_name(diagnose())
    assert found["packages"].cure == "pip install no-such-package"
    assert not found["C++ compiler"].ok


@pytest.mark.parametrize(
    ("cuda", "ok"), [("12.9", False), ("13.0", True), ("14.1", True)], ids=["older", "minor", "newer"]
)
def test_the_toolkit_must_not_be_of_a_newer_major_version_than_the_driver(
    cuda: str, ok: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "driver_versions", lambda: nvml.DriverVersions("580.1", cuda))
    monkeypatch.setattr(nvrtc, "version", lambda: "13.5")
    (finding,) = doctor._fit()
    assert finding.ok == ok
    assert cuda in finding.detail
    assert "13.5" in finding.detail
    assert bool(finding.cure) != ok


@pytest.mark.parametrize(
    ("installed", "ok"),
    [({}, False), ({"cupy-cuda13x": "14.2"}, True), ({"cupy-cuda12x": "14.2"}, False)],
    ids=["none", "right", "wrong"],
)
def test_cupy_must_suit_the_driver(
    installed: dict[str, str], ok: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "driver_versions", lambda: nvml.DriverVersions("580.1", "13.0"))
    monkeypatch.setattr(doctor, "_version_of", installed.get)
    (finding,) = doctor._cupy()
    assert finding.ok == ok
    assert ("cuda-autotune[cuda13]" in finding.cure) != ok


def test_places_that_cannot_be_written(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "file").write_text("in the way")
    monkeypatch.setenv("AUTOTUNE_CACHE", str(home / "file" / "cache"))
    found = by_name(diagnose(str(home / "file" / "db.sqlite")))
    assert not found["cache"].ok
    assert "AUTOTUNE_CACHE" in found["cache"].cure
    assert not found["database"].ok
    assert "--db" in found["database"].cure


def test_a_wrong_or_dead_database_url(home: Path) -> None:
    for url in ("mysql://host/db", "postgresql://nobody@127.0.0.1:1/none"):
        findings = [finding for finding in doctor._database(url) if finding.name == "database"]
        assert [finding.ok for finding in findings] == [False]


def test_a_probe_that_fails_is_a_finding(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> nvml.DriverVersions:
        raise RuntimeError("the driver answers nonsense")

    monkeypatch.setattr(nvml, "driver_versions", broken)
    found = by_name(diagnose())
    assert "RuntimeError: the driver answers nonsense" in found["driver"].detail
    assert not found["driver"].ok
    assert stat.S_ISDIR(home.stat().st_mode)

"""What `pip install` gives: the wheel, by way of the source distribution, and an editable install."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[1]
SHIPPED = ("templates", "configs", "studies")


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout without what git ignores, but for a few such files put there to see whether they ship."""
    folder = tmp_path_factory.mktemp("build") / "checkout"
    ignore = shutil.ignore_patterns("__pycache__", "*.sqlite*")
    folder.mkdir()
    for name in ("autotune", *SHIPPED, "tests", "tools", "docs"):
        shutil.copytree(CHECKOUT / name, folder / name, ignore=ignore)
    for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", ".gitignore"):
        shutil.copy(CHECKOUT / name, folder / name)
    (folder / "studies" / "a6000").mkdir(parents=True, exist_ok=True)
    (folder / "studies" / "a6000" / "seen.txt").write_text("ships")
    (folder / "studies" / "a6000" / "scratch.sqlite").write_text("ignored")
    (folder / "autotune" / "scratch.sqlite").write_text("ignored")
    (folder / ".private").mkdir()
    (folder / ".private" / "notes.txt").write_text("of no interest to others")
    return folder


@pytest.fixture(scope="module")
def built(copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the source distribution and the wheel made from it."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, copy, cwd=folder)
    return folder


def only(folder: Path, pattern: str) -> Path:
    (path,) = folder.glob(pattern)
    return path


def files_below(folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_holds_the_package_and_what_ships_with_it_and_nothing_else(built: Path, copy: Path) -> None:
    with zipfile.ZipFile(only(built, "*.whl")) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        entry_points = wheel.read(
            next(name for name in wheel.namelist() if name.endswith("entry_points.txt"))
        ).decode()
    expected = {f"autotune/{name}" for name in files_below(copy / "autotune")}
    for kind in SHIPPED:
        expected |= {f"autotune/shipped/{kind}/{name}" for name in files_below(copy / kind)}
    assert names == {name for name in expected if not name.endswith(".sqlite")}
    assert "autotune/shipped/studies/a6000/seen.txt" in names
    assert "autotune = autotune.cli:main" in entry_points


def test_the_source_distribution_holds_the_tests_too_and_nothing_private(built: Path) -> None:
    with tarfile.open(only(built, "*.tar.gz")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "tests/test_packaging.py"} <= names
    assert {"templates/sgemm/sgemm.cu.j2", "configs/kernels/sgemm.yaml"} <= names
    assert not [name for name in names if name.endswith(".sqlite") or name.startswith(".private")]


def test_an_installed_wheel_works_from_anywhere(built: Path, tmp_path: Path) -> None:
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    pip += ["--target", site]
    run(*pip, only(built, "*.whl"), cwd=elsewhere)
    places = {
        "PYTHONPATH": str(site),
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "AUTOTUNE_CACHE": str(tmp_path / "c"),
    }

    def autotune(*arguments: str) -> str:
        return run(sys.executable, "-m", "autotune", *arguments, cwd=elsewhere, **places)

    kernels = {kernel["kernel"]: kernel["file"] for kernel in json.loads(autotune("kernels", "--json"))}
    assert {"sgemm", "sgemm_batched", "sgemm_epilogue"} <= set(kernels)
    assert all(Path(file).is_relative_to(site) for file in kernels.values())
    explained = json.loads(autotune("explain", "--gpu", "a6000", "--size", "256", "--compile", "--json"))
    assert explained["legal"]
    assert explained["use"]["registers_exact"]
    assert "default" in autotune("best", "--gpu", "a6000", "--size", "256")
    autotune("export", "--gpu", "a6000", "--size", "256", "-o", "sgemm.cuh")
    assert "sgemm" in (elsewhere / "sgemm.cuh").read_text()
    script = run(site / "bin" / "autotune", "--version", cwd=elsewhere, **places)
    assert script.startswith("autotune, version ")


def test_an_editable_install_is_the_checkout(copy: Path, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", venv, cwd=tmp_path)
    python = venv / "bin" / "python"
    # It sees the packages that are installed here, the build backend among them.
    site = Path(
        run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip()
    )
    (site / "here.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index"]
    run(*pip, "--no-build-isolation", "--ignore-installed", "--editable", copy, cwd=tmp_path)
    code = "import autotune, autotune.paths as p; print(autotune.__file__, p.shipped('templates'), sep='\\n')"
    package, templates = run(python, "-c", code, cwd=tmp_path, PYTHONPATH="").split()
    assert Path(package) == copy / "autotune" / "__init__.py"
    assert Path(templates) == copy / "templates"
    listed = json.loads(run(venv / "bin" / "autotune", "kernels", "--json", cwd=tmp_path, PYTHONPATH=""))
    assert str(copy / "configs" / "kernels" / "sgemm.yaml") in [kernel["file"] for kernel in listed]

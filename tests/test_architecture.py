"""Arrows between rooms point one way, and each heavy dependency has one room."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "autotune"

# Down the line: a room imports only from itself and from rooms of earlier lines.
LINES = (
    ("errors", "config", "records", "problem", "protocol", "paths", "child"),
    ("expressions", "columns"),
    ("spec",),
    ("gpu", "gpu_tables", "problems", "space", "suites"),
    ("candidate", "references", "comparison", "epilogue"),
    ("launch", "occupancy", "banks", "buffers"),
    ("legality", "model", "starts"),
    ("render", "explain"),
    ("compile", "cpu"),
    ("trial", "thorough"),
    ("device", "predicted_stages", "target"),
    ("store",),
    ("choice", "study", "exporter"),
    ("replay",),
    ("answers", "api", "runtime", "views", "doctor", "bench", "ladder"),
    ("cli",),
)
HEAVY = {
    "jinja2": {"render"},
    "optuna": {"study"},
    "sqlalchemy": {"store"},
    "alembic": {"store"},
    "cupy": {"device", "runtime", "doctor"},
    "cuda": {"compile", "device", "doctor"},
    "pynvml": {"device"},
    "pydantic": {"spec", "gpu_tables"},
    "matplotlib": {"bench", "ladder"},
    "click": {"cli"},
    "rich": {"cli"},
}


def room_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def modules() -> list[Path]:
    outside = {PACKAGE / "__init__.py", PACKAGE / "__main__.py"}
    return [path for path in PACKAGE.rglob("*.py") if path not in outside]


def imported(path: Path) -> set[str]:
    """Modules that a file imports to run, inside functions too; imports for type checkers alone are left out."""
    names: set[str] = set()

    class Visitor(ast.NodeVisitor):
        def visit_If(self, node: ast.If) -> None:
            if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
                return
            self.generic_visit(node)

        def visit_Import(self, node: ast.Import) -> None:
            names.update(alias.name for alias in node.names)

        def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            names.update(
                [f"autotune.{alias.name}" for alias in node.names] if module == "autotune" else [module]
            )

    Visitor().visit(ast.parse(path.read_text(encoding="utf-8")))
    return names


def test_every_room_has_its_line() -> None:
    rooms = {room_of(path) for path in modules()}
    assert rooms == {room for line in LINES for room in line}


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_arrows_point_down_the_line(path: Path) -> None:
    height = {room: number for number, line in enumerate(LINES) for room in line}
    own = room_of(path)
    for name in imported(path):
        parts = name.split(".")
        if parts[0] != "autotune" or len(parts) < 2 or parts[1] == "__version__":
            continue
        other = parts[1]
        assert other == own or height[other] <= height[own], f"{own} must not import {name}"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_heavy_dependencies_have_their_rooms(path: Path) -> None:
    for name in imported(path):
        package = name.split(".")[0]
        assert room_of(path) in HEAVY.get(package, {room_of(path)}), (
            f"{room_of(path)} must not import {package}"
        )


@pytest.mark.parametrize("arguments", [["--help"], ["search", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    script = (
        f"import sys\nsys.argv = ['autotune', *{arguments!r}]\n"
        "from autotune.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('LOADED', *sorted(name for name in sys.modules if '.' not in name))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert not loaded & {"numpy", "optuna", "sqlalchemy", "pydantic", "jinja2", "cupy", "cuda", "yaml"}


def test_importing_the_package_loads_no_cuda() -> None:
    script = "import sys, autotune; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"cupy", "cuda", "numpy"} & set(done.stdout.split())

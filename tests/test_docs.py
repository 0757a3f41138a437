"""The documentation mentions everything there is, its links lead somewhere, and its examples work."""

from __future__ import annotations

import re
import runpy
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml
from pydantic import TypeAdapter
from test_architecture import LINES

from autotune.cli import cli
from autotune.device import local as device
from autotune.model import COST_KEYS
from autotune.records import Status
from autotune.references import REFERENCES
from autotune.spec.load import read_spec
from autotune.spec.shape import ARGUMENT_KINDS, ParameterShape, SpecShape
from autotune.study.strategies import STRATEGIES

ROOT = Path(__file__).parents[1]
PROJECT = ROOT / "tests" / "data" / "project"
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "CHANGELOG.md"])
HANDBOOK = sorted((ROOT / "docs").glob("*.md"))
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in HANDBOOK)


def blocks(page: str, *words: str) -> list[str]:
    """The fenced blocks of a page with exactly these words behind the fence."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    found = re.findall(r"^```([^\n]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [body for info, body in found if tuple(info.split()) == words]


def commands(group: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    if path and not isinstance(group, click.Group):
        yield " ".join(path), group
    if isinstance(group, click.Group):
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            yield from commands(command, (*path, name))


COMMANDS = dict(commands(cli))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_described(name: str) -> None:
    texts = [text for text in (page.read_text(encoding="utf-8") for page in HANDBOOK) if name in text]
    assert any(f"autotune {name}" in text or f"`{name}" in text for text in texts), f"no page tells of {name}"
    mentioned = set(re.findall(r"--[a-z][a-z-]*|-o\b", "\n".join(texts)))
    for parameter in COMMANDS[name].params:
        if isinstance(parameter, click.Option):
            assert mentioned & set(parameter.opts), f"{name} has {parameter.opts}, which no page of it names"


def test_no_page_names_options_that_are_not_there() -> None:
    known = {
        option for command in COMMANDS.values() for parameter in command.params for option in parameter.opts
    }
    known |= {"--help", "--version"}
    for page in HANDBOOK:
        for line in page.read_text().splitlines():
            if "autotune " in line and "pip" not in line:
                unknown = set(re.findall(r"(?<!-)--[a-z][a-z-]+", line)) - known
                assert not unknown, f"{page.name}: {line}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), f"{target} in {page.name}"
        if anchor:
            assert anchor in anchors(file), f"{target} in {page.name}"


def anchors(page: Path) -> set[str]:
    """What a heading is reached by: lower case, punctuation left out, dashes for blanks."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_index_names_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        if page.name != "README.md":
            assert f"({page.relative_to(ROOT / 'docs').as_posix()})" in index


def test_the_rooms_stand_in_their_order() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (\d+) \| (.*) \|$", text, re.MULTILINE))
    assert len(rows) == len(LINES)
    for number, rooms in enumerate(LINES, 1):
        assert set(rooms) <= set(re.findall(r"`(\w+)`", rows[str(number)])), f"line {number}: {rooms}"


def test_whole_specs_load_and_are_the_tested_ones(tmp_path: Path) -> None:
    shutil.copytree(PROJECT / "templates", tmp_path / "templates")
    (tmp_path / "configs" / "kernels").mkdir(parents=True)
    specs = blocks("kernels.md", "yaml", "spec")
    assert specs
    for text in specs:
        name = yaml.safe_load(text)["kernel"]
        path = tmp_path / "configs" / "kernels" / f"{name}.yaml"
        path.write_text(text)
        assert read_spec(path, (tmp_path,)).name == name
        assert text == (PROJECT / "configs" / "kernels" / f"{name}.yaml").read_text()
    assert (PROJECT / "templates" / "transpose" / "transpose.cu.j2").read_text() in blocks(
        "kernels.md", "jinja"
    )


def test_parts_of_specs_have_the_right_shape() -> None:
    parts = blocks("kernels.md", "yaml")
    assert len(parts) > 3
    for text in parts:
        for key, value in yaml.safe_load(text).items():
            TypeAdapter(SpecShape.model_fields[key].rebuild_annotation()).validate_python(value)


def test_the_whole_vocabulary_is_described() -> None:
    text = (ROOT / "docs" / "kernels.md").read_text(encoding="utf-8")
    for key in SpecShape.model_fields:
        assert f"| `{key}`" in text, key
    for key in COST_KEYS:
        assert f"| `{key}` |" in text, key
    for kind in ARGUMENT_KINDS:
        assert re.search(rf"\{{{kind}: ", text), kind
    for word in ParameterShape.model_fields:
        assert re.search(rf"\b{word}\b", text), word


def test_every_status_strategy_and_reference_is_described() -> None:
    for reference in REFERENCES:
        assert f"`{reference}`" in TEXT, reference
    for status in Status:
        assert f"| `{status}` |" in TEXT
    for strategy in STRATEGIES:
        assert f"| `{strategy}` |" in TEXT


@pytest.mark.parametrize("page", ["python.md", "without-a-gpu.md"])
def test_python_examples_run(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(PROJECT, tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("AUTOTUNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(device, "local_gpus", lambda folders=(): [])
    examples = blocks(page, "python")
    assert examples
    script = tmp_path / "example.py"
    script.write_text("\n".join(examples), encoding="utf-8")
    runpy.run_path(str(script), run_name="example")
    # What is printed stands on the page, but for numbers that depend on the compiler.
    said = {without_numbers(line) for text in blocks(page) for line in text.splitlines()}
    for line in capsys.readouterr().out.splitlines():
        assert without_numbers(line) in said, f"{page} does not say that this is printed: {line}"


def without_numbers(line: str) -> str:
    return re.sub(r"\d[\d.]*", "#", line)


def test_no_page_names_paths_of_one_machine() -> None:
    for page in PAGES:
        assert not re.search(r"/(work|home|root|tmp)/", page.read_text(encoding="utf-8")), page

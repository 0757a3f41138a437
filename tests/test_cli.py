"""The command line as users meet it: exit codes, what goes to stdout and stderr, and what every mistake gets."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from autotune.cli import cli, main, output

COMMANDS = [[name] for name in cli.list_commands(None)]  # type: ignore[arg-type]
DB_COMMANDS = [["db", name] for name in ("info", "merge", "export", "import", "migrate", "prune", "check")]
BIG = "1048576"
PROJECT = Path(__file__).parent / "data" / "project"


class Done(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str


def run(*arguments: str | Path) -> Done:
    """Runs a command in this process, through `main` as the installed script does."""
    with CliRunner().isolation() as (out, err, _):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code
        sys.stdout.flush()
        sys.stderr.flush()
        assert isinstance(code, int)
        return Done(code, out.getvalue().decode(), err.getvalue().decode())


def start(*arguments: str | Path, **options: Any) -> subprocess.Popen[str]:
    """Starts a command in a process group of its own, as a shell does."""
    command = [sys.executable, "-m", "autotune", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, start_new_session=True, **{**pipes, **options})


def right(done: Done) -> Done:
    assert done.code == 0, done
    return done


def refused(done: Done, *parts: str, code: int = 2) -> None:
    """One line on stderr with these parts, nothing on stdout."""
    assert done.code == code, done
    assert done.out == ""
    assert done.err.startswith("error: "), done.err
    assert done.err.count("\n") == 1, done.err
    for part in parts:
        assert part in done.err, done.err


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to be in, no results of one's own, no GPU."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("AUTOTUNE_CACHE", str(cache))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    for name in ("AUTOTUNE_DB", "COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def project(here: Path) -> Path:
    """A project folder with one small kernel, `scale`; it is the current folder too."""
    right(run("new", "scale"))
    return here


def spec_of(project: Path) -> Path:
    return project / "configs" / "kernels" / "scale.yaml"


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


# --- help


def test_help_names_every_command_and_the_exit_codes() -> None:
    done = right(run("--help"))
    assert done.err == ""
    for (command,) in COMMANDS:
        assert f"\n  {command} " in done.out
    for code in ("0 done", "2 bad input", "3 needs a GPU", "4 nothing", "130 interrupted"):
        assert code in " ".join(done.out.split())
    assert run("-h").out == done.out


@pytest.mark.parametrize("command", COMMANDS + DB_COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example(command: list[str]) -> None:
    done = right(run(*command, "--help"))
    assert done.out.startswith(f"Usage: autotune {' '.join(command)} ")
    example = f"autotune {' '.join(command)}"
    assert example in done.out.partition("Example")[2]
    if command != ["db"]:
        assert "--json" in done.out


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_list_of_commands_says_what_the_command_does(command: list[str]) -> None:
    context = cli.make_context("autotune", command, resilient_parsing=True)
    loaded = cli.get_command(context, command[0])
    assert loaded is not None
    assert loaded.name == command[0]


def test_version_and_no_command() -> None:
    assert right(run("--version")).out.startswith("autotune, version ")
    nothing = run()
    assert nothing.code == 2
    assert "Commands:" in nothing.out + nothing.err


def test_help_imports_nothing_heavy() -> None:
    code = "import sys\nfrom autotune.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    heavy = "print(sorted({'numpy', 'optuna', 'sqlalchemy', 'jinja2', 'rich', 'yaml', 'cuda'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code + heavy], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


# --- mistakes


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["serach"], ["serach", "nearest: search"]),
        (["db", "inof"], ["inof", "nearest: info"]),
        (["search", "--gpuu", "a6000"], ["--gpuu", "nearest: --gpu", "autotune search --help"]),
        (["search"], ["--gpu", "must be given"]),
        (["best", "--gpu", "a6000"], ["--size", "4096"]),
        (["search", "--gpu", "a600", "--size", "64"], ["--gpu", "a600", "nearest: a6000"]),
        (["check", "--gpu", "a600"], ["--gpu", "a600", "nearest: a6000"]),
        (
            ["best", "--gpu", "a6000", "--kernel", "sgem", "--size", "64"],
            ["kernel", "sgem", "nearest: sgemm"],
        ),
        (["check", "sgem"], ["kernel", "sgem", "nearest: sgemm"]),
        (["check", "nothing.yaml"], ["nothing.yaml", "No such file"]),
        (["search", "--gpu", "a6000", "--size", "64x64"], ["size", "MxNxK", "64x64"]),
        (["search", "--gpu", "a6000", "--size", "-5"], ["size", "-5"]),
        (["search", "--gpu", "a6000", "--size", "0"], ["size", "at least 1", "0x0x0"]),
        (["search", "--gpu", "a6000", "--size", "64x64x0"], ["size", "at least 1", "64x64x0"]),
        (["search", "--gpu", "a6000", "--size", "99999999999"], ["size", "99999999999"]),
        (["search", "--gpu", "a6000", "--size", "4294967296"], ["size", "2147483647", "4294967296"]),
        (["search", "--gpu", "a6000", "--size", "big"], ["size", "big"]),
        (["search", "--gpu", "a6000", "--size", "2147483647"], ["size", "bytes", "NVIDIA RTX A6000"]),
        (
            ["best", "--gpu", "a6000", "--size", "64", "--class", "bta=zero"],
            ["--class", "bta", "nearest: beta"],
        ),
        (["best", "--gpu", "a6000", "--size", "64", "--class", "beta=zer"], ["beta", "zer", "nearest: zero"]),
        (["best", "--gpu", "a6000", "--size", "64", "--class", "beta"], ["--class", "NAME=VALUE"]),
        (["search", "--gpu", "a6000", "--size", "64", "--strategy", "tpee"], ["--strategy", "nearest: tpe"]),
        (["search", "--gpu", "a6000", "--suite", "sgem"], ["--suite", "sgem", "nearest: sgemm"]),
        (["search", "--gpu", "a6000", "--suite", "no.yaml"], ["--suite", "no.yaml"]),
        (
            ["export", "--gpu", "a6000", "--size", "64", "-o", "x", "--format", "hed"],
            ["format", "nearest: header"],
        ),
        (["export", "--gpu", "a6000", "--size", "64"], ["--output", "must be given"]),
        (["search", "--gpu", "a6000", "--size", "64", "--trials", "0"], ["--trials", "at least 1", "'0'"]),
        (["search", "--gpu", "a6000", "--size", "64", "--trials", "-3"], ["--trials", "at least 1", "'-3'"]),
        (
            ["search", "--gpu", "a6000", "--size", "64", "--trials", "many"],
            ["--trials", "whole number", "many"],
        ),
        (["search", "--gpu", "a6000", "--size", "64", "--seed", "-1"], ["--seed", "4294967295", "-1"]),
        (["search", "--gpu", "a6000", "--size", "64", "--time", "0s"], ["--time", "longer than zero", "0s"]),
        (["search", "--gpu", "a6000", "--size", "64", "--time", "soon"], ["--time", "soon", "10m"]),
        (["search", "--gpu", "a6000", "--size", "64", "--project", "none"], ["--project", "none"]),
        (["explain", "--gpu", "a6000", "--config", "BMM=64"], ["--config", "BMM", "nearest: BM"]),
        (["explain", "--gpu", "a6000", "--config", "BM=a"], ["--config", "BM", "'a'"]),
        (["explain", "--gpu", "a6000", "--config", "BM=64,BM=32"], ["--config", "BM", "twice"]),
        (["db", "info", "--db", "none.sqlite"], ["--db", "none.sqlite"]),
        (["db", "info", "--db", ""], ["--db", "nothing"]),
        (["db", "info", "--db", "mysql://here/x"], ["--db", "postgresql", "mysql"]),
        (["db", "import", "none.jsonl"], ["PATH", "none.jsonl"]),
        (["db", "merge", "none.sqlite"], ["none.sqlite"]),
        (["db", "prune"], ["--study"]),
        (["gpus", "extra"], ["extra"]),
        (["new", "9lives"], ["NAME", "9lives"]),
    ],
    ids=lambda value: " ".join(value) if len(value) and value[0].isalpha() else "",
)
def test_a_mistake_gets_one_line_and_exit_code_2(arguments: list[str], parts: list[str]) -> None:
    refused(run(*arguments), *parts)


@pytest.mark.parametrize(
    "arguments",
    [
        ["search", "--gpu", "local", "--size", "64"],
        ["search", "--gpu", "a6000", "--size", "64", "--measured-only"],
        ["verify", "--gpu", "a6000", "--size", "64"],
        ["best", "--gpu", "0", "--size", "64"],
    ],
    ids=" ".join,
)
def test_what_needs_a_gpu_exits_with_3(arguments: list[str]) -> None:
    refused(run(*arguments), "in this machine", code=3)


def test_nothing_legal_and_nothing_known_exit_with_4(project: Path) -> None:
    edit(spec_of(project), "rule: block_elements >= 128", "rule: block_elements >= 1280000")
    done = run("search", "--gpu", "a6000", "--kernel", "scale", "--size", BIG)
    assert done.code == 4
    assert done.out == ""
    assert "20  smaller blocks are never worth their launch" in done.err
    assert run("check", "scale", "--gpu", "a6000").code == 4
    refused(run("export", "--gpu", "a6000", "-o", "x.cuh"), "autotune search --gpu a6000", code=4)


def test_everything_failing_exits_with_4_and_says_why_once(project: Path) -> None:
    edit(project / "templates" / "scale" / "scale.cu.j2", "alpha * x[at]", "alpha * z[at]")
    done = run("search", "--gpu", "a6000", "--kernel", "scale", "--size", BIG, "--trials", "3")
    assert done.code == 4
    assert done.out == ""
    assert "compile_error" in done.err
    assert done.err.count('identifier "z" is undefined') == 1


def test_T58_mistakes_in_a_project_are_named_with_file_line_and_nearest(project: Path) -> None:
    spec, template = spec_of(project), project / "templates" / "scale" / "scale.cu.j2"
    original, source = spec.read_text(), template.read_text()

    def both(*parts: str) -> None:
        refused(run("check", "scale", "--gpu", "a6000"), *parts)
        refused(run("search", "--gpu", "a6000", "--kernel", "scale", "--size", BIG), *parts)

    # (a) the template names a parameter that the space does not have
    edit(template, "{{ THREADS }}", "{{ THREDS }}")
    both("scale.cu.j2:2", "THREDS", "nearest: THREADS")
    template.write_text(source)
    # (c) a key is misspelt
    edit(spec, "defaults:", "defalts:")
    line = spec.read_text()[: spec.read_text().index("defalts")].count("\n") + 1
    both(f"scale.yaml:{line}", "defalts", "nearest: defaults")
    # (d) a value is of the wrong type
    spec.write_text(original)
    edit(spec, "sizes: [N]", "sizes: 3")
    both("scale.yaml:7", "problem.sizes", "must be a list", "3")
    # the reference, and the template itself, do not exist
    spec.write_text(original)
    edit(spec, "reference: scale", "reference: scal")
    both("scale.yaml:", "reference", "scal", "nearest: scale")
    spec.write_text(original)
    edit(spec, "reference: scale", "reference: my_module:scale")
    both("scale.yaml:", "reference", "my_module", "PYTHONPATH")
    spec.write_text(original)
    edit(spec, "template: scale/scale.cu.j2", "template: scale/scal.cu.j2")
    both("scale.yaml:3", "template", "scal.cu.j2", "nearest: scale/scale.cu.j2")


def test_hints_to_search_name_the_same_kernel_and_places(project: Path, tmp_path: Path) -> None:
    asked = [
        "--gpu",
        "a6000",
        "--kernel",
        "scale",
        "--project",
        str(project),
        "--db",
        str(tmp_path / "own db"),
    ]
    done = right(run("best", *asked, "--size", "777"))
    assert f"--kernel scale --size 777 --project {project} --db '{tmp_path}/own db'" in done.err
    refused(run("export", *asked, "-o", "out.cuh"), "search --gpu a6000 --kernel scale --size", code=4)


def test_T58_a_parameter_that_nothing_uses_is_warned_about(project: Path) -> None:
    edit(spec_of(project), "parameters:  ", "parameters:\n  IDLE: [1, 2]\n  #")
    edit(spec_of(project), "defaults: {", "defaults: {IDLE: 1, ")
    for done in (
        run("check", "scale", "--gpu", "a6000"),
        run("search", "--gpu", "a6000", "--kernel", "scale", "--size", BIG, "--trials", "1"),
    ):
        assert done.code == 0, done
        assert "warning: parameter IDLE changes nothing" in done.err
        assert "warning" not in done.out


def test_defaults_for_a_gpu_that_no_table_describes_are_warned_about(project: Path) -> None:
    edit(spec_of(project), "defaults: {", "gpu_defaults: {a60000: {}}\ndefaults: {")
    done = run("check", "scale", "--gpu", "a6000")
    assert done.code == 0, done
    assert "warning: gpu_defaults.a60000: there is no GPU table of this name (nearest: a6000)" in done.err


def test_a_broken_kernel_of_ones_own_stops_only_itself(project: Path) -> None:
    edit(spec_of(project), "defaults:", "defalts:")
    done = run("kernels")
    assert done.code == 2
    assert "scale.yaml" in done.err
    assert "sgemm" in done.out
    assert "sgemm" in right(run("best", "--gpu", "a6000", "--kernel", "sgemm", "--size", "64", "--json")).out


def test_a_template_beside_its_yaml_is_told_where_to_go(here: Path) -> None:
    right(run("new", "scale", "--to", "other"))
    (here / "other/configs/kernels/scale.yaml").rename(here / "mine.yaml")
    (here / "other/templates/scale/scale.cu.j2").rename(here / "scale.cu.j2")
    edit(here / "mine.yaml", "scale/scale.cu.j2", "scale.cu.j2")
    refused(run("check", "mine.yaml", "--gpu", "a6000"), "mine.yaml:3", "template", "nearest: move")


# --- the main job


def test_search_prints_only_the_answer_on_stdout(project: Path) -> None:
    done = right(run("search", "--gpu", "a6000", "--kernel", "scale", "--size", BIG, "--trials", "4"))
    head, row, *configs = done.out.splitlines()
    assert head.split() == ["size", "best", "ms", "gbytes_per_s", "timed", "failed", "origin"]
    assert row.split()[0] == BIG
    assert row.split()[-3:] == ["4", "0", "predicted"]
    assert all(line.startswith(f"{BIG}: ") for line in configs)
    assert "THREADS=" in configs[0]
    assert "search 0/4" in done.err
    assert "PREDICTED, NOT MEASURED" in done.err


def test_search_twice_answers_from_records_and_best_agrees(project: Path) -> None:
    arguments = ["search", "--gpu", "a6000", "--kernel", "scale", "--size", BIG, "--trials", "4", "--json"]
    (first,) = json.loads(right(run(*arguments)).out)
    (second,) = json.loads(right(run(*arguments)).out)
    assert first["counts"] == {"ok": 4}
    assert second["counts"] == {}
    assert second["measured"] == first["measured"] == 4
    assert second["config"] == first["config"]
    best = json.loads(right(run("best", "--gpu", "a6000", "--kernel", "scale", "--size", BIG, "--json")).out)
    assert best["config"] == first["config"]
    assert best["match"] == "predicted"


def test_the_documented_fields_of_json(project: Path) -> None:
    asked = ["--gpu", "a6000", "--kernel", "scale", "--size", BIG]
    (found,) = json.loads(right(run("search", *asked, "--trials", "2", "--json")).out)
    assert found["kernel"] == "scale"
    assert found["gpu"] == "a6000"
    assert found["size"] == BIG
    assert set(found["config"]) == {"THREADS", "PER_THREAD"}
    assert found["origin"] == "predicted"
    assert found["time_ms"] > 0
    assert found["metrics"]["gbytes_per_s"] > 0
    assert {"study", "counts", "measured", "legal", "exhausted", "interrupted", "ties", "notes"} <= set(found)

    best = json.loads(right(run("best", *asked, "--json")).out)
    assert {"config", "match", "why", "origin", "staleness", "time_ms", "metrics", "ties"} <= set(best)
    both = json.loads(right(run("best", *asked, "--size", "2097152", "--json")).out)
    assert [answer["size"] for answer in both] == [BIG, "2097152"]

    explained = json.loads(right(run("explain", *asked, "--json")).out)
    assert {"use", "roofline", "violations", "legal", "config"} <= set(explained)
    written = json.loads(right(run("export", *asked, "-o", "scale.cuh", "--json")).out)
    assert {"path", "kernels", "sizes", "bytes", "predicted"} <= set(written)

    checked = json.loads(right(run("check", "scale", "--gpu", "a6000", "--json")).out)
    assert checked["ok"] is True
    assert checked["gpus"][0]["gpu"] == "a6000"
    assert checked["gpus"][0]["legal"] == 19
    assert checked["warnings"] == []

    info = json.loads(right(run("db", "info", "--json")).out)
    assert info["trials"] == 2
    assert json.loads(right(run("db", "check", "--json")).out) == {"troubles": []}
    assert json.loads(right(run("db", "migrate", "--json")).out)["schema"] == info["schema"]
    assert json.loads(right(run("db", "export", "all.jsonl", "--json")).out)["records"] == 2
    assert json.loads(right(run("db", "import", "all.jsonl", "--json")).out)["added"] == 0
    merged = json.loads(right(run("db", "merge", "all.jsonl", "--db", "new.sqlite", "--json")).out)
    assert merged["all.jsonl"]["added"] == 2
    assert json.loads(right(run("db", "prune", "--kernel", "scale", "--json")).out) == {
        "records": 2,
        "removed": False,
    }
    assert {table["table"] for table in json.loads(right(run("gpus", "--json")).out)["tables"]} >= {"a6000"}
    listed = [kernel["kernel"] for kernel in json.loads(right(run("kernels", "--json")).out)]
    assert {"scale", "sgemm", "sgemm_batched", "sgemm_epilogue"} <= set(listed)
    assert json.loads(right(run("new", "other", "--json")).out)["kernel"] == "other"


def test_several_sizes_and_the_same_one_twice(project: Path) -> None:
    sizes = ["--size", BIG, "--size", "4096", "--size", BIG]
    done = right(run("search", "--gpu", "a6000", "--kernel", "scale", *sizes, "--trials", "1", "--json"))
    assert [found["size"] for found in json.loads(done.out)] == [BIG, "4096"]


def test_time_alone_limits_a_search(project: Path) -> None:
    began = time.monotonic()
    done = right(
        run(
            "search",
            "--gpu",
            "a6000",
            "--kernel",
            "scale",
            "--size",
            BIG,
            "--time",
            "0.5s",
            "--strategy",
            "random",
        )
    )
    assert time.monotonic() - began < 20
    assert "0.5 s is used up" in done.err or "exhausted" in done.err


def test_the_user_is_told_how_to_replace_a_default(project: Path) -> None:
    done = right(run("best", "--gpu", "a6000", "--kernel", "scale", "--size", BIG))
    assert "default" in done.out
    assert f"autotune search --gpu a6000 --kernel scale --size {BIG}" in done.err


def test_ties_are_listed_up_to_five(project: Path) -> None:
    # Nothing but the number of threads matters to the model here, so that most are equal.
    edit(
        spec_of(project), "PER_THREAD: {values: [1, 2, 4, 8]", "PER_THREAD: {values: [1, 2, 3, 4, 5, 6, 7, 8]"
    )
    asked = ["--gpu", "a6000", "--kernel", "scale", "--size", BIG]
    right(run("search", *asked, "--strategy", "exhaustive"))
    ties = json.loads(right(run("best", *asked, "--json")).out)["ties"]
    assert len(ties) > 5
    lines = [line for line in right(run("best", *asked)).out.splitlines() if "as fast:" in line]
    assert len(lines) == 6
    assert lines[-1] == f"  as fast: {len(ties) - 5} more; --json lists them"


def test_explain_says_what_an_illegal_configuration_breaks(project: Path) -> None:
    done = run("explain", "--gpu", "a6000", "--kernel", "scale", "--size", BIG, "--config", "THREADS=2048")
    assert done.code == 4
    assert "illegal: THREADS must be one of 64, 128, 256, 512, 1024, got 2048" in done.err
    assert "nearest legal: THREADS=1024" in done.err


# --- where things lie


def test_the_project_is_the_current_folder_or_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right(run("new", "scale", "--to", "mine"))
    refused(run("check", "scale", "--gpu", "a6000"), "no kernel 'scale'")
    assert "scale" in right(run("kernels", "--project", "mine")).out
    asked = ["--gpu", "a6000", "--kernel", "scale", "--size", BIG, "--trials", "1"]
    assert right(run("search", *asked, "--project", "mine")).out
    by_file = [
        "--gpu",
        "a6000",
        "--kernel",
        "mine/configs/kernels/scale.yaml",
        "--size",
        BIG,
        "--trials",
        "1",
    ]
    assert right(run("search", *by_file)).out
    monkeypatch.chdir(here / "mine")
    assert right(run("search", *asked)).out
    # One study, whichever way the kernel was named.
    assert json.loads(right(run("db", "info", "--json")).out)["trials"] == 1


def test_the_database_is_the_option_then_the_variable_then_the_users_own(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def where() -> str:
        return str(json.loads(right(run("db", "info", "--json")).out)["database"])

    assert where() == str(tmp_path / "data" / "autotune" / "autotune.sqlite")
    monkeypatch.setenv("AUTOTUNE_DB", "variable.sqlite")
    refused(run("db", "info"), "variable.sqlite")
    right(run("search", "--gpu", "a6000", "--kernel", "scale", "--size", BIG, "--trials", "1"))
    assert where() == str(project / "variable.sqlite")
    option = ["--kernel", "scale", "--size", BIG, "--db", "option.sqlite"]
    done = right(run("best", "--gpu", "a6000", *option))
    assert "warning: no results in" in done.err
    assert "option.sqlite" in done.err
    monkeypatch.setenv("AUTOTUNE_DB", "")
    assert where() == str(tmp_path / "data" / "autotune" / "autotune.sqlite")


@pytest.mark.parametrize("content", [b"this is no database\n" * 300, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_database_is_named_and_left_alone(here: Path, content: bytes) -> None:
    path = here / "bad.sqlite"
    path.write_bytes(content)
    for arguments in (
        ["db", "info"],
        ["db", "check"],
        ["best", "--gpu", "a6000", "--size", "64"],
        ["search", "--gpu", "a6000", "--size", "64", "--trials", "1"],
        ["export", "--gpu", "a6000", "-o", "x.cuh"],
    ):
        done = run(*arguments, "--db", path)
        assert done.code == 1, done
        assert done.out == ""
        assert "bad.sqlite" in done.err
        assert "Traceback" not in done.err
    assert path.read_bytes() == content


@pytest.mark.parametrize("form", ["header", "json", "cubin"])
def test_an_output_that_cannot_be_written_is_refused(project: Path, form: str) -> None:
    (project / "full").mkdir()
    (project / "full" / "mine.txt").write_text("keep me")
    (project / "file").write_text("keep me")
    asked = ["export", "--gpu", "a6000", "--kernel", "scale", "--size", BIG, "--format", form]
    for path in ("none/below/x", "file/x", "full", "/proc/nothing/x"):
        refused(run(*asked, "-o", path), "output", path.split("/")[0])
    assert (project / "full" / "mine.txt").read_text() == "keep me"
    assert sorted(path.name for path in project.iterdir()) == ["configs", "file", "full", "templates"]


# --- how it looks


def test_piped_tables_have_one_row_a_line_without_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    for width in ("20", "80"):
        monkeypatch.setenv("COLUMNS", width)
        lines = right(run("gpus")).out.splitlines()
        assert len(lines) == 1 + len(json.loads(run("gpus", "--json").out)["tables"])
        assert all(line == line.rstrip() for line in lines)
        assert lines[0].split()[:2] == ["table", "name"]


def test_tables_show_brackets_as_they_stand(project: Path) -> None:
    edit(spec_of(project), "smaller blocks are never", "'[bold]x[/bold] :smile: blocks are never")
    edit(spec_of(project), "worth their launch}", "worth it'}")
    assert "[bold]x[/bold] :smile: blocks" in right(run("check", "scale", "--gpu", "a6000")).out


@pytest.mark.parametrize("width", [40, 80])
@pytest.mark.parametrize("no_color", [False, True])
def test_tables_fit_a_narrow_terminal(width: int, no_color: bool) -> None:
    import pty

    leader, follower = pty.openpty()
    size = {"COLUMNS": str(width), "LINES": "24", "TERM": "xterm"} | ({"NO_COLOR": "1"} if no_color else {})
    process = start("gpus", stdout=follower, env=os.environ | size)
    os.close(follower)
    text = b""
    while True:
        try:
            chunk = os.read(leader, 4096)
        except OSError:
            break
        if not chunk:
            break
        text += chunk
    os.close(leader)
    process.communicate(timeout=30)
    assert process.returncode == 0
    import re

    plain = re.sub(r"\x1b\[[0-9;]*m", "", text.decode())
    assert "t4" in plain
    assert max(len(line.rstrip("\r")) for line in plain.split("\n")) <= width
    if no_color:
        assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", text.decode())


def test_a_reader_that_goes_away_gets_no_traceback() -> None:
    process = start("gpus")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(30) in (0, 1)
    assert err == ""


# --- check


def test_check_run_on_a_project_without_python() -> None:
    done = right(run("check", "transpose", "--project", PROJECT, "--gpu", "a6000", "--gpu", "t4", "--run"))
    for label in ("1x1", "33x65", "130x70"):
        assert f"on the CPU, {label}: right, worst error 0 of 0 allowed" in done.out
    assert done.out.count("compiles") == 2
    assert "a block has whole warps" in done.out
    assert "error" not in done.err


def test_check_says_what_goes_wrong_once(project: Path) -> None:
    edit(project / "templates" / "scale" / "scale.cu.j2", "alpha * x[at]", "alpha * z[at]")
    done = run("check", "scale", "--gpu", "a6000", "--gpu", "t4", "--gpu", "h200", "--run")
    assert done.code == 4
    assert done.out.count("compile_error") == 4
    assert "error: a6000, t4, h200: compile_error:" in done.err
    # Two places in the unrolled source at most, and the CPU's compiler.
    assert done.err.count("is undefined") == 1


def test_check_finds_a_wrong_result(project: Path) -> None:
    edit(project / "templates" / "scale" / "scale.cu.j2", "alpha * x[at]", "alpha + x[at]")
    done = run("check", "scale", "--gpu", "a6000", "--run")
    assert done.code == 4
    assert "on the CPU, 33: wrong_result, worst error" in done.out
    assert "error: 1 on the CPU: wrong_result: y[0] is" in done.err


def test_check_warns_of_a_kernel_that_cannot_be_exported(project: Path) -> None:
    edit(spec_of(project), "  - {size: N}\n", "")
    template = project / "templates" / "scale" / "scale.cu.j2"
    edit(template, ", int n)", ")")
    edit(template, "!kGuard || at < n", "!kGuard")
    done = right(run("check", "scale", "--gpu", "a6000"))
    assert "warning: an export would be refused" in done.err
    assert "nearest: add N" in done.err


def test_check_compiles_once_for_an_architecture(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from autotune.compile.pool import CompilePool

    begun: list[tuple[str, str]] = []
    submit: Callable[..., Any] = CompilePool.submit

    def counted(self: CompilePool, source: Any, arch: str) -> Any:
        begun.append((source.text, arch))
        return submit(self, source, arch)

    monkeypatch.setattr(CompilePool, "submit", counted)
    tables = ["a6000", "rtx3090", "a10", "h200", "h100_pcie"]
    right(run("check", "scale", *(f"--gpu={table}" for table in tables)))
    # Two architectures, with guards and without.
    assert len(begun) == len(set(begun)) == 4


# --- interrupted


MANY = "PER_THREAD: {values: [1, 2, 4, 8"
MORE = f"PER_THREAD: {{values: [{', '.join(str(n) for n in range(1, 120))}"


def stored(path: Path) -> int:
    if not path.exists():
        return 0
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            return int(connection.execute("SELECT count(*) FROM autotune_trials").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


def wait_for(path: Path, trials: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while stored(path) < trials:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_T59_an_interrupted_search_ends_soon_keeps_all_and_goes_on(project: Path) -> None:
    edit(spec_of(project), MANY, MORE)
    asked = ["--gpu", "a6000", "--kernel", "scale", "--size", BIG, "--strategy", "random", "--db", "r.sqlite"]
    process = start("search", *asked, "--trials", "500")
    wait_for(project / "r.sqlite", 7, process)
    began = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does: the compilers get it too
    out, err = process.communicate(timeout=20)
    assert time.monotonic() - began < 5
    assert process.returncode == 130
    assert "THREADS=" in out  # the best so far
    assert "interrupted" in err
    assert "Traceback" not in err
    kept = stored(project / "r.sqlite")
    assert kept >= 7

    (again,) = json.loads(right(run("search", *asked, "--trials", str(kept + 3), "--json")).out)
    assert again["counts"] == {"ok": 3}
    assert again["measured"] == kept + 3
    assert stored(project / "r.sqlite") == kept + 3


def test_T59_a_killed_search_keeps_all_and_goes_on(project: Path) -> None:
    edit(spec_of(project), MANY, MORE)
    asked = ["--gpu", "a6000", "--kernel", "scale", "--size", BIG, "--strategy", "random", "--db", "r.sqlite"]
    process = start("search", *asked, "--trials", "500")
    wait_for(project / "r.sqlite", 20, process)
    process.kill()
    process.communicate(timeout=20)
    kept = stored(project / "r.sqlite")
    assert kept >= 20
    (again,) = json.loads(right(run("search", *asked, "--trials", str(kept + 2), "--json")).out)
    assert again["counts"] == {"ok": 2}
    assert again["measured"] == kept + 2


def test_an_interrupt_before_anything_runs_exits_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    from autotune.spec import load

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(load, "load_spec", interrupted)
    assert run("check").code == 130


def test_export_takes_lists_of_classes(project: Path) -> None:
    asked = ["export", "--gpu", "a6000", "--size", "512", "-o", "s.cuh"]
    right(run(*asked, "--class", "trans_a=n,t", "--class", "beta=general"))
    text = (project / "s.cuh").read_text()
    assert "enum class sgemm_trans_a { n, t };" in text
    assert "trans_b: n in this header" in text
    refused(run(*asked, "--class", "trans_a=n,q"), "trans_a cannot be 'q'")
    refused(run(*asked, "--class", "trans_a=n", "--class", "trans_a=t"), "trans_a is given twice")


@pytest.mark.parametrize(("own", "heeded"), [(None, "1"), ("3", "3")])
def test_search_holds_numpy_to_one_thread_unless_the_user_says_otherwise(
    own: str | None, heeded: str, tmp_path: Path
) -> None:
    script = (
        "import os, sys\n"
        "class Watch:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'numpy':\n"
        "            print('NUMPY FINDS', os.environ.get('OPENBLAS_NUM_THREADS'), flush=True)\n"
        "            os._exit(0)\n"
        "sys.meta_path.insert(0, Watch())\n"
        "from autotune.cli import main\n"
        f"main(['search', '--gpu', 'a6000', '--size', '64', '--db', {str(tmp_path / 'a.sqlite')!r}])\n"
    )
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    if own:
        environment["OPENBLAS_NUM_THREADS"] = own
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.split() == ["NUMPY", "FINDS", heeded]


def test_a_long_wait_is_explained_at_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for at_terminal in (False, True):
        monkeypatch.setattr("sys.stderr.isatty", lambda answer=at_terminal: answer)
        with output.patience("why it takes so long", after_s=0.01):
            time.sleep(0.2)
        with output.patience("never told", after_s=60):
            pass
        assert capsys.readouterr().err == ("why it takes so long\n" if at_terminal else "")

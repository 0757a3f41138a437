"""Rendering: strict names, sandbox, hashes, unused parameters, and the SGEMM template's golden text."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.config import Config
from autotune.errors import InputError
from autotune.expressions import Expression
from autotune.gpu_tables import find_gpu
from autotune.launch import plan_launch
from autotune.legality import search_space
from autotune.problem import Problem
from autotune.problems import make_problem
from autotune.render import kernel_hash, render, unused_parameters
from autotune.spec.kernel_spec import KernelSpec, Parameter
from autotune.spec.load import load_spec

H200 = find_gpu("h200")
SGEMM = load_spec("sgemm")
SPACE = search_space(SGEMM, H200, None)
DEFAULT = Config.of(SGEMM.defaults)
CUBE = make_problem(SGEMM, 4096)
GOLDEN = Path(__file__).parent / "golden" / "sgemm_default.cu"

legal_configs = st.integers(0, SPACE.count - 1).map(SPACE.at)


def spec_with(folder: Path, template: str, **files: str) -> KernelSpec:
    """The SGEMM spec with a template of its own, and further templates beside it."""
    (folder / "templates" / "own").mkdir(parents=True, exist_ok=True)
    for name, text in {"kernel": template, **files}.items():
        (folder / "templates" / "own" / f"{name}.cu.j2").write_text(text)
    return replace(SGEMM, template="own/kernel.cu.j2", folders=(folder,))


def rendered(spec: KernelSpec, config: Config = DEFAULT, problem: Problem = CUBE) -> str:
    return render(spec, H200, problem, config).text


def test_the_default_configuration_renders_to_the_golden_text() -> None:
    """After a wanted change: `python tests/test_render.py` writes the file anew."""
    assert rendered(SGEMM) == GOLDEN.read_text()


def test_the_source_says_what_to_fetch_and_where_it_comes_from() -> None:
    source = render(SGEMM, H200, CUBE, DEFAULT)
    assert source.entry == "sgemm"
    assert source.template.name == "sgemm.cu.j2"
    assert 'extern "C" __global__ void __launch_bounds__(128, 2)\nsgemm(' in source.text


def test_the_rendered_file_stands_alone_and_defines_no_macro() -> None:
    text = rendered(SGEMM)
    assert "#include" not in text
    assert "#define" not in text
    assert not re.search(r"\{\{|\{%", text)


@settings(max_examples=60, deadline=None)
@given(legal_configs)
def test_every_legal_configuration_renders_and_equal_ones_equally(config: Config) -> None:
    text = rendered(SGEMM, config)
    assert text == rendered(SGEMM, Config.from_json(config.to_json()))
    assert not re.search("True|False|None", text)
    assert (
        f"constexpr int kBlockM = {config['BM']}, kBlockN = {config['BN']}, kBlockK = {config['BK']};" in text
    )


@settings(max_examples=60, deadline=None)
@given(legal_configs, st.data())
def test_every_parameter_changes_the_text_or_the_launch(config: Config, data: st.DataObject) -> None:
    used = [p for p in SGEMM.parameters if p.name not in unused_parameters(SGEMM) and len(p.values) > 1]
    parameter = data.draw(st.sampled_from(used))
    value = data.draw(
        st.sampled_from([value for value in parameter.values if value != config[parameter.name]])
    )
    other = config.replace({parameter.name: value})
    if other in SPACE:
        launches = [plan_launch(SGEMM, CUBE, one, H200) for one in (config, other)]
        assert rendered(SGEMM, other) != rendered(SGEMM, config) or launches[0] != launches[1]


def test_variants_of_the_problem_change_the_text_and_other_sizes_do_not() -> None:
    guarded = rendered(SGEMM, problem=make_problem(SGEMM, 4092))
    assert "kGuard = true" in guarded
    assert "kGuard = false" in rendered(SGEMM)
    assert "kGuardAll = false" in guarded
    assert guarded == rendered(SGEMM, problem=make_problem(SGEMM, (260, 268, 20)))
    small = rendered(SGEMM, problem=make_problem(SGEMM, (4, 12, 20)))
    assert "kGuardAll = true" in small
    assert small == rendered(SGEMM, problem=make_problem(SGEMM, (4, 300, 20)))
    general = rendered(SGEMM, problem=make_problem(SGEMM, 4096, classes={"beta": "general"}))
    assert "kBetaZero = false" in general


def test_T48_values_render_as_cuda_writes_them(tmp_path: Path) -> None:
    spec = replace(
        spec_with(tmp_path, "{{ B }} {{ I }} {{ F }} {{ S }} {{ T }} {{ BM == 1 }}"),
        parameters=tuple(Parameter(name, (0,)) for name in ("B", "I", "F", "S", "T")),
        derived={},
        variants={},
    )
    config = Config.of({"B": True, "I": 16, "F": 0.8, "S": "z", "T": (1, 2), "BM": 2})
    assert rendered(spec, Config.from_json(config.to_json())) == "true 16 0.8 z (1 2) false"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{% include "own/kernel.cu.j2" %}', "includes or calls itself without end"),
        ('{% include "own/part.cu.j2" %}', "includes or calls itself without end"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "includes or calls itself without end"),
        ('{{ "x" * 20000000 }}', "at most 16,777,216 characters, got 20,000,000 for KIND="),
        ("{% for i in range(10 ** 9) %}x{% endfor %}", "Range too big"),
    ],
)
def test_templates_without_end_are_told(tmp_path: Path, text: str, message: str) -> None:
    spec = spec_with(tmp_path, text, part='{% include "own/kernel.cu.j2" %}')
    with pytest.raises(InputError, match=message) as caught:
        rendered(spec)
    assert "own/" in caught.value.where


def test_T58a_an_undefined_name_stops_with_file_line_and_nearest_name(tmp_path: Path) -> None:
    spec = spec_with(tmp_path, "// {{ BM }}\n\n{% if REGDB %}\nint x = {{ STAGE }};\n{% endif %}\n")
    with pytest.raises(InputError) as caught:
        rendered(spec, DEFAULT.replace({"REGDB": False}))  # the branch is not even taken
    assert caught.value.where == f"{tmp_path}/templates/own/kernel.cu.j2:4"
    assert caught.value.key == "STAGE"
    assert caught.value.nearest == "STAGES"


def test_T58a_names_in_included_files_are_checked_in_their_file(tmp_path: Path) -> None:
    spec = spec_with(tmp_path, '{% include "own/part.cu.j2" %}', part="\n{{ TN }}{{ TMM }}")
    with pytest.raises(InputError) as caught:
        rendered(spec)
    assert caught.value.where == f"{tmp_path}/templates/own/part.cu.j2:2"
    assert caught.value.nearest == "TM"


def test_names_that_a_template_sets_are_its_own(tmp_path: Path) -> None:
    template = (
        '{% set twice = BM * 2 %}{% for i in range(2) %}{{ i }}{% endfor %}{% include "own/part.cu.j2" %}'
    )
    assert rendered(spec_with(tmp_path, template, part=" {{ twice }}")) == "01 256"


def test_T58b_parameters_that_nothing_uses_are_listed(tmp_path: Path) -> None:
    assert unused_parameters(SGEMM) == []
    unused = unused_parameters(spec_with(tmp_path, "{{ BM }} {{ REGDB }} {{ LOAD_B }}"))
    assert {"BM", "REGDB", "VB"}.isdisjoint(unused)  # VB by way of LOAD_B
    assert {"BN", "BK", "WM", "STAGES", "PAD_A"}.isdisjoint(unused)  # by way of the launch
    assert {*unused} >= {"TM", "TN", "VM", "VN", "LANES", "VA", "VC", "ORDER", "MINB", "GROUP_M"}


@pytest.mark.parametrize(
    ("template", "line", "says"),
    [
        ("\n{% if BM %}\n", 2, "Unexpected end of template"),
        ("\n\n{{ BM.__class__ }}", 3, "unsafe"),
        ("\n{{ BM // 0 }}", 2, "zero"),
        ("\n{{ BM + LOAD }}", 2, "unsupported operand"),
        ("\n{{ BM.missing }}", 2, "missing"),
    ],
)
def test_failures_name_the_line(tmp_path: Path, template: str, line: int, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        rendered(spec_with(tmp_path, template))
    assert caught.value.where == f"{tmp_path}/templates/own/kernel.cu.j2:{line}"


def test_a_missing_include_names_the_file_that_asks_for_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"own/prat\.cu\.j2") as caught:
        rendered(spec_with(tmp_path, '{% include "own/prat.cu.j2" %}', part=""))
    assert caught.value.where == f"{tmp_path}/templates/own/kernel.cu.j2"
    assert caught.value.nearest == "own/part.cu.j2"


def test_an_include_without_end_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="rendering failed"):
        rendered(spec_with(tmp_path, '{% include "own/kernel.cu.j2" %}'))


def test_the_own_folder_comes_before_the_shipped_one(tmp_path: Path) -> None:
    (tmp_path / "templates" / "sgemm").mkdir(parents=True)
    (tmp_path / "templates" / "sgemm" / "sgemm.cu.j2").write_text("// mine {{ BM }}")
    assert rendered(replace(SGEMM, folders=(tmp_path,))) == "// mine 128"


def test_T33_the_hash_follows_template_includes_launch_and_arguments(tmp_path: Path) -> None:
    spec = spec_with(tmp_path, '{% include "own/part.cu.j2" %}', part="{{ BM }}")
    first = kernel_hash(spec)
    assert first == kernel_hash(replace(spec, constraints=(), defaults={}))

    (tmp_path / "templates" / "own" / "part.cu.j2").write_text("{{ BM }} ")
    changed_include = kernel_hash(spec)
    launch = replace(spec, launch=replace(spec.launch, smem=Expression.parse("smem_bytes + 4")))
    derived = replace(spec, derived={**spec.derived, "smem_bytes": Expression.parse("4 * STAGES * BK")})
    entry = replace(spec, entry="other")
    arguments = replace(spec, arguments=spec.arguments[:-1])
    hashes = {first, changed_include, *(kernel_hash(other) for other in (launch, derived, entry, arguments))}
    assert len(hashes) == 6


def test_the_hash_leaves_out_what_only_guides_the_search(tmp_path: Path) -> None:
    spec = spec_with(tmp_path, "{{ BM }}")
    other = replace(spec, derived={**spec.derived, "registers": Expression.parse("TM * TN")})
    assert kernel_hash(other) == kernel_hash(spec)


if __name__ == "__main__":
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(rendered(SGEMM))

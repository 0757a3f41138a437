from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fakes.toy import toy_spec
from hypothesis import given
from hypothesis import strategies as st
from jinja2.defaults import DEFAULT_NAMESPACE

from autotune.config import Config, value_text
from autotune.errors import InputError
from autotune.expressions import Expression
from autotune.spec.kernel_spec import Parameter
from autotune.spec.load import list_kernels, load_spec
from autotune.spec.names import TEMPLATE_WORDS, checked_value

PROJECT = Path(__file__).parent / "data" / "project"


@pytest.mark.parametrize(
    "name", ["N", "threads", "sm_count", "min", "lane", "flops", "x y", "9", "größe", ""]
)
def test_a_spec_built_in_python_has_the_same_names_as_one_in_yaml(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="name"):
        toy_spec(tmp_path, {name: [1, 2]})


@pytest.mark.parametrize("name", [*TEMPLATE_WORDS, "True", "None", "class", "not"])
def test_words_of_the_language_and_of_templates_are_no_parameters(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"word of the language|template language"):
        toy_spec(tmp_path, {name: [1, 2]})
    yaml = (PROJECT / "configs/kernels/transpose.yaml").read_text()
    path = tmp_path / "transpose.yaml"
    path.write_text(yaml.replace("  PAD: {", f"  {name}: [1, 2]\n  PAD: {{"))
    with pytest.raises(InputError, match=rf"parameters\.{name}: ") as caught:
        load_spec(str(path))
    assert caught.value.where.endswith(":15")


def test_every_global_of_the_template_language_is_reserved() -> None:
    assert set(DEFAULT_NAMESPACE) <= set(TEMPLATE_WORDS)


@pytest.mark.parametrize("name", ["int", "float", "auto", "template", "a6000", "registers", "K"])
def test_words_of_cpp_and_names_of_boards_are_parameters(tmp_path: Path, name: str) -> None:
    assert toy_spec(tmp_path, {name: [1, 2]}).parameter_names == (name,)


def test_derived_names_and_variants_count_as_well(tmp_path: Path) -> None:
    spec = toy_spec(tmp_path, {"A": [1, 2]})
    for changes in ({"derived": {"A": Expression("1")}}, {"variants": {"threads": Expression("1")}}):
        with pytest.raises(InputError, match="is taken by"):
            replace(spec, **changes)


BAD = ['a"b', "it's", "a,b", "a=b", "(a)", "a b", "", "a\\", "a\nb", "\0", "a*/b", "/*", "\u202e", "`x`"]


@pytest.mark.parametrize("value", [*BAD, float("nan"), float("inf"), None, {}, [], ()])
def test_values_that_could_not_be_keys_are_refused(value: object) -> None:
    with pytest.raises(InputError, match=r"parameters\.P"):
        Parameter("P", (1, value))  # type: ignore[arg-type]


@pytest.mark.parametrize("values", [(1, "1"), (True, "true"), ((1, 2), [1, 2]), (1, 1)])
def test_values_that_are_written_alike_are_refused(values: tuple[object, ...]) -> None:
    with pytest.raises(InputError, match="differ in writing"):
        Parameter("P", values)  # type: ignore[arg-type]


texts = st.text(max_size=6)
values = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, min_size=1, max_size=3).map(tuple),
    max_leaves=4,
)


def _allowed(value: object) -> bool:
    try:
        checked_value(value)
    except ValueError:
        return False
    return True


configs = st.dictionaries(st.sampled_from(["A", "B", "C"]), values.filter(_allowed), min_size=1)


@given(configs, configs)
def test_keys_are_equal_only_for_configs_that_render_alike(
    one: dict[str, object], other: dict[str, object]
) -> None:
    first, second = Config.of(one), Config.of(other)  # type: ignore[arg-type]
    assert Config.from_json(first.to_json()) == first
    if first.key == second.key:
        assert list(one) == list(other)
        assert list(map(value_text, first.values())) == list(map(value_text, second.values()))


def test_exponents_without_a_point_are_numbers(tmp_path: Path) -> None:
    yaml = (PROJECT / "configs/kernels/transpose.yaml").read_text()
    path = tmp_path / "transpose.yaml"
    path.write_text(yaml.replace("  PAD: {", '  EPS: [1e-7, "1e-6", 0.30000000000000004, -3]\n  PAD: {'))
    by_name = {parameter.name: parameter.values for parameter in load_spec(str(path)).parameters}
    assert by_name["EPS"] == (1e-7, "1e-6", 0.1 + 0.2, -3)


def test_a_kernel_in_a_subfolder_is_called_folder_and_name(tmp_path: Path) -> None:
    yaml = (PROJECT / "configs/kernels/transpose.yaml").read_text()
    path = tmp_path / "configs" / "kernels" / "mine" / "turned.yaml"
    template = tmp_path / "templates" / "transpose" / "transpose.cu.j2"
    for file in (path, template):
        file.parent.mkdir(parents=True)
    template.write_text((PROJECT / "templates/transpose/transpose.cu.j2").read_text())
    path.write_text(yaml.replace("kernel: transpose", "kernel: mine/turned"))
    assert "mine/turned" in list_kernels([tmp_path])
    assert load_spec("mine/turned", [tmp_path]).name == "mine/turned"
    assert load_spec(str(path)).folders == (tmp_path,)
    with pytest.raises(InputError, match="mine/turned"):
        load_spec("mine/turnt", [tmp_path])
    path.write_text(yaml.replace("kernel: transpose", "kernel: turned"))
    with pytest.raises(InputError, match="must be the name of its file"):
        load_spec("mine/turned", [tmp_path])
    path.write_text(yaml.replace("kernel: transpose", "kernel: mine/2nd"))
    with pytest.raises(InputError, match="kernel: a name is made of"):
        load_spec(str(path))

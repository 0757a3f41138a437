from pathlib import Path

import pytest
import yaml

from autotune.errors import InputError
from autotune.spec import yaml_file
from autotune.spec.yaml_file import parse_yaml, read_yaml

PLACE = Path("/nowhere/k.yaml")


def test_remembers_lines():
    file = parse_yaml("a: 1\nb:\n  - {c: x, d: 2.5}\n  - [true, ~]\n", PLACE)
    assert file.data == {"a": 1, "b": [{"c": "x", "d": 2.5}, [True, None]]}
    assert file.where(("b", 0, "d")) == "/nowhere/k.yaml:3"
    assert file.where(("b", 1, 7)) == "/nowhere/k.yaml:4"
    assert (
        str(file.error(("b", 1), "is wrong", "right")) == "/nowhere/k.yaml:4: b.1: is wrong (nearest: right)"
    )


def test_names_that_yaml_takes_for_booleans_stay_names_as_keys():
    assert parse_yaml("{NO: 1, on: 2, y: 3, 16: 4}", PLACE).data == {"NO": 1, "on": 2, "y": 3, "16": 4}


def test_anchors_repeat_values():
    assert parse_yaml("a: &v [1, 2]\nb: *v\n", PLACE).data == {"a": [1, 2], "b": [1, 2]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1, yes]", "k.yaml:1: a.1: a boolean is true or false"),
        ("a: Off", "got Off (nearest: false, or 'Off')"),
        ("a: 1\nb: 2\na: 3", "k.yaml:3: a: a key stands once"),
        ("a: 010", "without leading zeros, got 010"),
        ("a: 1:30", "got 1:30"),
        ("a: 2024-01-01", "got 2024-01-01 (timestamp) (nearest: '2024-01-01')"),
        ("a: .inf", "got .inf"),
        ("a: .nan", "got .nan"),
        ("a: 1.0e400", "must not be too large for a float, got 1.0e400"),
        ("a: -1e400", "must not be too large for a float, got -1e400"),
        ("{[1]: 2}", "keys must be plain names"),
        ("<<: {a: 1}", "keys must be plain names"),
        ("a: {", "k.yaml:1: is not valid YAML"),
        ("a: b: c", "is not valid YAML"),
        ("a: &x [*x]", "anchors must not repeat without end"),
        ("- 1\n---\n- 2", "is not valid YAML"),
        ("a: !!python/object/apply:os.system ['true']\n", "plain"),
    ],
)
def test_refuses(text, message):
    with pytest.raises(InputError) as refused:
        parse_yaml(text, PLACE)
    assert message in str(refused.value)


def test_refuses_values_that_unfold_without_bound():
    levels = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1]"]
    levels += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 8)}]" for i in range(1, 9)]
    with pytest.raises(InputError, match="anchors"):
        parse_yaml("\n".join(levels), PLACE)


def test_unreadable_files(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_yaml(tmp_path / "none.yaml")
    (tmp_path / "bad.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        read_yaml(tmp_path / "bad.yaml")


FILES = sorted((Path(__file__).parents[1] / "configs").rglob("*.yaml"))


def test_both_readers_of_yaml_read_the_same(monkeypatch):
    texts = [path.read_text(encoding="utf-8") for path in FILES] + ["a: 1e-7\nb: '1e-7'\nc: |\n  x\n  y\n"]
    assert len(texts) > 10
    read = [parse_yaml(text, PLACE) for text in texts]
    monkeypatch.setattr(yaml_file, "_FAST_LOADER", yaml.SafeLoader)
    assert [parse_yaml(text, PLACE) for text in texts] == read


@pytest.mark.parametrize("text", ["\n".join(" " * depth + "a:" for depth in range(1500)), "a: \ud800"])
def test_nesting_without_end_and_what_is_no_text_are_refused(text):
    with pytest.raises(InputError, match="is not valid YAML"):
        parse_yaml(text, PLACE)

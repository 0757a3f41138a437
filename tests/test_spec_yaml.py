"""Kernel specs from YAML: what is read, and what is refused with file, line, key and nearest valid choice."""

import dataclasses
import pickle
from pathlib import Path

import pytest

from autotune.config import Config, value_text
from autotune.errors import InputError
from autotune.expressions import Expression
from autotune.gpu import GpuSpec
from autotune.spec.kernel_spec import (
    ArrayArgument,
    Parameter,
    PitchArgument,
    Rule,
    ScalarArgument,
    SizeArgument,
)
from autotune.spec.load import GPU_NAMES, list_kernels, load_spec, read_spec, space_hash

PROJECT = Path(__file__).parent / "data" / "project"
TRANSPOSE = PROJECT / "configs" / "kernels" / "transpose.yaml"


@pytest.fixture
def write(tmp_path):
    """Writes the transpose kernel with one text replaced by another, or with lines added, and reads it."""

    def write(old="", new="", more=""):
        text = TRANSPOSE.read_text()
        assert old in text
        path = tmp_path / "k.yaml"
        path.write_text(text.replace(old, new, 1) + more)
        return read_spec(path)

    return write


def test_reads_the_shipped_kernel():
    spec = load_spec("sgemm")
    assert spec.name == "sgemm"
    assert spec.parameter_names[:4] == ("KIND", "BM", "BN", "BK")
    assert spec.defaults["REGDB"] is True
    assert spec.gpu_defaults["t4"] == {"LOAD": "prefetch", "STAGES": 2}
    assert spec.constraints[0].because == "whole warp tiles cover the block tile"
    assert spec.constraints[0].where.startswith("configs/kernels/sgemm.yaml:")
    assert spec.arguments[0] == SizeArgument("M")
    assert spec.arguments[3] == ScalarArgument("alpha", "float32", Expression("1.0"))
    assert spec.arguments[5] == PitchArgument("lda")
    assert spec.arrays[0] == ArrayArgument(
        "A", "in", (Expression("M"), Expression("K")), "float32", "lda", "align_a", "trans_a"
    )
    assert spec.launch.block == (Expression("threads"),)
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_a_project_folder_adds_kernels(tmp_path):
    assert {"sgemm", "transpose", "ladder/naive"} <= set(list_kernels([PROJECT]))
    spec = load_spec("transpose", [PROJECT])
    assert spec.folders == (PROJECT,)
    assert load_spec(str(TRANSPOSE)).folders == (PROJECT,)
    alone = tmp_path / "mine.yaml"
    alone.write_text(TRANSPOSE.read_text())
    assert load_spec(str(alone), [PROJECT]).folders == (tmp_path, PROJECT)


def test_unknown_kernels_name_the_nearest():
    with pytest.raises(InputError, match=r"no kernel 'transpos' .nearest: transpose"):
        load_spec("transpos", [PROJECT])
    with pytest.raises(InputError, match="cannot be read"):
        load_spec("nowhere/k.yaml")


def test_a_kernel_is_named_as_its_file(tmp_path):
    folder = tmp_path / "configs" / "kernels"
    folder.mkdir(parents=True)
    (folder / "other.yaml").write_text(TRANSPOSE.read_text())
    with pytest.raises(
        InputError, match=r"kernel: must be the name of its file, got 'transpose' .nearest: other"
    ):
        load_spec("other", [tmp_path])


def test_gpu_names_are_those_of_the_gpu():
    numbers = {field.name: 1 for field in dataclasses.fields(GpuSpec) if field.default is dataclasses.MISSING}
    gpu = GpuSpec(**{**numbers, "table": "x", "name": "X", "compute_capability": (8, 6)})
    assert set(GPU_NAMES) == set(gpu.names())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("unpromising:", "unpromissing:", ":28: unpromissing: unknown key (nearest: unpromising)"),
        ("because: a block", "becuase: a block", "constraints.1.becuase: unknown key (nearest: because)"),
        ("kernel: transpose", "", ": kernel: is required"),
        ("kernel: transpose", "kernel: 3", ":2: kernel: must be text, got 3"),
        ("sizes: [M, N]", "sizes: []", ":7: problem.sizes: must not be empty, got []"),
        ("sizes: [M, N]", "sizes: M", ":7: problem.sizes: must be a list, got 'M'"),
        ("sizes: [M, N]", "sizes: [M, 3]", "problem.sizes.1: must be text, got 3"),
        (
            "dtype: float32",
            "dtype: float23",
            ":8: problem.dtype: must be an element type, got 'float23' (nearest: float32)",
        ),
        ("bytes: 8*M*N", "bytes: 8*M*K", ":10: problem.bytes: unknown name 'K' in '8*M*K' (nearest: M, N)"),
        ("[1, 2, 4, 8, 16]", "[]", ":14: parameters.ROWS.values: must not be empty, got []"),
        (
            "[1, 2, 4, 8, 16]",
            "[1, 2, 4, 8, 8]",
            "parameters.ROWS.values.4: values must differ in writing, got 8 twice",
        ),
        ("[1, 2, 4, 8, 16]", "[1, '1']", "got 1 twice"),
        ("[1, 2, 4, 8, 16]", "[8, ~]", "parameters.ROWS.values.1: a value is a number"),
        ("[1, 2, 4, 8, 16]", "[8, a b]", "text without blank"),
        ("[1, 2, 4, 8, 16]", "[8, {a: 1}]", "a value is a number"),
        (
            "UNROLL: [false, true]",
            "UNROLL: [no, yes]",
            ":16: parameters.UNROLL.0: a boolean is true or false",
        ),
        ("UNROLL: [false, true]", "UNROLL: true", "parameters.UNROLL: must be a mapping, got True"),
        ("UNROLL: [false, true]", "UNROLL: {doc: x}", "parameters.UNROLL: needs either values or range"),
        ("UNROLL: [false, true]", "TILE: [1]", ":16: parameters.TILE: a key stands once"),
        (
            "UNROLL: [false, true]",
            "2X: [1]",
            "parameters.2X: a name is made of letters, digits and _, got '2X' (nearest: X)",
        ),
        ("UNROLL: [false, true]", "if: [1]", "a name must not be a word of the language, got 'if'"),
        ("UNROLL: [false, true]", "M: [1]", "parameters.M: the name 'M' is taken by problem.sizes"),
        ("UNROLL: [false, true]", "sm_count: [1]", "the name 'sm_count' is taken by the GPU"),
        ("UNROLL: [false, true]", "min: [1]", "the name 'min' is taken by a function"),
        (
            "PAD: 1, UNROLL",
            "PAD: 2, UNROLL",
            ":18: defaults.PAD: must be one of the values of PAD, got 2 (nearest: 1)",
        ),
        ("PAD: 1, UNROLL", "PAD: true, UNROLL", "defaults.PAD: must be one of the values of PAD, got True"),
        ("PAD: 1, UNROLL", "PAD: 1.0, UNROLL", "defaults.PAD: must be one of the values of PAD, got 1.0"),
        ("PAD: 1, UNROLL", "PADD: 1, UNROLL", "defaults.PADD: unknown parameter 'PADD' (nearest: PAD)"),
        (
            "TILE * ROWS",
            "TILE * ROW",
            ":21: derived.threads: unknown name 'ROW' in 'TILE * ROW' (nearest: ROWS)",
        ),
        ("TILE * ROWS", "TILE * M", "derived.threads: unknown name 'M'"),
        ("TILE * ROWS", "TILE * smem_bytes", "derived.threads: unknown name 'smem_bytes'"),
        ("TILE % ROWS == 0", "TILE % ROWS = 0", ":25: constraints.0.rule: must be an arithmetic expression"),
        ("TILE % ROWS == 0", "TILE.x == 0", "constraints.0.rule: 'TILE.x' is not part of the arithmetic"),
        (
            "TILE % ROWS == 0",
            "TILE % ROWS",
            ":25: constraints.0.rule: a rule is true or false, got the number",
        ),
        ("TILE % ROWS == 0", "GUARD", "constraints.0.rule: unknown name 'GUARD'"),
        ("TILE % ROWS == 0", "time_ns > 0", "constraints.0.rule: unknown name 'time_ns'"),
        (
            "block: [TILE, ROWS]",
            "block: [1, 1, 1, 1]",
            "launch.block: must have at most 3 items, got [1, 1, 1, 1]",
        ),
        ("block: [TILE, ROWS]", "block: []", "launch.block: must not be empty"),
        (
            "block: [TILE, ROWS]",
            "block: [max(TILE, ROWS)]",
            "(nearest: quotes around an expression that has a comma)",
        ),
        ("{in: A,", "{inn: A,", ":40: arguments.0: must have one of the keys in, out, inout"),
        ("{in: A, shape: [M, N]}", "{in: A}", "arguments.0.shape: is required"),
        ("{in: A, shape: [M, N]}", "{in: A, shape: [M, TILE]}", "arguments.0.shape.1: unknown name 'TILE'"),
        (
            "{in: A, shape: [M, N]}",
            "{in: A, shape: [M, N], align: x}",
            "arguments.0.align: must be a class of the problem",
        ),
        ("{in: A, shape: [M, N]}", "{in: A, shape: [M, N], shpae: 1}", "unknown key (nearest: shape)"),
        (
            "{in: A, shape: [M, N]}",
            "{in: B, shape: [M, N]}",
            ":41: arguments.1: an argument stands once, got 'B' again",
        ),
        ("{out: B,", "{in: B,", "arguments: at least one array must be out or inout"),
        ("- {size: N}", "- {size: O}", "arguments.3.size: must be a size of the problem, got 'O'"),
        ("- {size: N}", "- {pitch: ldx}", "arguments.3.pitch: must be the pitch of an array, got 'ldx'"),
        ("- {size: N}", "- {scalar: s, value: TILE}", "arguments.3.value: unknown name 'TILE'"),
        ("reference: transpose", "reference: [transpose]", "reference: must be text"),
        (
            "bytes / time_ns",
            "bytes / time_ms",
            "metrics.gbytes_per_s: unknown name 'time_ms' in 'bytes / time_ms' (nearest: time_ns)",
        ),
        ("address: lane % TILE", "address: lanes % TILE", "shared_accesses.1.address: unknown name 'lanes'"),
    ],
)
def test_T58_mistakes_stop_with_file_line_key_and_nearest(write, old, new, message):
    with pytest.raises(InputError) as refused:
        write(old, new)
    text = str(refused.value)
    assert "k.yaml:" in text
    assert message in text


def test_the_first_mistake_of_the_file_is_told(write):
    with pytest.raises(InputError, match="sizes: must be a list"):
        write("sizes: [M, N]", "sizes: M", "cost: 3\n")


@pytest.mark.parametrize("text", ["", "3", "- 1", "kernel"])
def test_files_of_another_kind(tmp_path, text):
    (tmp_path / "k.yaml").write_text(text)
    with pytest.raises(InputError, match="must be a mapping with the keys of a kernel spec"):
        read_spec(tmp_path / "k.yaml")


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("{range: [8, 256], times: 2}", (8, 16, 32, 64, 128, 256)),
        ("{range: [0.8, 1.0], step: 0.1}", (0.8, 0.9, 1.0)),
        ("{range: [0.1, 0.7], step: 0.2, doc: x}", (0.1, 0.3, 0.5, 0.7)),
        ("{range: [0, 9], step: 3}", (0, 3, 6, 9)),
        ("{range: [-1, 1], step: 1}", (-1, 0, 1)),
        ("{range: [5, 5], step: 1}", (5,)),
        ("{range: [1, 8.0], times: 2}", (1.0, 2.0, 4.0, 8.0)),
        ("[true, z, 1, 0.5, [8, 4]]", (True, "z", 1, 0.5, (8, 4))),
        ("{values: [3, 1, 2]}", (3, 1, 2)),
    ],
)
def test_values_of_a_parameter(write, text, values):
    spec = write("PAD: {values: [0, 1], ", f"EXTRA: {text}\n  PAD: {{values: [0, 1], ")
    (own,) = (parameter for parameter in spec.parameters if parameter.name == "EXTRA")
    assert [(type(value), value) for value in own.values] == [(type(value), value) for value in values]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "{range: [0.8, 1.05], step: 0.1}",
            "must end on one of its own steps, got 1.05 (nearest: 1.0 or 1.1)",
        ),
        ("{range: [8, 100], times: 2}", "(nearest: 64 or 128)"),
        ("{range: [8, 4], step: 1}", "must grow"),
        ("{range: [8, 64], times: 1}", "must grow"),
        ("{range: [0, 64], times: 2}", "must grow"),
        ("{range: [8, 64], step: -8}", "must grow"),
        ("{range: [8, 64], step: 0}", "must grow"),
        ("{range: [8, 64]}", "goes with either times or step"),
        ("{range: [8, 64], times: 2, step: 8}", "goes with either times or step"),
        ("{values: [8], step: 8}", "goes with either times or step"),
        ("{range: [8], step: 8}", "parameters.EXTRA.range: must have at least 2 items, got [8]"),
        ("{range: [a, b], step: 8}", "EXTRA.range.0"),
        ("{range: [1, 1000000], step: 1}", "at most 10000 values"),
    ],
)
def test_ranges_that_are_refused(write, text, message):
    with pytest.raises(InputError) as refused:
        write("PAD: {values: [0, 1], ", f"EXTRA: {text}\n  PAD: {{values: [0, 1], ")
    assert message in str(refused.value)


def test_T48_values_keep_their_type_and_text(write):
    extra = """F: {range: [0.8, 1.0], step: 0.1}
  P: {range: [8, 256], times: 2}
  B: [true, false]
  S: [fast, exact]
  T: [[8, 4], [4, 8]]
  PAD: {values: [0, 1], """
    with pytest.raises(InputError, match="taken by"):
        write("PAD: {values: [0, 1], ", extra.replace("F:", "M:"))
    spec = write("PAD: {values: [0, 1], ", extra.replace("B:", "BB:"))
    from autotune.space.search_space import SearchSpace

    parameters = [parameter for parameter in spec.parameters if parameter.name in ("F", "P", "BB", "S", "T")]
    configs = list(SearchSpace(parameters, [], {}, {}))
    assert len(configs) == 3 * 6 * 2 * 2 * 2
    for parameter in parameters:
        reached = {value_text(config[parameter.name]) for config in configs}
        assert reached == {value_text(value) for value in parameter.values}
    for config in configs:
        again = Config.from_json(config.to_json())
        assert again == config
        assert [(type(value), value_text(value)) for value in again.values()] == [
            (type(value), value_text(value)) for value in config.values()
        ]
    assert "16" in {value_text(config["P"]) for config in configs}


def test_missing_defaults_are_the_first_values(write):
    assert write("PAD: 1, UNROLL: true", "PAD: 1").defaults == {
        "TILE": 32,
        "ROWS": 8,
        "PAD": 1,
        "UNROLL": False,
    }


def test_constraints_may_use_sizes(write):
    spec = write("TILE % ROWS == 0", "M % TILE == 0")
    assert spec.constraints[0].rule.names == {"M", "TILE"}


def test_space_hash_follows_the_space_alone(write):
    base = space_hash(load_spec(str(TRANSPOSE)))
    assert space_hash(write("TILE % ROWS == 0", "TILE%ROWS  ==0")) == base
    assert space_hash(write("# B = A", "# b = a")) == base
    assert space_hash(write("reference: transpose", "reference: copy")) == base
    changed = [
        write("TILE % ROWS == 0", "TILE % ROWS == 1"),
        write("[1, 2, 4, 8, 16]", "[1, 2, 4, 8]"),
        write("[false, true]", "[true, false]"),
        write("TILE * ROWS", "ROWS * TILE"),
    ]
    assert len({base, *map(space_hash, changed)}) == 5


def test_a_spec_built_in_python_equals_the_one_from_yaml(write):
    spec = load_spec(str(TRANSPOSE))
    built = dataclasses.replace(
        spec,
        parameters=(
            Parameter("TILE", (8, 16, 32, 64), "rows and columns of the tile that a block moves"),
            Parameter("ROWS", (1, 2, 4, 8, 16), "rows of the tile that a block's threads cover at once"),
            Parameter("PAD", (0, 1), "floats added to each row of the tile in shared memory"),
            Parameter("UNROLL", (False, True)),
        ),
        constraints=tuple(
            Rule(Expression(rule.rule.text), rule.because, rule.where) for rule in spec.constraints
        ),
    )
    assert built == spec
    assert space_hash(built) == space_hash(spec)

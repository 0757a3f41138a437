"""Kernel specs from YAML: every key, name and value checked, with file and line in each message."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune import paths
from autotune.config import Value, value_text
from autotune.errors import InputError, nearest_name
from autotune.expressions import Expression
from autotune.spec.extends import read_extended
from autotune.spec.kernel_spec import (
    Argument,
    ArrayArgument,
    KernelSpec,
    LaunchSpec,
    Parameter,
    PitchArgument,
    ProblemClass,
    ProblemSpec,
    Rule,
    ScalarArgument,
    ScratchArgument,
    SharedAccess,
    SizeArgument,
    Start,
    StrideArgument,
)
from autotune.spec.names import GPU_NAMES, METRIC_NAMES, RESERVED, check_identifier, check_kernel_name
from autotune.spec.shape import (
    ParameterShape,
    PitchShape,
    RuleShape,
    ScalarShape,
    ScratchShape,
    SizeShape,
    SpecShape,
    StrideShape,
    validated,
)
from autotune.spec.values import listed_values, one_of, range_values
from autotune.spec.yaml_file import Key, YamlFile, read_yaml

DTYPES = (
    "float16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
)
"""Element types of arguments, as NumPy names them."""


def load_spec(name_or_path: str, folders: Sequence[Path] = ()) -> KernelSpec:
    """The kernel of this name, from the first folder that has it; or the kernel in a YAML file.

    The project folder that a file belongs to comes first when its template is looked up. Raises InputError.
    """
    text = str(name_or_path)
    if text.endswith((".yaml", ".yml")):
        path = Path(text).expanduser()
        return read_spec(path, (_project_folder(path), *map(Path, folders)))
    known = list_kernels(folders)
    if text not in known:
        raise InputError(f"no kernel {text!r}", key="kernel", nearest=nearest_name(text, known))
    path = paths.find("configs", f"kernels/{text}.yaml", folders)
    spec = read_spec(path, folders)
    if spec.name != text:
        file = read_yaml(path)
        raise file.error(("kernel",), f"must be the name of its file, got {spec.name!r}", text)
    return spec


def list_kernels(folders: Sequence[Path] = ()) -> list[str]:
    """Names of all the kernels that can be loaded, sorted; those in a subfolder are called `folder/name`."""
    roots = [Path(folder) / "configs" / "kernels" for folder in folders]
    roots.append(paths.shipped("configs") / "kernels")
    found = {path.relative_to(root).with_suffix("") for root in roots for path in root.rglob("*.yaml")}
    return sorted((path.as_posix() for path in found), key=lambda name: ("/" in name, name))


def read_spec(path: Path, folders: Sequence[Path] = ()) -> KernelSpec:
    """The kernel in one YAML file, with what it takes over from the kernel that it extends."""
    file = read_extended(path, folders)
    return _Builder(file, validated(file)).spec(tuple(map(Path, folders)))


def space_hash(spec: KernelSpec) -> str:
    """Hash of the parameters, their values and the rules over them; spacing and comments do not change it."""
    parts = [
        [[parameter.name, list(map(value_text, parameter.values))] for parameter in spec.parameters],
        [[name, ast.unparse(expression.tree)] for name, expression in spec.derived.items()],
        [ast.unparse(rule.rule.tree) for rule in spec.constraints],
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _project_folder(path: Path) -> Path:
    folder = path.absolute().parent
    above = (folder, folder.parent, folder.parent.parent)
    return next((parent.parent for parent in above if parent.name == "configs"), folder)


@dataclass(frozen=True)
class _Builder:
    file: YamlFile
    shape: SpecShape

    def spec(self, folders: tuple[Path, ...]) -> KernelSpec:
        shape = self.shape
        self.check_names()
        problem = self.problem()
        parameters = tuple(self.parameter(name, entry) for name, entry in shape.parameters.items())
        own = [parameter.name for parameter in parameters]
        of_problem = [*problem.sizes, *(problem_class.name for problem_class in problem.classes)]
        arithmetic = [*own, *GPU_NAMES, *shape.derived]
        everywhere = [*arithmetic, *of_problem]
        of_launch = [*everywhere, *shape.variants, *shape.constants]
        return KernelSpec(
            name=self.kernel_name(shape.kernel),
            template=shape.template,
            entry=shape.entry,
            problem=problem,
            parameters=parameters,
            defaults={parameter.name: parameter.values[0] for parameter in parameters}
            | self.settings(("defaults",), shape.defaults, parameters),
            gpu_defaults={
                gpu: self.settings(("gpu_defaults", gpu), settings, parameters)
                for gpu, settings in shape.gpu_defaults.items()
            },
            derived=self.expressions("derived", shape.derived, [*own, *GPU_NAMES], in_order=True),
            constraints=self.rules("constraints", shape.constraints, everywhere),
            unpromising=self.rules("unpromising", shape.unpromising, everywhere),
            constants=shape.constants,
            variants=self.expressions("variants", shape.variants, [*everywhere, *shape.constants]),
            launch=self.launch(of_launch),
            arguments=self.arguments(problem, of_launch),
            starts=self.starts(parameters, [*of_problem, *GPU_NAMES]),
            reference=shape.reference,
            metrics=self.expressions("metrics", shape.metrics, [*METRIC_NAMES, *of_problem]),
            shared_accesses=tuple(
                SharedAccess(
                    access.name,
                    self.expression(
                        ("shared_accesses", index, "address"), access.address, [*arithmetic, "lane"]
                    ),
                    self.expression(("shared_accesses", index, "width"), access.width, arithmetic),
                )
                for index, access in enumerate(shape.shared_accesses)
            ),
            cost=self.expressions("cost", shape.cost, of_launch),
            source_file=self.file.path,
            folders=folders,
        )

    # --- names

    def check_names(self) -> None:
        """One name means one thing, whether parameter, derived, size, class, variant or a name of the GPU."""
        shape = self.shape
        taken = dict(RESERVED)
        sections: list[tuple[Key, Iterable[str]]] = [
            (("problem", "classes"), shape.problem.classes),
            (("parameters",), shape.parameters),
            (("derived",), shape.derived),
            (("variants",), shape.variants),
            (("constants",), shape.constants),
        ]
        keys: list[tuple[Key, str]] = [
            (("problem", "sizes", index), name) for index, name in enumerate(shape.problem.sizes)
        ]
        keys += [((*section, name), name) for section, names in sections for name in names]
        for key, name in keys:
            self.identifier(key, name)
            if name in taken:
                raise self.file.error(key, f"the name {name!r} is taken by {taken[name]}")
            taken[name] = str(key[0]) if len(key) < 3 else f"problem.{key[1]}"

    def kernel_name(self, name: str) -> str:
        try:
            check_kernel_name(name)
        except InputError as error:
            raise self.file.error(("kernel",), error.rule, error.nearest) from None
        return name

    def identifier(self, key: Key, name: str) -> str:
        try:
            check_identifier(name)
        except InputError as error:
            raise self.file.error(key, error.rule, error.nearest) from None
        return name

    def choice(self, key: Key, name: str, choices: Sequence[str], what: str) -> str:
        if name not in choices:
            raise self.file.error(key, f"must be {what}, got {name!r}", nearest_name(name, choices))
        return name

    # --- expressions

    def expression(self, key: Key, data: str | int | float, names: Iterable[str]) -> Expression:
        text = data if isinstance(data, str) else repr(data)
        try:
            expression = Expression.parse(text, self.file.where(key))
        except InputError as error:
            split = isinstance(key[-1], int) and text.count("(") != text.count(")")
            hint = "quotes around an expression that has a comma" if split else error.nearest
            raise self.file.error(key, error.rule, hint) from None
        known = list(names)
        for name in sorted(expression.names - set(known)):
            raise self.file.error(key, f"unknown name {name!r} in {text!r}", nearest_name(name, known))
        return expression

    def expressions(
        self, section: str, entries: Mapping[str, str], names: Sequence[str], in_order: bool = False
    ) -> dict[str, Expression]:
        """The section's expressions; with `in_order` each may use the ones before it."""
        result: dict[str, Expression] = {}
        for name, text in entries.items():
            result[name] = self.expression((section, name), text, [*names, *(result if in_order else ())])
        return result

    def rules(self, section: str, entries: Sequence[RuleShape], names: Sequence[str]) -> tuple[Rule, ...]:
        found = []
        for index, entry in enumerate(entries):
            key: Key = (section, index, "rule")
            expression = self.expression(key, entry.rule, names)
            if isinstance(expression.tree, ast.BinOp):
                rule = f"a rule is true or false, got the number {entry.rule!r}: compare it with something"
                raise self.file.error(key, rule)
            found.append(Rule(expression, entry.because, self.file.where((section, index))))
        return tuple(found)

    def launch(self, names: Sequence[str]) -> LaunchSpec:
        grid, block = (
            tuple(self.expression(("launch", part, i), text, names) for i, text in enumerate(texts))
            for part, texts in (("grid", self.shape.launch.grid), ("block", self.shape.launch.block))
        )
        return LaunchSpec(grid, block, self.expression(("launch", "smem"), self.shape.launch.smem, names))

    # --- problem and arguments

    def problem(self) -> ProblemSpec:
        shape = self.shape.problem
        names = [*shape.sizes, *self.named_by_arrays("pitch"), *self.named_by_arrays("stride")]
        classes: list[ProblemClass] = []
        for name, entry in shape.classes.items():
            key: Key = ("problem", "classes", name)
            values = listed_values(self.file, (*key, "values"), entry.values)
            classes.append(
                ProblemClass(name, values, self.expression((*key, "default"), entry.default, names))
            )
            names.append(name)
        of_call = [*shape.sizes, *shape.classes]
        return ProblemSpec(
            tuple(shape.sizes),
            self.choice(("problem", "dtype"), shape.dtype, DTYPES, "an element type"),
            self.expression(("problem", "flops"), shape.flops, of_call),
            self.expression(("problem", "bytes"), shape.bytes, of_call),
            tuple(classes),
        )

    def arguments(self, problem: ProblemSpec, of_launch: Sequence[str]) -> tuple[Argument, ...]:
        classes = [problem_class.name for problem_class in problem.classes]
        pitches, strides = self.named_by_arrays("pitch"), self.named_by_arrays("stride")
        result: list[Argument] = []
        for index, entry in enumerate(self.shape.arguments):
            key: Key = ("arguments", index)
            dtype = getattr(entry, "dtype", None) or problem.dtype
            self.choice((*key, "dtype"), dtype, DTYPES, "an element type")
            if isinstance(entry, SizeShape):
                self.choice((*key, "size"), entry.name, problem.sizes, "a size of the problem")
                result.append(SizeArgument(entry.name))
            elif isinstance(entry, PitchShape):
                self.choice((*key, "pitch"), entry.name, pitches, "the pitch of an array")
                result.append(PitchArgument(entry.name))
            elif isinstance(entry, StrideShape):
                self.choice((*key, "stride"), entry.name, strides, "the stride of an array")
                result.append(StrideArgument(entry.name))
            elif isinstance(entry, ScalarShape):
                value = self.expression((*key, "value"), entry.value, [*problem.sizes, *classes])
                result.append(ScalarArgument(self.identifier(key, entry.name), dtype, value))
            elif isinstance(entry, ScratchShape):
                size = self.expression((*key, "bytes"), entry.bytes, of_launch)
                result.append(ScratchArgument(self.identifier(key, entry.name), size))
            else:
                role = next(
                    role for role in ("in", "out", "inout") if role in self.file.data["arguments"][index]
                )
                shape = tuple(
                    self.expression(
                        (*key, "shape", i), size, [*problem.sizes, *(() if entry.pitch else classes)]
                    )
                    for i, size in enumerate(entry.shape)
                )
                if entry.align:
                    self.choice((*key, "align"), entry.align, classes, "a class of the problem")
                if entry.transposed:
                    self.check_transposed((*key, "transposed"), entry.transposed, problem, len(shape))
                if entry.stride and (len(shape) != 3 or not entry.pitch):
                    raise self.file.error((*key, "stride"), "goes with three dimensions and a pitch")
                name = self.identifier((*key, role), entry.name)
                result.append(
                    ArrayArgument(
                        name,
                        role,
                        shape,
                        dtype,
                        entry.pitch or "",
                        entry.align or "",
                        entry.transposed or "",
                        entry.stride or "",
                    )
                )
        names = [argument.name for argument in result]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise self.file.error(("arguments", index), f"an argument stands once, got {name!r} again")
        if not any(isinstance(argument, ArrayArgument) and argument.role != "in" for argument in result):
            raise self.file.error(("arguments",), "at least one array must be out or inout, got none")
        if sum(isinstance(argument, ScratchArgument) for argument in result) > 1:
            raise self.file.error(("arguments",), "a kernel has at most one scratch argument, got several")
        return tuple(result)

    def named_by_arrays(self, key: str) -> list[str]:
        """The pitches or strides that the arrays name."""
        return [name for entry in self.shape.arguments if (name := getattr(entry, key, None))]

    def check_transposed(self, key: Key, name: str, problem: ProblemSpec, dimensions: int) -> None:
        """Which of two ways an array lies is told by a class with the values n and t, for a plain call n."""
        classes = {problem_class.name: problem_class for problem_class in problem.classes}
        self.choice(key, name, list(classes), "a class of the problem")
        if sorted(map(str, classes[name].values)) != ["n", "t"]:
            raise self.file.error(key, f"{name} must be a class with the values n and t")
        if classes[name].default.names:
            raise self.file.error(
                ("problem", "classes", name, "default"), "must be 'n' or 't', as it decides what pitches are"
            )
        if dimensions < 2:
            raise self.file.error(key, "an array with fewer than two dimensions has no transpose")

    def starts(self, parameters: Sequence[Parameter], names: Sequence[str]) -> tuple[Start, ...]:
        result: list[Start] = []
        for index, entry in enumerate(self.shape.starts):
            key: Key = ("starts", index)
            if entry.name in [start.name for start in result]:
                raise self.file.error((*key, "name"), f"a name stands once, got {entry.name!r} again")
            when = self.expression((*key, "when"), entry.when, names)
            config = self.settings((*key, "config"), entry.config, parameters)
            result.append(Start(entry.name, when, config))
        return tuple(result)

    # --- parameters

    def parameter(self, name: str, shape: ParameterShape) -> Parameter:
        key: Key = ("parameters", name)
        if shape.values is not None:
            return Parameter(name, listed_values(self.file, key, shape.values), shape.doc)
        return Parameter(name, range_values(self.file, (*key, "range"), shape), shape.doc)

    def settings(
        self, key: Key, data: Mapping[str, object], parameters: Sequence[Parameter]
    ) -> dict[str, Value]:
        """Values for some of the parameters, each one that the parameter has."""
        by_name = {parameter.name: parameter for parameter in parameters}
        for name in data:
            if name not in by_name:
                raise self.file.error(
                    (*key, name), f"unknown parameter {name!r}", nearest_name(name, by_name)
                )
        return {
            name: one_of(self.file, (*key, name), data[name], by_name[name])
            for name in by_name
            if name in data
        }

"""The C++ of one call: its signature, the checks of its arguments, and what each compiled variant asks of
it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.config import Config, Value, value_text
from autotune.errors import InputError
from autotune.exporter.cxx import Code, Strings, Translator
from autotune.exporter.embed import KEYWORDS
from autotune.exporter.variants import ClassRule, Row, is_guard
from autotune.expressions import Expression
from autotune.gpu import GpuSpec
from autotune.launch import config_names, item_bytes
from autotune.spec.kernel_spec import (
    Argument,
    ArrayArgument,
    KernelSpec,
    PitchArgument,
    ScalarArgument,
    ScratchArgument,
    SizeArgument,
    StrideArgument,
)

CXX_TYPES = {
    "float16": "__half",
    "bfloat16": "__nv_bfloat16",
    "float32": "float",
    "float64": "double",
    "int8": "signed char",
    "uint8": "unsigned char",
    "int16": "short",
    "uint16": "unsigned short",
    "int32": "int",
    "uint32": "unsigned int",
    "int64": "long long",
    "uint64": "unsigned long long",
    "bool": "bool",
}
TYPE_HEADERS = {"float16": "cuda_fp16.h", "bfloat16": "cuda_bf16.h"}
_LOCALS = frozenset(
    {"call", "stream", "status", "exact", "distance", "variant", "launch", "function", "grid", "block"}
    | {"passed", "choice", "kernel", "workspace", "own"}
)
"""Names that the exported functions use themselves."""


@dataclass(frozen=True)
class CallRules:
    """How the exported functions see a call of one kernel; all texts are C++."""

    spec: KernelSpec
    classes: tuple[ClassRule, ...]
    strings: Strings

    @property
    def members(self) -> list[str]:
        """Sizes, pitches, strides and classes, in the order in which they are computed."""
        told = [rule.name for rule in self.classes if rule.kind != "fixed"]
        return [cxx_name(name) for name in (*self.spec.problem.sizes, *self._distances(), *told)]

    @property
    def enumerations(self) -> list[tuple[str, list[str]]]:
        """Types of the arguments that tell classes, with their values."""
        return [
            (self.enumeration(rule), [cxx_name(value_text(value)) for value in rule.served])
            for rule in self._told
        ]

    def enumeration(self, rule: ClassRule) -> str:
        """The type of the argument that tells a class."""
        return cxx_name(f"{self.spec.name}_{rule.name}")

    @property
    def declared(self) -> list[tuple[str, str]]:
        """Type and name of each parameter: told classes, then the kernel's arguments without scratch memory."""
        told = [(self.enumeration(rule), cxx_name(rule.name)) for rule in self._told]
        return told + [(_cxx_type(each), cxx_name(each.name)) for each in self._given]

    @property
    def parameters(self) -> str:
        """The parameter list."""
        return ", ".join(f"{kind} {name}" for kind, name in self.declared)

    @property
    def names(self) -> list[str]:
        """The parameters' names."""
        return [name for _, name in self.declared]

    @property
    def types(self) -> list[str]:
        """Types of all that the kernel gets; `autotune_scratch` stands for what scratch memory is made of."""
        return [
            "autotune_scratch*" if isinstance(each, ScratchArgument) else _cxx_type(each)
            for each in self.spec.arguments
        ]

    @property
    def passed(self) -> list[str]:
        """Names of the variables with what the kernel gets."""
        return [
            "workspace" if isinstance(each, ScratchArgument) else cxx_name(each.name)
            for each in self.spec.arguments
        ]

    @property
    def _given(self) -> list[Argument]:
        return [each for each in self.spec.arguments if not isinstance(each, ScratchArgument)]

    @property
    def _told(self) -> list[ClassRule]:
        return [rule for rule in self.classes if rule.kind == "told"]

    @property
    def scalars(self) -> list[str]:
        """The names of those passed by value that the checks may not need."""
        return [cxx_name(a.name) for a in self.spec.arguments if isinstance(a, ScalarArgument)]

    @property
    def type_headers(self) -> list[str]:
        """Headers that the argument types need."""
        dtypes = {a.dtype for a in self.spec.arguments if isinstance(a, ArrayArgument | ScalarArgument)}
        return sorted(TYPE_HEADERS[dtype] for dtype in dtypes if dtype in TYPE_HEADERS)

    def checks(self) -> list[str]:
        """Statements that refuse a call without meaning and fill in the rest of `call`."""
        lines = [line for rule in self._told for line in self._told_lines(rule)]
        lines += [*self._size_checks(), *self._array_checks()]
        for rule in self.classes:
            lines += self._class_lines(rule)
        return lines

    def told_numbers(self, values: Sequence[Value]) -> list[str]:
        """Values of the told classes as the numbers that stand for them in `call`."""
        return [self._number(value) for value in values]

    @property
    def told_members(self) -> list[str]:
        """The told classes in `call`."""
        return [cxx_name(rule.name) for rule in self._told]

    def condition(self, row: Row, gpu: GpuSpec, config: Config) -> str:
        """When a variant may serve a call."""
        parts = []
        for rule in self.classes:
            value = dict(row.problem.classes)[rule.name]
            if rule.kind == "alignment":
                if value != _least_alignment(rule):
                    parts.append(f"call.{cxx_name(rule.name)} >= {value}")
            elif rule.kind != "fixed":
                parts.append(f"call.{cxx_name(rule.name)} == {self._number(value)}")
        translator = self._row_translator(row, gpu, config)
        for name, value in row.variants:
            expression = self.spec.variants[name]
            if expression.names & set(self.spec.problem.sizes) and not is_guard(name, value):
                parts.append(_equals(translator.translate(expression), value, self.strings))
        return " && ".join(parts) or "true"

    def launch(self, row: Row, gpu: GpuSpec, config: Config) -> tuple[list[str], list[str], str]:
        """Grid, block and dynamic shared memory in bytes."""
        translator = self._row_translator(row, gpu, config)
        grid, block = (
            [_integer(translator, expression) for expression in expressions] + ["1"] * (3 - len(expressions))
            for expressions in (self.spec.launch.grid, self.spec.launch.block)
        )
        return grid, block, _integer(translator, self.spec.launch.smem)

    def scratch(self, row: Row, gpu: GpuSpec, config: Config) -> str:
        """Bytes of scratch memory."""
        if self.spec.scratch is None:
            return "0"
        return _integer(self._row_translator(row, gpu, config), self.spec.scratch.bytes)

    def _distances(self) -> list[str]:
        arrays = self.spec.arrays
        pitches = [array.pitch for array in arrays if array.pitch]
        return list(dict.fromkeys([*pitches, *(array.stride for array in arrays if array.stride)]))

    def _size_checks(self) -> list[str]:
        numbers = (SizeArgument, PitchArgument, StrideArgument)
        passed = {a.name for a in self.spec.arguments if isinstance(a, numbers)}
        sizes, distances = self.spec.problem.sizes, self._distances()
        for name in (*sizes, *distances):
            if name not in passed:
                rule = f"an export chooses by {name!r}, so it has to be an argument of the kernel"
                raise InputError(rule, str(self.spec.source_file or ""), "arguments", f"add {name}")
        lines = [f"call.{cxx_name(name)} = {cxx_name(name)};" for name in (*sizes, *distances)]
        negative = " || ".join(f"call.{cxx_name(name)} < 0" for name in sizes)
        lines.append(f"if ({negative}) return cudaErrorInvalidValue;")
        translator = self._call_translator({})
        for array in self.spec.arrays:
            if array.pitch and array.shape:
                lines += self._distance_checks(array, [_integer(translator, size) for size in array.shape])
        return lines

    def _distance_checks(self, array: ArrayArgument, shape: list[str]) -> list[str]:
        pitch = f"call.{cxx_name(array.pitch)}"
        rows, width = ([shape[-2]] if len(shape) > 1 else ["1"])[0], shape[-1]
        rule = next((rule for rule in self.classes if rule.name == array.transposed), None)
        if rule is not None and rule.kind == "told":
            turned = f"call.{cxx_name(rule.name)} == {self._number('t')}"
            rows, width = f"({turned} ? {width} : {rows})", f"({turned} ? {rows} : {width})"
        elif rule is not None and rule.served == ("t",):
            rows, width = width, rows
        lines = [f"if ({pitch} < {width}) return cudaErrorInvalidValue;"]
        if array.stride:
            stride = f"call.{cxx_name(array.stride)}"
            # Inputs may be the same matrix again; results may not lie over each other.
            least = "0" if array.role == "in" else f"({shape[0]} > 1 ? {rows} * {pitch} : 0)"
            lines.append(f"if ({stride} < {least}) return cudaErrorInvalidValue;")
        return lines

    def _array_checks(self) -> list[str]:
        lines = []
        translator = self._call_translator({})
        for array in self.spec.arrays:
            name = cxx_name(array.name)
            filled = " && ".join(f"{_integer(translator, size)} > 0" for size in array.shape) or "true"
            lines.append(f"if ({name} == nullptr && {filled}) return cudaErrorInvalidValue;")
            size = item_bytes(array.dtype)
            if size > 1:
                lines.append(f"if (!autotune_aligned({name}, {size})) return cudaErrorInvalidValue;")
        return lines

    def _class_lines(self, rule: ClassRule) -> list[str]:
        member = f"call.{cxx_name(rule.name)}"
        before = [earlier for earlier in self.classes[: self.classes.index(rule)] if earlier.kind != "fixed"]
        default = self._call_translator({earlier.name: earlier for earlier in before})
        match rule.kind:
            case "alignment":
                code = default.translate(rule.problem_class.default).text
                lines = [f"{member} = {code};"]
                values = sorted((int(str(v)) for v in rule.problem_class.values), reverse=True)
                steps = []
                for value in values:
                    aligned = [
                        f"autotune_aligned({cxx_name(array.name)}, {value * item_bytes(array.dtype)})"
                        for array in rule.arrays
                    ]
                    steps.append(f"{member} >= {value} && {' && '.join(aligned)} ? {value} : ")
                lines.append(f"{member} = {''.join(steps)}0;")
                return [*lines, f"if ({member} == 0) return cudaErrorInvalidValue;"]
            case "scalar":
                argument = next(a for a in self.spec.arguments if a.name == rule.scalar)
                exact = "double" if _cxx_type(argument) == "double" else "float"
                passed = f"static_cast<{exact}>({cxx_name(rule.scalar)})"
                steps = [
                    f"{passed} == {number!r} ? {self._number(value)} : " for value, number in rule.pinned
                ]
                return [f"{member} = {''.join(steps)}{self._number(rule.rest)};"]
            case "computed":
                return [f"{member} = {default.translate(rule.problem_class.default).text};"]
            case _:
                return []

    def _told_lines(self, rule: ClassRule) -> list[str]:
        member, kind, name = f"call.{cxx_name(rule.name)}", self.enumeration(rule), cxx_name(rule.name)
        steps = [
            f"{name} == {kind}::{cxx_name(value_text(value))} ? {self._number(value)} : "
            for value in rule.served
        ]
        return [f"{member} = {''.join(steps)}-1;", f"if ({member} == -1) return cudaErrorInvalidValue;"]

    def _number(self, value: Value) -> str:
        """A class value as the number that stands for it in `call`."""
        match value:
            case bool() | int():
                return str(int(value))
            case str():
                return f"{self.strings.number(value)} /* {value_text(value)} */"
            case _:
                raise InputError(
                    f"a problem class that is chosen by the call is text or whole numbers, got {value!r}"
                )

    def _call_translator(self, earlier: Mapping[str, ClassRule]) -> Translator:
        runtime = {
            name: Code(f"call.{cxx_name(name)}", "int")
            for name in (*self.spec.problem.sizes, *self._distances())
        }
        for name, rule in {**{rule.name: rule for rule in self._told}, **earlier}.items():
            kind = "string" if isinstance(rule.problem_class.values[0], str) else "int"
            runtime[name] = Code(f"call.{cxx_name(name)}", kind)
        fixed = {rule.name: rule.served[0] for rule in self.classes if rule.kind == "fixed"}
        return Translator(fixed, runtime, self.strings)

    def _row_translator(self, row: Row, gpu: GpuSpec, config: Config) -> Translator:
        known = config_names(self.spec, gpu, config, row.problem)
        runtime = {
            name: Code(f"call.{cxx_name(name)}", "int")
            for name in (*self.spec.problem.sizes, *self._distances())
        }
        return Translator(known, runtime, self.strings)


def cxx_name(name: str) -> str:
    """The name as an identifier that clashes with nothing in the exported functions."""
    plain = "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in name)
    plain = f"_{plain}" if plain[:1].isdigit() else plain
    return f"{plain}_" if plain in KEYWORDS or plain in _LOCALS else plain


def _cxx_type(argument: Argument) -> str:
    match argument:
        case ArrayArgument(role=role, dtype=dtype):
            return f"{'const ' if role == 'in' else ''}{_scalar_type(dtype)}*"
        case ScalarArgument(dtype=dtype):
            return _scalar_type(dtype)
        case StrideArgument():
            return "long long"
        case _:
            return "int"


def _scalar_type(dtype: str) -> str:
    if dtype not in CXX_TYPES:
        raise InputError(f"element type must be one of {', '.join(CXX_TYPES)}, got {dtype!r}", key="dtype")
    return CXX_TYPES[dtype]


def _integer(translator: Translator, expression: Expression) -> str:
    code = translator.translate(expression)
    return code.text if code.kind == "int" else f"static_cast<long long>({code.text})"


def _equals(code: Code, value: Value, strings: Strings) -> str:
    match value:
        case bool():
            truth = code.text if code.kind == "bool" else f"({code.text} != 0)"
            if value:
                return truth
            return truth[1:] if truth.startswith("!") else f"!({truth})"
        case str():
            return f"{code.text} == {strings.number(value)} /* {value_text(value)} */"
        case _:
            return f"{code.text} == {value!r}"


def _least_alignment(rule: ClassRule) -> int:
    return min(value for value in rule.problem_class.values if isinstance(value, int))

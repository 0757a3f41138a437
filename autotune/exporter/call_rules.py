"""The C++ of one call: its signature, the checks of its arguments, and what each compiled variant asks of
it."""

from __future__ import annotations

from collections.abc import Mapping
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
    SizeArgument,
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
    | {"passed", "choice", "kernel"}
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
        """Sizes, pitches and classes, in the order in which they are computed."""
        told = [rule.name for rule in self.classes if rule.kind != "fixed"]
        return [cxx_name(name) for name in (*self.spec.problem.sizes, *self._pitches(), *told)]

    @property
    def parameters(self) -> str:
        """The kernel's arguments as a parameter list."""
        return ", ".join(
            f"{_cxx_type(argument)} {cxx_name(argument.name)}" for argument in self.spec.arguments
        )

    @property
    def types(self) -> list[str]:
        """Their types."""
        return [_cxx_type(argument) for argument in self.spec.arguments]

    @property
    def names(self) -> list[str]:
        """Their names."""
        return [cxx_name(argument.name) for argument in self.spec.arguments]

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
        lines = [*self._size_checks(), *self._array_checks()]
        for rule in self.classes:
            lines += self._class_lines(rule)
        return lines

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

    def _pitches(self) -> list[str]:
        return list(dict.fromkeys(array.pitch for array in self.spec.arrays if array.pitch))

    def _size_checks(self) -> list[str]:
        passed = {a.name for a in self.spec.arguments if isinstance(a, SizeArgument | PitchArgument)}
        sizes, pitches = self.spec.problem.sizes, self._pitches()
        for name in (*sizes, *pitches):
            if name not in passed:
                rule = f"an export chooses by {name!r}, so it has to be an argument of the kernel"
                raise InputError(rule, str(self.spec.source_file or ""), "arguments", f"add {name}")
        lines = [f"call.{cxx_name(name)} = {cxx_name(name)};" for name in (*sizes, *pitches)]
        negative = " || ".join(f"call.{cxx_name(name)} < 0" for name in sizes)
        lines.append(f"if ({negative}) return cudaErrorInvalidValue;")
        translator = self._call_translator({})
        for array in self.spec.arrays:
            if array.pitch and array.shape:
                width = _integer(translator, array.shape[-1])
                lines.append(f"if (call.{cxx_name(array.pitch)} < {width}) return cudaErrorInvalidValue;")
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
            for name in (*self.spec.problem.sizes, *self._pitches())
        }
        for name, rule in earlier.items():
            kind = "string" if isinstance(rule.problem_class.values[0], str) else "int"
            runtime[name] = Code(f"call.{cxx_name(name)}", kind)
        return Translator({}, runtime, self.strings)

    def _row_translator(self, row: Row, gpu: GpuSpec, config: Config) -> Translator:
        known = config_names(self.spec, gpu, config, row.problem)
        runtime = {
            name: Code(f"call.{cxx_name(name)}", "int")
            for name in (*self.spec.problem.sizes, *self._pitches())
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

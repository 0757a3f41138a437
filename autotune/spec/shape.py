"""The shape of a kernel's YAML: which keys there are, and what type each has."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from autotune.errors import InputError, nearest_name
from autotune.spec.yaml_file import Key, YamlFile, shortened


class Section(BaseModel):
    """Base of all sections: no key beside those named, no type beside those asked for."""

    model_config = ConfigDict(strict=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            known = [field.alias or name for name, field in cls.model_fields.items()]
            for key in data:
                if key not in known:
                    detail = {"key": key, "nearest": nearest_name(str(key), known)}
                    raise PydanticCustomError("unknown_key", "unknown key", detail)
        return data


def _expression(data: Any) -> Any:
    if isinstance(data, str | int | float) and data != "":
        return data
    raise PydanticCustomError("expression", "must be an expression")


ExpressionText = Annotated[Any, BeforeValidator(_expression)]
Triple = Annotated[list[ExpressionText], Field(min_length=1, max_length=3)]
Text = Annotated[str, Field(min_length=1)]


class ClassShape(Section):
    """One entry of `problem.classes`."""

    values: Annotated[list[Any], Field(min_length=1)]
    default: ExpressionText


class ProblemShape(Section):
    """`problem:`."""

    sizes: Annotated[list[Text], Field(min_length=1)]
    dtype: Text
    flops: ExpressionText
    bytes: ExpressionText
    classes: dict[str, ClassShape] = {}


class ParameterShape(Section):
    """One entry of `parameters:`; a bare list stands for its `values`."""

    values: Annotated[list[Any], Field(min_length=1)] | None = None
    range: Annotated[list[int | float], Field(min_length=2, max_length=2)] | None = None
    times: int | float | None = None
    step: int | float | None = None
    doc: str = ""

    @model_validator(mode="before")
    @classmethod
    def _bare_list(cls, data: Any) -> Any:
        return {"values": data} if isinstance(data, list) else data

    @model_validator(mode="after")
    def _one_way(self) -> ParameterShape:
        if (self.values is None) == (self.range is None):
            raise PydanticCustomError("one_way", "needs either values or range")
        if (self.range is None) != (self.times is None and self.step is None) or (self.times and self.step):
            raise PydanticCustomError("one_way", "a range, and it alone, goes with either times or step")
        return self


class RuleShape(Section):
    """One entry of `constraints:` and `unpromising:`."""

    rule: ExpressionText
    because: Text


class LaunchShape(Section):
    """`launch:`."""

    grid: Triple
    block: Triple
    smem: ExpressionText = 0


class _ArrayShape(Section):
    shape: Annotated[list[ExpressionText], Field(min_length=1)]
    pitch: Text | None = None
    align: Text | None = None
    transposed: Text | None = None
    stride: Text | None = None
    dtype: Text | None = None


class InShape(_ArrayShape):
    """`{in: A, shape: [M, K]}`."""

    name: Text = Field(alias="in")


class OutShape(_ArrayShape):
    """`{out: C, shape: [M, N]}`."""

    name: Text = Field(alias="out")


class InOutShape(_ArrayShape):
    """`{inout: C, shape: [M, N]}`."""

    name: Text = Field(alias="inout")


class ScalarShape(Section):
    """`{scalar: alpha, dtype: float32, value: 1.0}`."""

    name: Text = Field(alias="scalar")
    dtype: Text | None = None
    value: ExpressionText


class SizeShape(Section):
    """`{size: M}`."""

    name: Text = Field(alias="size")


class PitchShape(Section):
    """`{pitch: lda}`."""

    name: Text = Field(alias="pitch")


class StrideShape(Section):
    """`{stride: stride_a}`."""

    name: Text = Field(alias="stride")


class ScratchShape(Section):
    """`{scratch: workspace, bytes: 4 * SPLIT * M * N}`."""

    name: Text = Field(alias="scratch")
    bytes: ExpressionText


ARGUMENT_KINDS = ("in", "out", "inout", "scalar", "size", "pitch", "stride", "scratch")


def _argument_kind(data: Any) -> str | None:
    return next(
        (f"argument:{kind}" for kind in ARGUMENT_KINDS if isinstance(data, dict) and kind in data), None
    )


ArgumentShape = Annotated[
    Annotated[InShape, Tag("argument:in")]
    | Annotated[OutShape, Tag("argument:out")]
    | Annotated[InOutShape, Tag("argument:inout")]
    | Annotated[ScalarShape, Tag("argument:scalar")]
    | Annotated[SizeShape, Tag("argument:size")]
    | Annotated[PitchShape, Tag("argument:pitch")]
    | Annotated[StrideShape, Tag("argument:stride")]
    | Annotated[ScratchShape, Tag("argument:scratch")],
    Discriminator(
        _argument_kind,
        custom_error_type="argument",
        custom_error_message=f"must have one of the keys {', '.join(ARGUMENT_KINDS)}",
    ),
]


class SharedAccessShape(Section):
    """One entry of `shared_accesses:`."""

    name: Text
    address: ExpressionText
    width: ExpressionText = 1


class StartShape(Section):
    """One entry of `starts:`."""

    name: Text
    when: ExpressionText = True
    config: dict[str, Any] = {}


class SpecShape(Section):
    """A whole file."""

    kernel: Text
    template: Text
    entry: Text
    problem: ProblemShape
    parameters: Annotated[dict[str, ParameterShape], Field(min_length=1)]
    defaults: dict[str, Any] = {}
    gpu_defaults: dict[str, dict[str, Any]] = {}
    derived: dict[str, ExpressionText] = {}
    constraints: list[RuleShape] = []
    unpromising: list[RuleShape] = []
    constants: dict[str, str | bool | int | float] = {}
    starts: list[StartShape] = []
    variants: dict[str, ExpressionText] = {}
    launch: LaunchShape
    arguments: Annotated[list[ArgumentShape], Field(min_length=1)]
    reference: Text
    metrics: dict[str, ExpressionText] = {}
    shared_accesses: list[SharedAccessShape] = []
    cost: dict[str, ExpressionText] = {}


def validated(file: YamlFile) -> SpecShape:
    """The file's content, of the right shape; raises InputError about the first fault in the file."""
    if not isinstance(file.data, dict):
        raise file.error((), f"must be a mapping with the keys of a kernel spec, got {shortened(file.data)}")
    try:
        return SpecShape.model_validate(file.data)
    except ValidationError as invalid:
        errors = [_readable(file, dict(error)) for error in invalid.errors(include_url=False)]
    raise min(errors, key=lambda error: int(error.where.rpartition(":")[2]))


_RULES = {
    "missing": "is required",
    "too_short": "must not be empty",
    "string_too_short": "must not be empty",
    "string_type": "must be text",
    "list_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "model_attributes_type": "must be a mapping",
}


def _readable(file: YamlFile, error: dict[str, Any]) -> InputError:
    kind, detail = error["type"], error.get("ctx", {})
    key = _key_in_file(file.data, error["loc"], kind == "missing")
    if kind == "unknown_key":
        return file.error((*key, detail["key"]), "unknown key", detail["nearest"])
    if kind in ("too_short", "too_long") and error["input"]:
        bound = (
            f"at least {detail['min_length']}" if kind == "too_short" else f"at most {detail['max_length']}"
        )
        return file.error(key, f"must have {bound} items, got {shortened(error['input'])}")
    rule = _RULES.get(kind, error["msg"].replace("Input should be", "must be"))
    if kind == "missing":
        return file.error(key, rule)
    return file.error(key, f"{rule}, got {shortened(error['input'])}")


def _key_in_file(data: Any, location: tuple[str | int, ...], missing: bool) -> Key:
    """The location without the parts that pydantic adds for unions."""
    key: list[str | int] = []
    for part in location:
        inside = (
            part in data if isinstance(data, dict) else isinstance(data, list) and part in range(len(data))
        )
        if inside:
            data = data[part]
        elif not (missing and part == location[-1]):
            continue
        key.append(part)
    return tuple(key)

"""From a template and a configuration to CUDA source: strict Jinja, in a sandbox.

A template sees the parameters, the derived names, the variants, the GPU's names, and the sizes and classes of
the problem. Every name in it has to be one of these, also in branches that this configuration does not take,
so that a misspelt name never renders as nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import jinja2
from jinja2 import meta, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from autotune.candidate import Source
from autotune.config import Config, value_text
from autotune.errors import InputError, nearest_name
from autotune.expressions import Expression
from autotune.gpu import GpuSpec
from autotune.launch import config_names
from autotune.paths import find, shipped
from autotune.problem import Problem
from autotune.spec.kernel_spec import ArrayArgument, KernelSpec, ScalarArgument
from autotune.spec.yaml_file import read_yaml

MAX_SOURCE = 16 << 20
"""Characters of one rendered kernel: each is kept beside its binary, and a compiler takes minutes for less."""


def render(spec: KernelSpec, gpu: GpuSpec, problem: Problem, config: Config) -> Source:
    """The CUDA source of one configuration; the same text for everything the template does not use.

    Raises InputError where the template is not there, does not parse, names what does not exist, or fails.
    """
    names = config_names(spec, gpu, config, problem)
    templates = _reached_templates(spec)
    for template in templates:
        _check_names(template, names)
    environment = _environment(spec.folders)
    try:
        text = environment.get_template(spec.template).render(names)
    except RecursionError as error:
        rule = "rendering failed: a template includes or calls itself without end"
        raise InputError(rule, _place(error, templates)) from error
    except _RENDER_ERRORS as error:
        raise InputError(f"rendering failed: {error}", _place(error, templates)) from error
    if len(text) > MAX_SOURCE:
        rule = f"a kernel has at most {MAX_SOURCE:,} characters, got {len(text):,} for {config.key}"
        raise InputError(rule, str(templates[0].path))
    return Source(text, spec.entry, templates[0].path)


def check_template(spec: KernelSpec, gpu: GpuSpec) -> None:
    """Raises InputError, with file and line, for a template that is not there, does not parse, or names what
    does not exist: what would stop every configuration.
    """
    classes = [problem_class.name for problem_class in spec.problem.classes]
    own = [*spec.problem.sizes, *classes, *spec.parameter_names, *spec.derived, *spec.variants]
    own += spec.constants
    for template in _reached_templates(spec):
        _check_names(template, [*own, *gpu.names()])


def render_layout(template: str, values: Mapping[str, object]) -> str:
    """A shipped template that is no kernel, such as the frame of an exported header, filled with values."""
    return _environment(()).get_template(template).render(values)


_RENDER_ERRORS = (jinja2.TemplateError, TypeError, ValueError, ArithmeticError)
"""What the text of a template can bring about; the sandbox's refusals are template errors too."""


def kernel_hash(spec: KernelSpec) -> str:
    """Hex digest of all that makes the kernel what it is, whatever the configuration.

    Template text with everything included, entry, element type, launch, arguments, and of the derived names
    and variants those that reach the template or the launch. Parameter values and constraints are left out:
    they make the space, see `autotune.spec.load.space_hash`.
    """
    used = _used_names(spec)
    texts = {name: expression.text for name, expression in {**spec.derived, **spec.variants}.items()}
    texts |= {name: value_text(value) for name, value in spec.constants.items()}
    parts = {
        "templates": [[template.name, template.text] for template in _reached_templates(spec)],
        "entry": spec.entry,
        "dtype": spec.problem.dtype,
        "launch": [expression.text for expression in _launch_expressions(spec)],
        "arguments": [_argument_parts(argument) for argument in spec.arguments],
        "names": {name: text for name, text in texts.items() if name in used},
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def unused_parameters(spec: KernelSpec) -> list[str]:
    """Parameters that change neither source nor launch, in the spec's order: searching over them is wasted.

    A parameter is used when the template or the launch names it, or a derived name or variant they rest on.
    """
    used = _used_names(spec)
    return [name for name in spec.parameter_names if name not in used]


@dataclass(frozen=True)
class _Template:
    """One template file with what it asks for."""

    name: str
    path: Path
    text: str
    free: Mapping[str, int]
    """Names it expects from outside, with the line of the first use."""
    bound: frozenset[str]
    """Names it sets itself; templates that it includes see them."""
    includes: tuple[str, ...]


_Stamp = tuple[int, int, int] | None
_REACHED: dict[tuple[str, tuple[Path, ...]], tuple[dict[str, _Stamp], list[_Template]]] = {}
"""By template and folders: the templates reached, and the state of every file that they come or could come from."""


def _reached_templates(spec: KernelSpec) -> list[_Template]:
    """The template and all it includes; files are read again only where one of them has changed."""
    key = spec.template, spec.folders
    stamps, templates = _REACHED.get(key, ({}, []))
    if templates and all(_stamp(place) == stamp for place, stamp in stamps.items()):
        return templates
    names = [spec.template]
    for _ in range(2):  # stamps have to be older than what is read, and the names are known only from reading
        stamps = {place: _stamp(place) for name in names for place in _places(name, spec.folders)}
        templates = _read_templates(spec)
        names = [template.name for template in templates]
    _REACHED[key] = stamps, templates
    return templates


def _places(name: str, folders: tuple[Path, ...]) -> list[str]:
    roots = [*(Path(folder) / "templates" for folder in folders), shipped("templates")]
    return [str(root / name) for root in roots]


def _stamp(place: str) -> _Stamp:
    """Changes when the file does; None where there is none."""
    try:
        found = os.stat(place)  # noqa: PTH116  asked for every file of every rendering
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read_templates(spec: KernelSpec) -> list[_Template]:
    reached: dict[str, _Template] = {}
    waiting = [(spec.template, "")]
    while waiting:
        name, where = waiting.pop(0)
        if name not in reached:
            path = _find_template(name, spec, where)
            reached[name] = _parsed(name, path, _read(path))
            waiting += [(included, str(path)) for included in reached[name].includes]
    bound = frozenset[str]().union(*(template.bound for template in reached.values()))
    return [
        _Template(
            t.name,
            t.path,
            t.text,
            {n: line for n, line in t.free.items() if n not in bound},
            t.bound,
            t.includes,
        )
        for t in reached.values()
    ]


def _find_template(name: str, spec: KernelSpec, where: str) -> Path:
    try:
        return find("templates", name, spec.folders)
    except InputError as error:
        cure = error.nearest
        if not where and spec.source_file is not None:
            where = read_yaml(spec.source_file).where(("template",))
            if (spec.source_file.parent / name).is_file():
                cure = f"move {spec.source_file.parent / name} below one of these folders"
        raise InputError(error.rule, where, "template", cure) from None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the template: {error}", str(path)) from error


@lru_cache(maxsize=256)
def _parsed(name: str, path: Path, text: str) -> _Template:
    environment = _environment(())
    try:
        tree = environment.parse(text, name, str(path))
    except jinja2.TemplateSyntaxError as error:
        raise InputError(error.message or "syntax error", f"{path}:{error.lineno}") from error
    undeclared = meta.find_undeclared_variables(tree) - environment.globals.keys()
    free: dict[str, int] = {}
    for node in tree.find_all(nodes.Name):
        if node.ctx == "load" and node.name in undeclared:
            free[node.name] = min(node.lineno, free.get(node.name, node.lineno))
    bound = frozenset(node.name for node in tree.find_all(nodes.Name) if node.ctx == "store")
    includes = []
    for included in meta.find_referenced_templates(tree):
        if included is None:
            raise InputError("includes are named by a plain string, so that they can be hashed", str(path))
        includes.append(included)
    return _Template(name, path, text, free, bound, tuple(includes))


def _check_names(template: _Template, names: Collection[str]) -> None:
    for name, line in sorted(template.free.items(), key=lambda item: item[1]):
        if name not in names:
            rule = f"the template uses {name!r}, which is no parameter, derived name, variant, size or class"
            raise InputError(rule, f"{template.path}:{line}", name, nearest_name(name, names))


@lru_cache(maxsize=16)
def _environment(folders: tuple[Path, ...]) -> jinja2.Environment:
    return ImmutableSandboxedEnvironment(
        loader=jinja2.FunctionLoader(_loader(folders)),
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def _loader(folders: tuple[Path, ...]) -> Callable[[str], tuple[str, str, Callable[[], bool]]]:
    def load(name: str) -> tuple[str, str, Callable[[], bool]]:
        path = str(find("templates", name, folders))
        stamp = _stamp(path)
        return _read(Path(path)), path, lambda: _stamp(path) == stamp

    return load


def _finalize(value: object) -> object:
    """CUDA's `true` and `false`; strings and numbers as they are."""
    return value_text(value) if isinstance(value, bool | tuple) else value


def _place(error: BaseException, templates: list[_Template]) -> str:
    """`file:line` where rendering failed: the innermost frame that lies in a template."""
    files = {str(template.path) for template in templates}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else str(templates[0].path)


def _used_names(spec: KernelSpec) -> set[str]:
    waiting = [name for template in _reached_templates(spec) for name in template.free]
    waiting += [name for expression in _launch_expressions(spec) for name in expression.names]
    expressions = {**spec.derived, **spec.variants}
    used: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in used:
            used.add(name)
            waiting += expressions[name].names if name in expressions else ()
    return used


def _launch_expressions(spec: KernelSpec) -> Iterator[Expression]:
    yield from spec.launch.grid
    yield from spec.launch.block
    yield spec.launch.smem
    if spec.scratch:
        yield spec.scratch.bytes


def _argument_parts(argument: object) -> list[object]:
    match argument:
        case ArrayArgument():
            shape = [size.text for size in argument.shape]
            parts: list[object] = ["array", argument.name, argument.role, shape, argument.dtype]
            parts += [argument.pitch, argument.align]
            return [*parts, *filter(None, [argument.transposed, argument.stride])]
        case ScalarArgument():
            return ["scalar", argument.name, argument.dtype, argument.value.text]
        case _:
            return [type(argument).__name__, getattr(argument, "name", "")]

"""Which variants of a kernel an export compiles, and which calls each of them may serve.

A spec's `variants` are constants in the source: vector widths that the alignment allows, whether edges are
guarded, whether C is read. A library decides about them call by call, so every kernel is compiled a few
times:

- alignment classes: three levels, the best there is, that of the tuned problem, and none at all. Code for an
  alignment serves every call that is aligned at least as well.
- other classes that a call shows: every value, each served by its own code. Classes that it does not show (a
  transposed operand) have one value in an export, or those that it is asked to serve, as further arguments.
- sizes: every value that a variant takes at a set of probing sizes. A boolean variant whose name begins with
  GUARD is special: code with it true also serves calls where it would be false.

Equal source is compiled once. At most `MAX_ROWS` combinations are kept for one kernel, the least general ones
going first; a call that none of them may serve is refused by the exported code, never run with the wrong one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from autotune.candidate import Source
from autotune.config import Config, Value, value_text
from autotune.errors import InputError
from autotune.gpu import GpuSpec
from autotune.launch import config_names
from autotune.problem import Problem
from autotune.problems import make_problem
from autotune.render import render
from autotune.spec.kernel_spec import ArrayArgument, KernelSpec, ProblemClass, ScalarArgument

MAX_ROWS = 12
"""Combinations compiled for one kernel, for each combination of told classes."""
_PROBES = (2**12 * 3 * 5 * 7, 1009, 1)
"""Sizes that divide by any usual tile, by none, and less than one; each also doubled (or the like) as a
cross-check."""
_CROSS_CHECK = {_PROBES[0]: 2 * _PROBES[0], 1009: 1013, 1: 1}


@dataclass(frozen=True)
class ClassRule:
    """How a call shows the value of one problem class."""

    problem_class: ProblemClass
    kind: str
    """`alignment` (from pointers and pitches), `scalar` (from a scalar argument), `computed` (from the
    sizes by the spec's own default), `told` (by an argument of its own) or `fixed` (the header serves one value)."""
    arrays: tuple[ArrayArgument, ...] = ()
    """The arrays whose alignment it is."""
    scalar: str = ""
    """The scalar argument that shows it."""
    pinned: tuple[tuple[Value, float], ...] = ()
    """Class values that belong to exactly this value of the scalar."""
    rest: Value = ""
    """The class value for every other value of the scalar."""
    served: tuple[Value, ...] = ()
    """The values that a `told` or `fixed` class may have."""

    @property
    def name(self) -> str:
        """The class's name."""
        return self.problem_class.name


@dataclass(frozen=True)
class Row:
    """One compiled variant of one kernel."""

    problem: Problem
    """A problem that has this variant; its sizes are only an example."""
    variants: tuple[tuple[str, Value], ...]
    level: int
    """0 for the best alignment, 1 for that of the tuned problem, 2 for none."""
    source: Source

    @property
    def label(self) -> str:
        """The variants as text."""
        return " ".join(f"{name}={value_text(value)}" for name, value in self.variants) or "only one"


def class_rules(spec: KernelSpec, problems: Sequence[Problem]) -> tuple[ClassRule, ...]:
    """How each problem class is read off a call; the problems are those that the export is for."""
    return tuple(_class_rule(spec, problems, problem_class) for problem_class in spec.problem.classes)


def unseen_classes(spec: KernelSpec) -> dict[str, list[Value]]:
    """The classes that a call does not show, each with its value for a plain call."""
    plain = make_problem(spec, 64)
    rules = class_rules(spec, [plain])
    return {rule.name: list(rule.served) for rule in rules if rule.kind == "fixed"}


def told(rules: Sequence[ClassRule], problem: Problem) -> tuple[Value, ...]:
    """The problem's values of the classes that a call tells by arguments of their own."""
    return tuple(dict(problem.classes)[rule.name] for rule in rules if rule.kind == "told")


def all_told(rules: Sequence[ClassRule]) -> list[tuple[Value, ...]]:
    """Every combination of these values."""
    return list(itertools.product(*(rule.served for rule in rules if rule.kind == "told")))


def compiled_rows(
    spec: KernelSpec,
    gpu: GpuSpec,
    tuned: Problem,
    config: Config,
    guarded_only: bool = False,
    rules: Sequence[ClassRule] = (),
    combinations: Sequence[tuple[Value, ...]] = ((),),
) -> list[Row]:
    """The variants to compile, in the order in which a call tries them.

    With `guarded_only` the code for unguarded sizes is left out; `combinations` are the values of told classes to
    compile for. Raises InputError where the template itself uses the sizes, so that its code would not serve others.
    """
    rules = rules or class_rules(spec, [tuned])
    found: dict[tuple[object, ...], Row] = {}
    for level, classes in _class_choices(rules, tuned, combinations):
        for sizes in _probe_sizes(tuned):
            problem = Problem(sizes, tuned.dtype, classes)
            names = config_names(spec, gpu, config, problem)
            variants = tuple((name, names[name]) for name in spec.variants)
            own = (tuple((type(value), value) for _, value in variants), _exact(rules, classes), level)
            if own not in found:
                source = _size_free_source(spec, gpu, problem, config)
                found[own] = Row(problem, variants, level, source)

    different: dict[tuple[object, ...], Row] = {}
    for row in sorted(found.values(), key=lambda row: (row.level, _guards(row))):
        key = (row.source.text, _exact(rules, row.problem.classes), _by_size(spec, row))
        if key not in different:
            different[key] = _asking_least(row, rules, spec, gpu, config)

    rows = list(different.values())
    guarded = {_exact(rules, row.problem.classes) for row in rows if _guards(row) and row.level == 2}
    guarded |= {_exact(rules, row.problem.classes) for row in rows if _guards(row) and guarded_only}
    needed = [
        row
        for row in rows
        if _guards(row)
        or _exact(rules, row.problem.classes) not in guarded
        or not (guarded_only or row.level == 2)
    ]
    return _bounded(needed, tuned, MAX_ROWS * len(combinations))


def is_guard(name: str, value: Value) -> bool:
    """True where code with this variant serves calls for which the variant has another value."""
    return name.upper().startswith("GUARD") and value is True


def _class_rule(spec: KernelSpec, problems: Sequence[Problem], problem_class: ProblemClass) -> ClassRule:
    problem = problems[0]
    name = problem_class.name
    arrays = tuple(array for array in spec.arrays if array.align == name)
    if arrays:
        return ClassRule(problem_class, "alignment", arrays)
    for argument in spec.arguments:
        if not isinstance(argument, ScalarArgument) or name not in argument.value.names:
            continue
        if shown := _told_by_scalar(problem_class, argument, problem):
            pinned, rest = shown
            return ClassRule(problem_class, "scalar", scalar=argument.name, pinned=pinned, rest=rest)
    if problem_class.default.names:
        return ClassRule(problem_class, "computed")
    present = {dict(each.classes)[name] for each in problems}
    served = tuple(value for value in problem_class.values if value in present)
    return ClassRule(problem_class, "told" if len(served) > 1 else "fixed", served=served)


def _told_by_scalar(
    problem_class: ProblemClass, argument: ScalarArgument, problem: Problem
) -> tuple[tuple[tuple[Value, float], ...], Value] | None:
    """The class values that stand for a scalar of exactly 0 or 1, and the one for all other scalars."""
    values = {}
    for value in problem_class.values:
        number = argument.value.evaluate({**problem.names(), problem_class.name: value})
        assert isinstance(number, int | float)
        values[value] = float(number)
    for special in ({0.0, 1.0}, {0.0}, {1.0}):
        pinned = tuple((value, number) for value, number in values.items() if number in special)
        rest = [value for value, number in values.items() if number not in special]
        if pinned and rest:
            return pinned, rest[0]
    return None


def _class_choices(
    rules: Sequence[ClassRule], tuned: Problem, combinations: Sequence[tuple[Value, ...]]
) -> Iterator[tuple[int, tuple[tuple[str, Value], ...]]]:
    own = dict(tuned.classes)
    named = [rule.name for rule in rules if rule.kind == "told"]
    exact = [rule for rule in rules if rule.kind in ("scalar", "computed")]
    orders = [
        sorted(rule.problem_class.values, key=lambda value, rule=rule: value != own[rule.name])  # type: ignore[misc]
        for rule in exact
    ]
    for level in (0, 1, 2):
        chosen: dict[str, Value] = dict(own)
        for rule in rules:
            if rule.kind == "alignment":
                values = _alignments(rule)
                chosen[rule.name] = (values[-1], own[rule.name], values[0])[level]
        for values_told, combination in itertools.product(combinations, itertools.product(*orders)):
            chosen.update(zip(named, values_told, strict=True))
            chosen.update(zip((rule.name for rule in exact), combination, strict=True))
            yield level, tuple((rule.name, chosen[rule.name]) for rule in rules)


def _probe_sizes(tuned: Problem) -> list[tuple[tuple[str, int], ...]]:
    names = [name for name, _ in tuned.sizes]
    probes = [tuned.sizes]
    probes += [tuple((name, size) for name in names) for size in _PROBES]
    probes += [tuple((name, _PROBES[1] if name == odd else _PROBES[0]) for name in names) for odd in names]
    return probes


def _exact(rules: Sequence[ClassRule], classes: Sequence[tuple[str, Value]]) -> tuple[object, ...]:
    values = dict(classes)
    return tuple(values[rule.name] for rule in rules if rule.kind in ("scalar", "computed", "told"))


def _by_size(spec: KernelSpec, row: Row) -> tuple[object, ...]:
    """The variants that depend on the sizes: what a call is asked, even where the text comes out the same."""
    sizes = set(spec.problem.sizes)
    return tuple((name, value) for name, value in row.variants if spec.variants[name].names & sizes)


def _guards(row: Row) -> int:
    """How many guards it has: the more, the more calls it serves, and the slower."""
    return sum(is_guard(name, value) for name, value in row.variants)


def _size_free_source(spec: KernelSpec, gpu: GpuSpec, problem: Problem, config: Config) -> Source:
    """The source for a problem, made sure that other sizes of the same variants give the same text."""
    source = render(spec, gpu, problem, config)
    other = Problem(
        tuple((name, _CROSS_CHECK.get(size, 2 * size)) for name, size in problem.sizes),
        problem.dtype,
        problem.classes,
    )
    mine, theirs = (config_names(spec, gpu, config, each) for each in (problem, other))
    same_variants = all(mine[name] == theirs[name] for name in spec.variants)
    if same_variants and render(spec, gpu, other, config).text != source.text:
        rule = (
            "the template uses the sizes themselves; an export serves all sizes, so they have to be arguments"
        )
        raise InputError(rule, str(source.template))
    return source


def _asking_least(
    row: Row, rules: Sequence[ClassRule], spec: KernelSpec, gpu: GpuSpec, config: Config
) -> Row:
    """The row with each alignment lowered as far as the source stays the same."""
    for rule in rules:
        if rule.kind != "alignment":
            continue
        for value in _alignments(rule):
            classes = tuple((name, value if name == rule.name else own) for name, own in row.problem.classes)
            problem = replace(row.problem, classes=classes)
            if render(spec, gpu, problem, config).text == row.source.text:
                row = replace(row, problem=problem)
                break
    return row


def _alignments(rule: ClassRule) -> list[int]:
    return sorted(value for value in rule.problem_class.values if isinstance(value, int))


def _bounded(rows: Sequence[Row], tuned: Problem, most: int) -> list[Row]:
    if len(rows) <= most:
        return list(rows)
    # The tuned problem's own variant and the general ones stay; then as many others as fit.
    ranked = sorted(rows, key=lambda row: (row.problem != tuned, row.level != 2, -_guards(row)))
    kept: Mapping[int, Row] = {id(row): row for row in ranked[:most]}
    return [row for row in rows if id(row) in kept]

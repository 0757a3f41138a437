"""GPU cases about right results."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from bench import Bench, Stopwatch
from case import Numbers, failure_of

from autotune.candidate import BufferPlan, Runnable, ScalarPlan
from autotune.legality import violations
from autotune.records import Status
from autotune.thorough import thorough_cases, verify_thoroughly


def t02(bench: Bench, numbers: Numbers) -> None:
    for sizes in ((256, 256, 256), (257, 131, 67)):
        run = bench.run(bench.candidate(sizes))
        accuracy = bench.stages.verify_run(run)
        numbers[f"error at {sizes}"] = round(accuracy.worst_error, 3)
        numbers[f"over infinities at {sizes}"] = difference = over_infinities(run)
        assert difference < 1e-3
    assert not over_infinities(bench.mutant("reads_c", 64)) < 1e-3, "a kernel that reads C is not noticed"
    for entry in ("all_nan", "all_infinite", "reads_c"):
        failure = failure_of(
            lambda e=entry: bench.stages.verify_run(bench.mutant(e, 64)), Status.WRONG_RESULT
        )
        assert failure.accuracy is not None
        assert failure.accuracy.worst_error == float("inf")
    for entry in ("writes_past_the_end", "changes_an_input"):
        failure = failure_of(
            lambda e=entry: bench.stages.verify_run(bench.mutant(e, 64)), Status.WRONG_RESULT
        )
        numbers[entry] = failure.reason


def over_infinities(run: Runnable) -> float:
    """Largest difference from the product where C held infinities of both signs before; NaN where one stays."""
    watch = Stopwatch()
    cupy, function = watch.cupy, watch.function(run.kernel)
    if run.launch.dynamic_smem_bytes:
        function.max_dynamic_shared_size_bytes = run.launch.dynamic_smem_bytes
    arguments = watch.arguments(run.launch)
    arrays = {}
    for plan, argument in zip(run.launch.arguments, arguments, strict=True):
        if isinstance(plan, BufferPlan):
            arrays[plan.name] = argument.reshape(-1, plan.pitch)[:, : plan.shape[1]]
    c = arrays["C"]
    c[...] = np.inf
    c[::2] = -np.inf
    function(run.launch.grid, run.launch.block, arguments, shared_mem=run.launch.dynamic_smem_bytes)
    expected = arrays["A"].astype(cupy.float64) @ arrays["B"].astype(cupy.float64)
    difference = float(cupy.abs(c - expected).max())
    watch.close()
    return difference


def t03(bench: Bench, numbers: Numbers) -> None:
    candidate = bench.candidate(256)
    for case in thorough_cases(bench.spec, candidate.problem):
        if case.what in ("no depth", "no rows", "alpha zero, NaN in A and B"):
            run = bench.run(dataclasses.replace(candidate, problem=case.problem))
            accuracy = bench.stages.verify_run(run, case.data, case.values)
            key = f"{case.what}, beta {dict(case.problem.classes)['beta']}"
            numbers[key] = accuracy.worst_error
    general = bench.run(bench.candidate((64, 48, 0), {"beta": "general"}))
    bench.stages.verify_run(general, values={"beta": 1.0})


def t05(bench: Bench, numbers: Numbers) -> None:
    worst = 0.0
    for align, offset in ((1, 1), (2, 2), (4, 0)):
        classes = {f"align_{name}": align for name in "abc"} | {"beta": "general"}
        run = bench.run(bench.candidate((130, 67, 45), classes))
        for pad in {1: (3, 5, 7), 2: (2, 6), 4: (4, 8)}[align]:
            worst = max(worst, bench.stages.verify_run(shifted(run, pad, align, offset)).worst_error)
    numbers["worst error"] = round(worst, 3)
    accuracy = verify_thoroughly(bench.candidate(512), bench.stages)
    numbers["thorough"] = f"{accuracy.worst_error:.3f} over {accuracy.elements} elements"


def shifted(run: Runnable, pad: int, align: int, offset: int) -> Runnable:
    """The run with rows that are at least `pad` longer and buffers off their boundary."""
    pitches: dict[str, int] = {}
    arguments: list[Any] = []
    for argument in run.launch.arguments:
        if isinstance(argument, BufferPlan):
            pitch = -(-(argument.shape[1] + pad) // align) * align
            pitches[f"ld{argument.name.lower()}"] = pitch
            argument = dataclasses.replace(argument, pitch=pitch, offset=offset)
        elif isinstance(argument, ScalarPlan) and argument.name in pitches:
            argument = dataclasses.replace(argument, value=pitches[argument.name])
        arguments.append(argument)
    return dataclasses.replace(run, launch=dataclasses.replace(run.launch, arguments=tuple(arguments)))


def t06(bench: Bench, numbers: Numbers) -> None:
    for depth in (64, 4096, 32768):
        sizes = (128, 128, depth)
        errors = [
            bench.stages.verify_run(bench.mutant(entry, sizes)).worst_error
            for entry in ("naive", "backwards", "in_slices")
        ]
        for changes in ({}, {"BK": 8, "ORDER": "nested"}, {"LOAD": "sync", "STAGES": 1, "REGDB": False}):
            candidate = bench.candidate(sizes, changes=changes)
            assert not violations(candidate.spec, candidate.gpu, candidate.problem, candidate.config)
            errors.append(bench.stages.verify_run(bench.run(candidate)).worst_error)
        mutant = bench.mutant("loses_a_slice", sizes)
        failure = failure_of(lambda m=mutant: bench.stages.verify_run(m), Status.WRONG_RESULT)
        assert failure.accuracy is not None
        numbers[f"K={depth}"] = f"right {max(errors):.3f}, mutant {failure.accuracy.worst_error:.1f}, limit 4"

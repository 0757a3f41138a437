"""Kernel Tuner's half of `versus_kernel_tuner.py`: tunes the kernels of a case file, in a process of its own.

    python tools/gpu/kernel_tuner_side.py CASE.pickle RESULT.json

It gets the sources already rendered, the inputs on the host and the reference already computed, so that nothing but its
own work counts. What a user would set is set: CuPy as backend, our compiler flags, the shared memory of each
configuration.
"""

from __future__ import annotations

import json
import pickle
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools" / "gpu")]

THREADS = "block_size_x"
"""The parameter in which Kernel Tuner looks for the block; it follows from the others."""


def parameters_of(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """The values that occur, of the parameters that differ at all, in their order."""
    values = {
        name: sorted({row[name] for row in rows}, key=lambda value: (str(type(value)), value))
        for name in rows[0]
    }
    return {name: found for name, found in values.items() if len(found) > 1 or name == THREADS}


def restrictions_of(rows: list[dict[str, Any]], names: list[str]) -> list[Any]:
    """Exactly the rows, as one constraint that also refuses the beginnings of no row."""
    from constraint import Constraint

    class Listed(Constraint):  # type: ignore[misc]
        def __init__(self) -> None:
            self.allowed: dict[tuple[str, ...], set[tuple[Any, ...]]] = {}

        def __call__(
            self,
            variables: Any,
            domains: Any,
            assignments: Any,
            forwardcheck: Any = False,
            _unassigned: Any = None,
        ) -> bool:
            known = tuple(name for name in names if name in assignments)
            if known not in self.allowed:
                self.allowed[known] = {tuple(row[name] for name in known) for row in rows}
            return tuple(assignments[name] for name in known) in self.allowed[known]

    return [Listed()]


def verifier(expected: Mapping[int, tuple[np.ndarray, np.ndarray]], tolerance: float) -> Any:
    """Our own verdict on the host: every element within the tolerance, in units of its scale."""

    def verify(answer: object, results: list[Any], atol: float) -> bool:
        return all(
            bool((np.abs(results[place] - values) <= tolerance * scale).all())
            for place, (values, scale) in expected.items()
        )

    return verify


def opt_in(backend: Any) -> None:
    """Lets CuPy's kernels have more than the 48 KiB of shared memory that go without saying."""
    compile_ = backend.compile

    def compile_with_room(self: Any, instance: Any) -> Any:
        function = compile_(self, instance)
        most = self.devprops["MaxSharedMemoryPerBlockOptin"]
        function.max_dynamic_shared_size_bytes = most - function.shared_size_bytes
        return function

    backend.compile = compile_with_room


def tune(case: Mapping[str, Any]) -> dict[str, Any]:
    """What Kernel Tuner finds in the case's time."""
    from kernel_tuner import tune_kernel
    from kernel_tuner.backends.cupy import CupyFunctions

    opt_in(CupyFunctions)
    rows = case["rows"]
    parameters = parameters_of(rows)
    names = list(parameters)
    number = {tuple(row[name] for name in names): place for place, row in enumerate(rows)}
    launches = case["launches"]

    def place(config: Mapping[str, Any]) -> int:
        return number[tuple(config[name] for name in names)]

    began = time.perf_counter()
    results, _ = tune_kernel(
        case["entry"],
        lambda config: case["sources"][place(config)],
        lambda config: launches[place(config)]["grid"],
        case["arguments"],
        parameters,
        grid_div_x=[],
        grid_div_y=[],
        grid_div_z=[],
        restrictions=restrictions_of(rows, names),
        answer=case["answer"],
        verify=verifier(case["expected"], case["tolerance"]),
        smem_args={"size": lambda config: launches[place(config)]["smem"]},
        lang="CUPY",
        defines={},
        compiler_options=case["flags"],
        iterations=case["samples"],
        strategy=case["strategy"],
        strategy_options={"time_limit": case["seconds"]},
        quiet=True,
    )
    took = time.perf_counter() - began
    timed = [one for one in results if isinstance(one.get("time"), float)]
    best = min(timed, key=lambda one: one["time"], default=None)
    return {
        "seconds": took,
        "evaluated": len(results),
        "verified": len({place(one) for one in timed}),
        "best": None if best is None else {"row": place(best), "time_ms": best["time"]},
        "mean_ms": {
            key: float(np.mean([one[key] for one in timed])) if timed else None
            for key in ("compile_time", "verification_time", "benchmark_time", "framework_time")
        },
    }


def main() -> None:
    case = pickle.loads(Path(sys.argv[1]).read_bytes())
    Path(sys.argv[2]).write_text(json.dumps(tune(case)))


if __name__ == "__main__":
    main()

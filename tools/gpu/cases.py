"""Runs the cases of the test plan that need a GPU, each within its own time limit.

    python tools/gpu/cases.py --list
    python tools/gpu/cases.py --out RESULTS            all cases, a summary in RESULTS/cases.json
    python tools/gpu/cases.py --only T06,T09

Each case prints `pass`, `FAIL` or `not checked` with its numbers. The exit code is 1 where any did not pass.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools" / "gpu")]


class CaseTimeout(Exception):
    """A case outlasted its limit."""


@contextlib.contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raises CaseTimeout in the block after so many seconds."""

    def expire(*_: object) -> None:
        raise CaseTimeout(f"longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def main() -> int:
    """Runs the chosen cases and writes the summary after each."""
    from bench import Bench
    from case_list import CASES, NotChecked

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="name the cases and stop")
    parser.add_argument("--only", default="", help="comma-separated ids")
    parser.add_argument("--out", type=Path, help="folder for cases.json")
    parser.add_argument("--limit", type=int, default=600, help="seconds for everything")
    options = parser.parse_args()
    chosen = [case for case in CASES if not options.only or case.id in options.only.split(",")]
    if options.list:
        for case in CASES:
            print(f"{case.id:16} {case.limit_s:4} s  {case.what}")
        return 0
    results: dict[str, dict[str, object]] = {}
    begun = time.monotonic()
    with Bench.open() as bench:
        print(f"on {bench.gpu.spec.name} at {bench.gpu.pci_bus_id}, {bench.gpu.environment}", flush=True)
        for case in chosen:
            start = time.monotonic()
            if start - begun > options.limit:
                results[case.id] = {"passed": None, "error": "the time for everything is over"}
                print(f"not checked  {case.id}", flush=True)
                continue
            numbers: dict[str, object] = {}
            error = ""
            passed: bool | None = True
            try:
                with time_limit(case.limit_s):
                    case.run(bench, numbers)
            except NotChecked as missing:
                passed, error = None, str(missing)
            except Exception as failure:  # noqa: BLE001  one failed case is a result
                passed, error = False, f"{type(failure).__name__}: {failure}"
                traceback.print_exc()
            seconds = round(time.monotonic() - start, 1)
            results[case.id] = {"passed": passed, "error": error, "seconds": seconds, "numbers": numbers}
            word = {True: "pass", False: "FAIL", None: "not checked"}[passed]
            print(f"{word}  {case.id:16} {seconds:6.1f} s  {numbers} {error}", flush=True)
            if options.out:
                options.out.mkdir(parents=True, exist_ok=True)
                (options.out / "cases.json").write_text(json.dumps(results, indent=1, default=str))
    ended = {
        state: [name for name, one in results.items() if one["passed"] is state]
        for state in (True, False, None)
    }
    print(
        f"{len(ended[True])} of {len(results)} passed; failed: {', '.join(ended[False]) or 'none'}; "
        f"not checked: {', '.join(ended[None]) or 'none'}"
    )
    return 0 if len(ended[True]) == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())

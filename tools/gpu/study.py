"""Records the studies that ship with the project, and checks what they claim, on the GPU of this machine.

    python tools/gpu/study.py --out RESULTS --commit HASH [--trials 200] [--limit 420]

1. `autotune search --gpu local` for each size, cold; the winners are verified off the tile by the search itself.
2. The computed occupancy of every compiled configuration against the driver's own.
3. The best at each size beside cuBLAS, interleaved, warm and cold.
4. The exported header built by nvcc from the C++ example: results, and time against step 3.
5. A kernel given only as YAML and template.

Writes RESULTS/<kernel>.jsonl.gz (the records), RESULTS/summary.json (figures with their provenance) after each step.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools" / "gpu")]

SIZES = ("4096", "1024", "256", "1000x999x37")
EXAMPLE_SIZE = "4096"


class Recorder:
    """The summary, written out after each step, and the time that is left."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.out: Path = options.out
        self.until = time.monotonic() + options.limit
        self.database = self.out / "study.sqlite"
        self.summary: dict[str, Any] = {"commit": options.commit, "date": datetime.now(UTC).isoformat()}

    def left_s(self, most: float) -> float:
        """Seconds that a step may take."""
        return max(1.0, min(most, self.until - time.monotonic()))

    def note(self, step: str, figures: object) -> None:
        """Keeps a step's figures."""
        self.summary[step] = figures
        (self.out / "summary.json").write_text(json.dumps(self.summary, indent=1) + "\n")
        print(step, json.dumps(figures)[:1500], flush=True)

    def autotune(self, *arguments: str, limit_s: float) -> Any:
        """The JSON that a command prints."""
        command = [sys.executable, "-m", "autotune", *arguments, "--db", str(self.database), "--json"]
        search_path = os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": search_path},
            capture_output=True,
            text=True,
            timeout=self.left_s(limit_s),
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(arguments)}: exit {done.returncode}: {done.stderr[-2000:]}")
        (self.out / "progress.log").open("a").write(done.stderr)
        return json.loads(done.stdout)


def search(recorder: Recorder, trials: int) -> None:
    """Step 1."""
    figures = {}
    for size in SIZES:
        started = time.monotonic()
        (found,) = recorder.autotune(
            "search", "--gpu", "local", "--size", size, "--trials", str(trials), limit_s=150
        )
        figures[size] = {
            **{key: found[key] for key in ("time_ms", "gflops", "baseline_ms", "vs_baseline", "measured")},
            "counts": found["counts"],
            "config": found["config"],
            "notes": found["notes"],
            "seconds": round(time.monotonic() - started, 1),
        }
        recorder.note("search", figures)


def occupancy(recorder: Recorder) -> None:
    """Step 2: over every record that has resources."""
    from bench import Bench

    from autotune.candidate import Candidate
    from autotune.store import RecordQuery, open_store

    with open_store(recorder.database) as store:
        records = [one for one in store.records(RecordQuery(kernel="sgemm")) if one.outcome.resources]
    differ = []
    checked = set()
    deadline = time.monotonic() + recorder.left_s(60)
    with Bench.open() as bench:
        for record in records:
            key = (record.config, record.problem)
            if key in checked or time.monotonic() > deadline:
                continue
            checked.add(key)
            run = bench.run(Candidate(bench.spec, bench.gpu.spec, record.problem, record.config))
            told = bench.stages.inspect(run).blocks_per_sm
            if told != record.outcome.resources.blocks_per_sm:  # type: ignore[union-attr]
                differ.append(f"{record.config.key}: {record.outcome.resources}, driver {told}")
    wanted = len({(record.config, record.problem) for record in records})
    recorder.note("occupancy", {"configs": wanted, "checked": len(checked), "differ": differ})


def beside_cublas(recorder: Recorder) -> None:
    """Step 3."""
    from bench import Bench

    from autotune.answers import best
    from autotune.candidate import Candidate
    from autotune.problems import parse_size
    from autotune.protocol import Protocol

    figures: dict[str, Any] = {}
    with Bench.open() as bench:
        for size in SIZES:
            answer = best("local", size, db=recorder.database)
            assert answer.record is not None
            run = bench.run(Candidate(bench.spec, bench.gpu.spec, answer.record.problem, answer.config))
            for protocol in (Protocol(), Protocol().warm()):
                timed = bench.stages.compare_runs([run], vendor=True, protocol=protocol)
                ours, theirs = (one.measurement for one in timed)
                label = "x".join(map(str, parse_size(size, bench.spec)))
                figures.setdefault(label, {"config": answer.config.key})[protocol.mode] = {
                    "ours_ms": ours.time_ms,
                    "cublas_ms": theirs.time_ms,
                    "ratio": theirs.time_ms / ours.time_ms,
                    "samples": [len(ours.samples_ms), len(theirs.samples_ms)],
                    "spread": [ours.spread, theirs.spread],
                    "clocks": dataclasses.asdict(ours.clocks) if ours.clocks else None,
                    "cublas": timed[1].notes,
                }
        recorder.note("beside_cublas", figures)
        environment = bench.gpu.environment
        recorder.note(
            "provenance",
            {
                "gpu": bench.gpu.spec.name,
                "uuid": bench.gpu.uuid,
                "driver": environment.driver,
                "cuda": environment.cuda,
                "nvrtc": environment.nvrtc,
                "autotune": environment.autotune,
                "protocol": [Protocol().key, Protocol().warm().key],
            },
        )


def example(recorder: Recorder) -> None:
    """Step 4."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    header = recorder.out / "sgemm_h200.cuh"
    recorder.autotune("export", "--gpu", "local", "-o", str(header), limit_s=60)
    folder = ROOT / "examples" / "cpp"
    table = next(
        line.split()[1] for line in header.read_text().splitlines() if line.startswith("namespace sgemm_")
    )
    program = recorder.out / "sgemm_check"
    command = [nvcc, "-O3", "-std=c++14", "-arch=native", f'-DAUTOTUNE_HEADER="{header}"']
    command += [
        f"-DAUTOTUNE_SCOPE={table}",
        "-o",
        str(program),
        str(folder / "main.cu"),
        str(folder / "second.cu"),
    ]
    built = subprocess.run(command, capture_output=True, text=True, timeout=recorder.left_s(150), check=False)
    if built.returncode != 0:
        raise RuntimeError(built.stderr[-2000:])
    ran = subprocess.run(
        [program, "--size", EXAMPLE_SIZE, "--json"],
        capture_output=True,
        text=True,
        timeout=recorder.left_s(60),
        check=False,
    )
    program.unlink()
    told = json.loads(ran.stdout.strip().splitlines()[-1])
    warm_ms = recorder.summary["beside_cublas"]["4096x4096x4096"]["warm"]["ours_ms"]
    figures = {"exit": ran.returncode, "example": told, "warm_ms": warm_ms, "warnings": built.stderr[-500:]}
    if "ms" in told:
        figures["time_ratio"] = told["ms"] / warm_ms
    recorder.note("example", figures)


def own_kernel(recorder: Recorder) -> None:
    """Step 5."""
    project = str(ROOT / "tests" / "data" / "project")
    (found,) = recorder.autotune(
        *("search", "--gpu", "local", "--project", project, "--kernel", "transpose"),
        *("--size", "4096", "--trials", "60"),
        limit_s=60,
    )
    keys = ("time_ms", "metrics", "measured", "counts", "config", "notes", "legal")
    recorder.note("transpose", {key: found[key] for key in keys})


def main() -> int:
    """Runs the steps; a step that fails is told and the others go on."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--commit", required=True, help="of the code that runs")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--limit", type=float, default=420, help="seconds for everything")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    recorder = Recorder(options)
    failed = []
    steps = (
        lambda: search(recorder, options.trials),
        lambda: occupancy(recorder),
        lambda: beside_cublas(recorder),
        lambda: example(recorder),
        lambda: own_kernel(recorder),
    )
    for number, step in enumerate(steps, 1):
        try:
            step()
        except Exception as error:  # noqa: BLE001  the other steps are worth running
            failed.append(f"step {number}: {type(error).__name__}: {error}")
            print(failed[-1], flush=True)
    recorder.note("failed", failed)

    from autotune.store import RecordQuery, open_store

    with open_store(recorder.database) as store:
        store.export_jsonl(recorder.out / "records.jsonl.gz", RecordQuery())
    recorder.database.unlink()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

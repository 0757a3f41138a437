"""Says of each target of the SGEMM suite on the H200 whether it is met, and of missed ones what holds them.

    python tools/limits.py                                    # renews the targets in studies/h200/limiter.json
    python tools/limits.py --text NCU.txt --source NCU.csv --commit HASH

Figures of targets come from studies/h200/suite.json, what was tried from the study beside it, what the hardware's
counters say of a missed shape from profiles.json there, which tools/gpu/limiter.py wrote. With NCU.txt (the
details page of Nsight Compute for one kernel) and NCU.csv (its source page) the profile is renewed too: counters, what
warps of the main loop wait for, and where. Causes are text, written here.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from autotune.records import Round, TrialRecord  # noqa: E402
from autotune.store.jsonl import read_records  # noqa: E402

STUDY = ROOT / "studies" / "h200"
SUITE, LIMITER, PROFILES = STUDY / "suite.json", STUDY / "limiter.json", STUDY / "profiles.json"
TRIALS = STUDY / "sgemm" / "2026-12-01-suite.jsonl.gz"

COUNTERS = {
    "time_ms": ("Duration", "ms"),
    "sm_clock_ghz": ("SM Frequency", "Ghz"),
    "issue_slots_pct": ("One or More Eligible", "%"),
    "warps_per_scheduler": ("Active Warps Per Scheduler", "warp"),
    "eligible_warps_per_scheduler": ("Eligible Warps Per Scheduler", "warp"),
    "l1_pct": ("L1/TEX Cache Throughput", "%"),
    "l2_pct": ("L2 Cache Throughput", "%"),
    "dram_pct": ("DRAM Throughput", "%"),
    "registers": ("Registers Per Thread", "register/thread"),
    "waves": ("Waves Per SM", ""),
}
SHARED = r"([\d.]+) excessive wavefronts? \((\d+)% of the\s+total ([\d.]+)"
LOOP = 0.9
"""The main loop: what runs at least this share of the most executed instruction's times."""
SWITCH = 100
"""Samples of `not_selected` at an instruction from which on the scheduler is taken to change between warps there."""


@dataclass(frozen=True)
class Target:
    """What the suite should reach: `least` of a figure in one mode."""

    name: str
    mode: str
    figure: str
    """`mean` over the suite, `worst` of it, `ratio` at the shapes, or `bandwidth` as share of the large copy's."""
    least: float
    shapes: tuple[str, ...] = ()
    rival: str = "cublas"


TARGETS = (
    Target("geometric mean over cublasSgemm", "warm", "mean", 1.35),
    Target("geometric mean over the best of cuBLASLt", "warm", "mean", 1.15, rival="cublaslt"),
    Target("every shape", "warm", "worst", 0.98),
    Target("large cubes", "warm", "ratio", 1.04, ("cube_4096x4096x4096", "cube_8192x8192x8192")),
    Target("large cubes, aim", "warm", "ratio", 1.10, ("cube_4096x4096x4096", "cube_8192x8192x8192")),
    Target("1024 cubed", "warm", "ratio", 1.2, ("cube_1024x1024x1024",)),
    Target("512 cubed", "warm", "ratio", 1.35, ("cube_512x512x512",)),
    Target("small cubes", "warm", "ratio", 1.5, ("cube_256x256x256", "cube_128x128x128")),
    Target("16 rows", "warm", "ratio", 3.0, ("skinny_m_16x4096x4096", "skinny_m_16x14336x4096")),
    Target(
        "one row or column, of the copy's bandwidth",
        "cold",
        "bandwidth",
        0.85,
        ("skinny_m_1x4096x4096", "skinny_n_4096x1x4096"),
    ),
)

DISPATCH = (
    "issue: see the profile, of the default at 4096 cubed. What is lost are dispatch stalls, many of them where the "
    "scheduler changes between its two warps, which loses the operands kept for reuse (dispatch_near_switch_pct); "
    "nearly all of the loop are multiply-adds already (ffma_share). inner_loop.json has what was tried there"
)
CAUSES = {
    "suite": "shapes that multiply-adds bound, where cuBLAS too is near what issue slots allow: see the groups",
    "cube_4096x4096x4096": DISPATCH,
    "cube_8192x8192x8192": DISPATCH,
    "cube_1024x1024x1024": "latency: 64 tiles of 128x128 on 132 SMs, so that clusters of two share the depth; "
    "launch of clusters and filling of the pipeline are paid once in a short time, and reads of shared memory wait "
    "(short_scoreboard) with thread tiles that are small enough to fill the SMs",
    "skinny_m_16x14336x4096": "memory: it moves its data nearly at the large copy's rate (dram_bytes_per_s), and "
    "cuBLAS's own kernel is better here than at 16x4096x4096",
}
"""What holds a missed shape; `suite` stands for the mean. Inferred from the kernel, the figures and the profiles."""

TRIED = ("KIND", "LOAD", "STAGES", "SLICEK", "CLUSTER", "STREAM")
"""Parameters whose values are counted in what was tried, beside the tile."""


def check_targets(suite: dict[str, Any], trials: Sequence[TrialRecord]) -> list[dict[str, Any]]:
    """Each target with what was measured, and of missed ones what was tried, by the search's trials.

    Raises KeyError where a missed shape has no cause.
    """
    return [_checked(target, suite, trials) for target in TARGETS]


def _checked(target: Target, suite: dict[str, Any], trials: Sequence[TrialRecord]) -> dict[str, Any]:
    measured = _measured(target, suite)
    missed = {name: figures for name, figures in measured.items() if figures["measured"] < target.least}
    told: dict[str, Any] = {
        "target": target.name,
        "mode": target.mode,
        "least": target.least,
        "met": not missed,
        "measured": measured if target.figure != "worst" else dict([min(measured.items(), key=_figure)]),
    }
    if missed:
        told["missed"] = [
            {
                "where": name,
                **figures,
                "limiter": CAUSES[name],
                **profiled(name),
                "tried": tried(name, trials),
            }
            for name, figures in sorted(missed.items(), key=_figure)
        ]
    return told


def profiled(name: str) -> dict[str, Any]:
    """Counters at a shape, of our kernel and those of cuBLAS, where there are any."""
    sizes = json.loads(PROFILES.read_text(encoding="utf-8"))["sizes"]
    found = sizes.get(name.rpartition("_")[2])
    return {"profile": found} if found else {}


def tried(name: str, trials: Sequence[TrialRecord]) -> dict[str, Any]:
    """How many configurations the search tried at a shape, and how often which tile and which values."""
    size = name.rpartition("_")[2]
    found = [one.config for one in trials if name == "suite" or one.problem.label == size]
    tiles = Counter(f"{config['BM']}x{config['BN']}" for config in found)
    values = {key: dict(Counter(str(config[key]) for config in found).most_common()) for key in TRIED}
    return {"trials": len(found), "tile": dict(tiles.most_common(5)), **values}


def _figure(item: tuple[str, dict[str, Any]]) -> float:
    return float(item[1]["measured"])


def _measured(target: Target, suite: dict[str, Any]) -> dict[str, dict[str, Any]]:
    if target.figure == "mean":
        means = {
            group: round(rivals[target.rival]["mean"], 4)
            for group, rivals in suite["summary"][target.mode]["groups"].items()
        }
        return {"suite": {"measured": means.pop("all"), "groups": means}}
    found = {}
    for shape in suite["shapes"]:
        if target.shapes and shape["name"] not in target.shapes:
            continue
        (mode,) = (one for one in shape["modes"] if one["mode"] == target.mode)
        entries = {entry["name"]: entry for entry in mode["entries"]}
        tuned, rival = entries["tuned"], entries[target.rival]
        share = tuned["gbps"] / suite["copy_gbps"]
        ratio = rival["time_ms"] / tuned["time_ms"]
        found[shape["name"]] = {
            "measured": round(share if target.figure == "bandwidth" else ratio, 4),
            "tuned_ms": tuned["time_ms"],
            f"{target.rival}_ms": rival["time_ms"],
            "gflops": round(tuned["gflops"]),
            "of_copy_bandwidth": round(share, 3),
            "tiles": tiles(shape["sizes"], tuned["config"]),
            "config": tuned["config"],
        }
    return found


def tiles(sizes: Sequence[int], config: str) -> int | None:
    """How many tiles of C a configuration of the kind `tile` has."""
    values = dict(part.split("=") for part in config.split(","))
    if values["KIND"] != "tile":
        return None
    return -(-sizes[0] // int(values["BM"])) * -(-sizes[1] // int(values["BN"]))


def profile(text: str, source: str) -> dict[str, Any]:
    """Counters, stalls and opcodes from two pages of Nsight Compute; raises ValueError where they hold no loop."""
    kernel = re.search(r"^  (\w+) \((\d+), .*\)x\((\d+), .*\), Context.*CC ([\d.]+)", text, re.MULTILINE)
    if not kernel:
        raise ValueError("no kernel in the details page")
    found: dict[str, Any] = {
        "kernel": kernel[1],
        "grid": int(kernel[2]),
        "block": int(kernel[3]),
        "compute_capability": kernel[4],
    }
    for name, (label, unit) in COUNTERS.items():
        value = re.search(rf"^ +{re.escape(label)} +{re.escape(unit)} +([\d.,]+) *$", text, re.MULTILINE)
        if value:
            found[name] = float(value[1].replace(",", ""))
    pipe = re.search(r"FMA is the highest-utilized pipeline \(([\d.]+)%\)", text)
    if pipe:
        found["fma_pipe_pct"] = float(pipe[1])
    shared = re.search(SHARED, text)
    if shared:
        found["shared_wavefronts"] = int(float(shared[3]))
        found["excessive_shared_wavefronts"] = int(float(shared[1]))
    return {**found, "loop": main_loop(list(csv.reader(source.splitlines())))}


def main_loop(rows: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Stall shares of the main loop's samples, and by opcode, in percent; the second row holds the columns' names."""
    head = next((row for row in rows if "Instructions Executed" in row), None)
    if head is None:
        raise ValueError("no instructions in the source page")
    table = [dict(zip(head, row, strict=True)) for row in rows if len(row) == len(head) and row is not head]
    most = max(_number(row["Instructions Executed"]) for row in table)
    loop = [row for row in table if _number(row["Instructions Executed"]) > LOOP * most]
    stalls = [name for name in head if name.startswith("stall_") and "Not Issued" not in name]
    total = sum(_number(row["# Samples"]) for row in loop)
    by_stall = Counter({name: sum(_number(row[name]) for row in loop) for name in stalls})
    instructions: Counter[str] = Counter()
    samples: Counter[str] = Counter()
    for row in loop:
        opcode = next(word for word in row["Source"].split() if not word.startswith("@")).split(".")[0]
        instructions[opcode] += 1
        samples[opcode] += round(_number(row["# Samples"]))
    dispatch = by_stall["stall_dispatch"]
    switching = [place for place, row in enumerate(loop) if _number(row["stall_not_selected"]) > SWITCH]
    near = {place + step for place in switching for step in (0, 1) if place + step < len(loop)}
    at_switch = sum(_number(loop[place]["stall_dispatch"]) for place in near)
    return {
        "instructions": len(loop),
        "ffma_share": round(instructions["FFMA"] / len(loop), 4),
        "samples": round(total),
        "share_of_all_samples": round(total / sum(_number(row["# Samples"]) for row in table), 4),
        "stall_pct": {
            name.removeprefix("stall_"): round(100 * count / total, 2)
            for name, count in by_stall.most_common()
            if count >= total / 1000
        },
        "dispatch_near_switch_pct": round(100 * at_switch / dispatch, 1) if dispatch else None,
        "by_opcode": {
            name: {"instructions": instructions[name], "samples_pct": round(100 * count / total, 2)}
            for name, count in samples.most_common(8)
        },
    }


def _number(text: str) -> float:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return 0.0


def search_trials() -> list[TrialRecord]:
    """Those of the study."""
    return [one for one in read_records(TRIALS) if one.round is Round.SEARCH]


def main() -> int:
    """Writes the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=Path, help="details page of Nsight Compute")
    parser.add_argument("--source", type=Path, help="source page, CSV")
    parser.add_argument("--commit", help="of the profiled kernel")
    parser.add_argument("--note", action="append", default=[])
    options = parser.parse_args()
    suite = json.loads(SUITE.read_text(encoding="utf-8"))
    document = json.loads(LIMITER.read_text(encoding="utf-8")) if LIMITER.exists() else {"profiles": []}
    if options.text:
        found = profile(options.text.read_text(), options.source.read_text())
        document["profiles"] = [{"commit": options.commit, "notes": options.note, **found}]
    where = {key: suite["provenance"][key] for key in ("commit", "kernel_hash", "gpu", "driver", "nvrtc")}
    document["provenance"] = {**where, "date": suite["shapes"][0]["created"]}
    document["targets"] = check_targets(suite, search_trials())
    LIMITER.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    for told in document["targets"]:
        print("met   " if told["met"] else "missed", told["target"])
    return 0


if __name__ == "__main__":
    sys.exit(main())

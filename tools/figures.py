"""Writes the figures of README.md and its pictures from the recorded studies, so that none is typed by hand.

python tools/figures.py            # rewrites README.md between its markers, and the pictures in docs/images
python tools/figures.py --check    # exit 1 where they are not what the studies say
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SUMMARY = ROOT / "studies" / "h200" / "sgemm" / "summary.json"
BY_PYTORCH = SUMMARY.with_name("cublas_by_pytorch.json")
README = ROOT / "README.md"
PICTURE = ROOT / "docs" / "images" / "sgemm_h200.svg"
BEGIN, END = "<!-- figures: written by tools/figures.py -->", "<!-- end of figures -->"
SUITE = ROOT / "studies" / "h200" / "suite.json"
"""What `autotune bench --suite sgemm --out` wrote; nothing is drawn where it is missing."""
SUITE_PICTURE = ROOT / "docs" / "images" / "suite_h200.svg"
RIVALS = {"cublas": "cublasSgemm", "cublaslt": "best of cuBLASLt"}
COLOURS = {"cublas": "#2a7d4f", "cublaslt": "#3b6ea8"}


def table(summary: dict[str, Any]) -> str:
    """The figures as Markdown."""
    where = summary["provenance"]
    lines = [
        "| M x N x K | autotune, cold | cuBLAS, cold | faster by | autotune, warm | cuBLAS, warm | faster by |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for size, figures in summary["beside_cublas"].items():
        cells = [size]
        for mode in ("cold", "warm"):
            timed = figures[mode]
            cells += [f"{timed['ours_ms']:.4g} ms", f"{timed['cublas_ms']:.4g} ms", f"{timed['ratio']:.2f} x"]
        lines.append("| " + " | ".join(cells) + " |")
    lines += [
        "",
        f"{where['gpu']}, driver {where['driver']}, NVRTC {where['nvrtc']}, {summary['date'][:10]}, "
        f"protocols {' and '.join(where['protocol'])}, cuBLAS in FP32 without TF32, measured in turn in one run; "
        f"{summary['search']['4096']['measured']} configurations tried per size. "
        "Recorded in [studies/h200/sgemm](studies/h200/sgemm).",
        "",
        by_pytorch(summary),
    ]
    return "\n".join(lines)


def by_pytorch(summary: dict[str, Any]) -> str:
    """How the warm times compare with cuBLAS called by PyTorch, which is faster at small sizes than a plain call."""
    told = json.loads(BY_PYTORCH.read_text(encoding="utf-8"))
    texts = []
    for size, samples in told["samples_ms"].items():
        theirs = statistics.median(samples)
        ratio = theirs / summary["beside_cublas"][size]["warm"]["ours_ms"]
        texts.append(f"{size} {theirs:.4g} ms ({ratio:.2f} x)")
    return (
        "The table's cuBLAS is a plain `cublasSgemm` with a 32 MiB workspace. Called by PyTorch "
        f"in another run, warm, it took: {', '.join(texts)}. "
        "Why the two differ at small sizes is not known yet."
    )


def picture(summary: dict[str, Any]) -> str:
    """Bars: the rate of each size beside cuBLAS, cold, as share of cuBLAS."""
    rows = [(size, figures["cold"]["ratio"]) for size, figures in summary["beside_cublas"].items()]
    left, scale, height = 150, 200, 34
    width = left + int(scale * max(2.0, *(ratio for _, ratio in rows))) + 80
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height * len(rows) + 62}" '
        'font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        '<text x="10" y="20" font-weight="bold">FP32 matrix product on an H200: speed over cublasSgemm, cold L2</text>',
    ]
    for number, (size, ratio) in enumerate(rows):
        y = 36 + height * number
        colour = "#2a7d4f" if ratio >= 1 else "#b5542b"
        parts += [
            f'<text x="{left - 8}" y="{y + 17}" text-anchor="end">{size}</text>',
            f'<rect x="{left}" y="{y}" width="{scale * ratio:.1f}" height="24" fill="{colour}"/>',
            f'<text x="{left + scale * ratio + 6:.1f}" y="{y + 17}">{ratio:.2f}x</text>',
        ]
    bottom = 36 + height * len(rows)
    parts += [
        f'<line x1="{left + scale}" y1="30" x2="{left + scale}" y2="{bottom}" stroke="#444" stroke-dasharray="4 3"/>',
        f'<text x="{left + scale}" y="{bottom + 16}" text-anchor="middle" fill="#444">cublasSgemm</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def suite_table(suite: dict[str, Any]) -> str:
    """The geometric means over the suite and its groups as Markdown, and where they come from."""
    where, modes = suite["provenance"], suite["summary"]
    shown = [(mode, rival) for mode in modes for rival in RIVALS]
    titles = [f"{mode}, over {RIVALS[rival]}" for mode, rival in shown]
    lines = [
        "| shapes | how many | " + " | ".join(titles) + " | worst shape |",
        "|---|---:|" + "---:|" * len(shown) + "---|",
    ]
    first = next(iter(modes))
    for group, rivals in modes[first]["groups"].items():
        means = [modes[mode]["groups"].get(group, {}).get(rival) for mode, rival in shown]
        count = max((mean["shapes"] for mean in means if mean), default=0)
        cells = [f"{mean['mean']:.2f} x" if mean else "-" for mean in means]
        worst = rivals.get("cublas")
        last = (
            f"{worst['worst_shape']} {worst['worst']:.2f} x ({first}, over {RIVALS['cublas']})"
            if worst
            else "-"
        )
        lines.append("| " + " | ".join([group, str(count), *cells, last]) + " |")
    dates = sorted(shape["created"] for shape in suite["shapes"])
    again = "; ".join(
        f"{mode} {told['same_kernel_twice'][0]:.3f} to {told['same_kernel_twice'][1]:.3f}"
        for mode, told in modes.items()
        if told["same_kernel_twice"]
    )
    copy = f", copy from cold memory {suite['copy_gbps']:,.0f} GB/s" if suite["copy_gbps"] else ""
    lines += [
        "",
        f"Geometric means over the {len(suite['shapes'])} measured shapes of suite `{where['suite']}`, each counting "
        "the same: times of the library over times of autotune, all measured in turn and checked against float64. "
        f"{where['gpu']}, driver {where['driver']}, NVRTC {where['nvrtc']}, {dates[0][:10]}{copy}. "
        f"The same kernel twice: {again}. Recorded in [studies/h200/suite.json](studies/h200/suite.json).",
    ]
    if suite["left_out"]:
        lines.append(f"Not measured: {', '.join(suite['left_out'])}.")
    failed = suite_failures(suite)
    if failed:
        lines.append(f"Without a time: {'; '.join(failed)}.")
    lines += ["", f"![Speed over the libraries, shape by shape](docs/images/{SUITE_PICTURE.name})"]
    return "\n".join(lines)


def suite_failures(suite: dict[str, Any]) -> list[str]:
    """Contestants that have no time, with their shapes."""
    return [
        f"{failed['name']} at {shape['name']} ({mode['mode']})"
        for shape in suite["shapes"]
        for mode in shape["modes"]
        for failed in mode["failed"]
    ]


def suite_ratio(mode: dict[str, Any], rival: str) -> float | None:
    """How many times as long as the tuned kernel a library takes."""
    times = {entry["name"]: entry["time_ms"] for entry in mode["entries"]}
    return times[rival] / times["tuned"] if rival in times and "tuned" in times else None


def suite_picture(suite: dict[str, Any]) -> str:
    """Bars for every shape and library in the first mode recorded."""
    mode = next(iter(suite["summary"]))
    rows = [
        (shape["name"], {rival: suite_ratio(one, rival) for rival in RIVALS})
        for shape in suite["shapes"]
        for one in shape["modes"]
        if one["mode"] == mode
    ]
    largest = max((ratio for _, ratios in rows for ratio in ratios.values() if ratio), default=1.0)
    left, scale, bar = 190, 560 / max(2.0, largest), 8
    height = 2 * bar + 6
    bottom = 52 + height * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + 640}" height="{bottom + 28}" '
        'font-family="sans-serif" font-size="10">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="10" y="18" font-size="13" font-weight="bold">FP32 matrix products on {suite["provenance"]["gpu"]}: '
        f"speed over the libraries, {mode} L2</text>",
    ]
    for number, (rival, name) in enumerate(RIVALS.items()):
        x = left + 160 * number
        parts += [
            f'<rect x="{x}" y="28" width="10" height="10" fill="{COLOURS[rival]}"/>',
            f'<text x="{x + 14}" y="37">{name}</text>',
        ]
    for number, (name, ratios) in enumerate(rows):
        y = 48 + height * number
        parts.append(f'<text x="{left - 8}" y="{y + bar + 4}" text-anchor="end">{name}</text>')
        for place, (rival, ratio) in enumerate(ratios.items()):
            if ratio is None:
                continue
            top, width = y + bar * place, scale * ratio
            parts += [
                f'<rect x="{left}" y="{top}" width="{width:.1f}" height="{bar - 1}" fill="{COLOURS[rival]}"/>',
                f'<text x="{left + width + 4:.1f}" y="{top + 7}" font-size="8">{ratio:.2f}x</text>',
            ]
    x = left + scale
    parts += [
        f'<line x1="{x:.1f}" y1="44" x2="{x:.1f}" y2="{bottom}" stroke="#444" stroke-dasharray="4 3"/>',
        f'<text x="{x:.1f}" y="{bottom + 14}" text-anchor="middle" fill="#444">as fast</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def wanted_files() -> dict[Path, str]:
    """What each file should hold."""
    summary = json.loads(SUMMARY.read_text(encoding="utf-8"))
    figures, files = table(summary), {PICTURE: picture(summary)}
    if SUITE.exists():
        suite = json.loads(SUITE.read_text(encoding="utf-8"))
        figures = f"{suite_table(suite)}\n\n{figures}"
        files[SUITE_PICTURE] = suite_picture(suite)
    before, rest = README.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    return {README: f"{before}{BEGIN}\n{figures}\n{END}{after}", **files}


def main() -> int:
    """Rewrites or checks."""
    wanted = wanted_files()
    if "--check" in sys.argv[1:]:
        return int(
            any(not path.exists() or path.read_text(encoding="utf-8") != new for path, new in wanted.items())
        )
    for path, new in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Writes the figures of README.md and docs pages, and their pictures, from the recorded studies: none is typed by hand.

python tools/figures.py            # rewrites the pages between their markers, and the pictures in docs/images
python tools/figures.py --check    # exit 1 where they are not what the studies say
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
PICTURE = ROOT / "docs" / "images" / "sgemm_h200.svg"
BEGIN, END = "<!-- figures: written by tools/figures.py -->", "<!-- end of figures -->"
SUITE = ROOT / "studies" / "h200" / "suite.json"
"""What `autotune bench --suite sgemm --out` wrote."""
LADDER = ROOT / "studies" / "h200" / "ladder.json"
"""What `autotune ladder --save` wrote."""
LADDER_PAGE = ROOT / "docs" / "ladder.md"
LADDER_PICTURE = ROOT / "docs" / "images" / "ladder_h200.svg"
EPILOGUE = ROOT / "studies" / "h200" / "epilogue.json"
"""What tools/gpu/epilogue.py wrote."""
EPILOGUE_PAGE = ROOT / "docs" / "sgemm.md"
SUITE_PICTURE = ROOT / "docs" / "images" / "suite_h200.svg"
RIVALS = {"cublas": "cublasSgemm", "cublaslt": "the best of cuBLASLt"}
COLOURS = {"cublas": "#2a7d4f", "cublaslt": "#3b6ea8"}


def headline(suite: dict[str, Any]) -> str:
    """The means over the whole suite, and the worst shape, in two sentences."""
    mode = next(iter(suite["summary"]))
    everything = suite["summary"][mode]["groups"]["all"]
    where = suite["provenance"]
    means, worst = [], []
    for rival, name in RIVALS.items():
        told = everything[rival]
        means.append(f"**{told['mean']:.2f} times** as fast as {name}")
        worst.append(f"{told['worst_shape']}, at {told['worst']:.2f} of {name}")
    return (
        f"FP32 SGEMM on an {where['gpu']}, {len(suite['shapes'])} shapes, {mode} L2: in the geometric mean "
        f"{' and '.join(means)}. The worst shapes are {' and '.join(worst)}."
    )


def cube_table(suite: dict[str, Any]) -> str:
    """Times of the cubes in every mode, as Markdown."""
    modes = list(suite["summary"])
    titles = [f"{name}, {mode}" for mode in modes for name in ("autotune", *RIVALS.values(), "faster by")]
    lines = ["| M x N x K | " + " | ".join(titles) + " |", "|---|" + "---:|" * len(titles)]
    for shape in suite["shapes"]:
        if shape["group"] != "cube":
            continue
        cells = ["x".join(map(str, shape["sizes"]))]
        for mode in shape["modes"]:
            times = {entry["name"]: entry["time_ms"] for entry in mode["entries"]}
            ratio = suite_ratio(mode, "cublas")
            cells += [told_ms(times.get(name)) for name in ("tuned", *RIVALS)]
            cells.append(f"{ratio:.2f} x" if ratio else "-")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", f"Faster by: over {RIVALS['cublas']}."])


def told_ms(time_ms: float | None) -> str:
    """Four digits; microseconds where that is shorter."""
    if time_ms is None:
        return "-"
    return f"{time_ms:.4g} ms" if time_ms >= 0.1 else f"{1000 * time_ms:.4g} µs"


def ladder_table(ladder: dict[str, Any]) -> str:
    """The steps' rates as Markdown, beside the production kernel, cuBLAS and the peak of multiply-adds."""
    where, vendor = ladder["provenance"], ladder["vendor"]
    lines = ["| step | ms | GFLOP/s | % cuBLAS | % peak | limiter |", "|---|---:|---:|---:|---:|---|"]
    for entry in (*ladder["steps"], ladder["production"], vendor):
        rate = entry["gflops"]
        shares = [100 * rate / vendor["gflops"], 100 * rate / ladder["peak_gflops"]]
        cells = [entry["name"], f"{entry['time_ms']:.4g}", f"{rate:,.0f}", *(f"{one:.1f}%" for one in shares)]
        lines.append("| " + " | ".join([*cells, entry["limiter"] or "-"]) + " |")
    rates = [entry["gflops"] for entry in ladder["steps"]]
    slower = [
        f"{entry['name']} ({entry['gflops'] / before:.2f} x)"
        for entry, before in zip(ladder["steps"][1:], rates, strict=False)
        if entry["gflops"] < before
    ]
    tried = sum(len(entry["trials"]) for entry in ladder["steps"])
    lines += [
        "",
        f"{where['gpu']}, driver {where['driver']}, NVRTC {where['nvrtc']}, {where['date'][:10]}, commit "
        f"{where['commit']}, {ladder['size']}, {where['protocol']}; {tried} configurations tried over all steps; peak "
        f"of multiply-adds in the same run {ladder['peak_gflops']:,.0f} GFLOP/s. Slower than the step before: "
        f"{', '.join(slower) or 'none'}. {'. '.join(note[:1].upper() + note[1:] for note in ladder['notes'])}. "
        "Recorded in [studies/h200/ladder.json](../studies/h200/ladder.json).",
        "",
        f"![GFLOP/s of each step](images/{LADDER_PICTURE.name})",
    ]
    return "\n".join(lines)


def ladder_picture(ladder: dict[str, Any]) -> str:
    """Bars: the rate of each step, the production kernel and cuBLAS, with a line at cuBLAS."""
    vendor = ladder["vendor"]
    rows = [(entry["name"], entry["gflops"]) for entry in (*ladder["steps"], ladder["production"], vendor)]
    left, height, scale = 180, 22, 520 / max(rate for _, rate in rows)
    bottom = 34 + height * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + 610}" height="{bottom + 10}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="10" y="20" font-weight="bold">FP32 matrix product, {ladder["size"]}, on '
        f"{ladder['provenance']['gpu']}: GFLOP/s</text>",
    ]
    for number, (name, rate) in enumerate(rows):
        y, colour = 32 + height * number, COLOURS["cublaslt" if name == vendor["name"] else "cublas"]
        parts += [
            f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{name}</text>',
            f'<rect x="{left}" y="{y}" width="{scale * rate:.1f}" height="{height - 5}" fill="{colour}"/>',
            f'<text x="{left + scale * rate + 6:.1f}" y="{y + 13}">{rate:,.0f}</text>',
        ]
    x = left + scale * vendor["gflops"]
    parts += [
        f'<line x1="{x:.1f}" y1="28" x2="{x:.1f}" y2="{bottom}" stroke="#444" stroke-dasharray="4 3"/>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def epilogue_table(epilogue: dict[str, Any]) -> str:
    """Ratios of times as Markdown: what a fused epilogue saves and costs."""
    names = list(next(iter(epilogue["sizes"].values()))["ratios"])
    lines = ["| M x N x K | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    for size, one in epilogue["sizes"].items():
        ratios = [f"{one['ratios'][name]:.3f}" if name in one["ratios"] else "-" for name in names]
        lines.append("| " + " | ".join([size, *ratios]) + " |")
    lines += [
        "",
        f"{epilogue['gpu']}, driver {epilogue['driver']}, NVRTC {epilogue['nvrtc']}, {epilogue['date'][:10]}, commit "
        f"{epilogue['commit']}, warm; A/A is the same kernel twice. Recorded in "
        f"[studies/h200/epilogue.json](../studies/h200/epilogue.json).",
    ]
    return "\n".join(lines)


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
    lines.append(f"[Shape by shape](docs/images/{SUITE_PICTURE.name}).")
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


def suite_picture(suite: dict[str, Any], group: str = "") -> str:
    """Bars for every shape, or every one of a group, and library in the first mode recorded."""
    mode = next(iter(suite["summary"]))
    rows = [
        (shape["name"], {rival: suite_ratio(one, rival) for rival in RIVALS})
        for shape in suite["shapes"]
        for one in shape["modes"]
        if one["mode"] == mode and group in ("", shape["group"])
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
    suite = json.loads(SUITE.read_text(encoding="utf-8"))
    ladder = json.loads(LADDER.read_text(encoding="utf-8"))
    epilogue = json.loads(EPILOGUE.read_text(encoding="utf-8"))
    figures = "\n\n".join([headline(suite), cube_table(suite), suite_table(suite)])
    return {
        README: between_markers(README, figures),
        PICTURE: suite_picture(suite, "cube"),
        SUITE_PICTURE: suite_picture(suite),
        LADDER_PAGE: between_markers(LADDER_PAGE, ladder_table(ladder)),
        LADDER_PICTURE: ladder_picture(ladder),
        EPILOGUE_PAGE: between_markers(EPILOGUE_PAGE, epilogue_table(epilogue)),
    }


def between_markers(page: Path, figures: str) -> str:
    """The page with new figures."""
    before, rest = page.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{figures}\n{END}{after}"


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

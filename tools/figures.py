"""Writes the figures of README.md and its picture from the recorded studies, so that none is typed by hand.

python tools/figures.py            # rewrites README.md between its markers, and docs/images/sgemm_h200.svg
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


def main() -> int:
    """Rewrites or checks."""
    summary = json.loads(SUMMARY.read_text(encoding="utf-8"))
    text = README.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    wanted = {README: f"{before}{BEGIN}\n{table(summary)}\n{END}{after}", PICTURE: picture(summary)}
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

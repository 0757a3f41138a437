"""`autotune new`."""

from __future__ import annotations

import keyword
import re
from pathlib import Path

import click

from autotune.cli.options import json_option
from autotune.cli.output import print_json
from autotune.errors import InputError

SPEC = """\
# y = alpha * x. Names in expressions are the sizes, the parameters and what is derived before.
kernel: NAME
template: NAME/NAME.cu.j2
entry: NAME                     # the function's name in the template

problem:
  sizes: [N]
  dtype: float32
  flops: N
  bytes: 8*N                    # each input read once, each output written once

parameters:                     # what is searched: every combination that is legal
  THREADS: [64, 128, 256, 512, 1024]
  PER_THREAD: {values: [1, 2, 4, 8], doc: elements that a thread computes}

defaults: {THREADS: 256, PER_THREAD: 4}

derived:                        # threads, registers and smem_bytes are held against the GPU's limits
  threads: THREADS
  registers: 16 + 2 * PER_THREAD
  block_elements: THREADS * PER_THREAD

constraints:
  - {rule: block_elements >= 128, because: smaller blocks are never worth their launch}

variants:                       # computed from the sizes; the kernel is compiled once for each value
  GUARD: N % block_elements != 0

launch:
  grid: ["ceil_div(N, block_elements)"]
  block: [THREADS]

arguments:                      # in the order of the function's parameters
  - {in: x, shape: [N]}
  - {out: y, shape: [N]}
  - {scalar: alpha, value: 2.5}
  - {size: N}

reference: scale                # every candidate is verified against it; or module:function, see below
# Built in: REFERENCES.
# A function of yours, in a module that Python can import, takes (arrays, scalars, xp) and returns
# {"y": what y should be}; xp is numpy or cupy.

metrics: {gbytes_per_s: bytes / time_ns}
"""

TEMPLATE = """\
// y = alpha * x. The constants come from the spec; the rest is plain CUDA.
constexpr int kThreads = {{ THREADS }}, kPerThread = {{ PER_THREAD }};
constexpr bool kGuard = {{ GUARD }};  // false: whole blocks cover the array

extern "C" __global__ void __launch_bounds__(kThreads)
NAME(const float* __restrict__ x, float* __restrict__ y, float alpha, int n) {
  const long long first = static_cast<long long>(blockIdx.x) * (kThreads * kPerThread) + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const long long at = first + i * kThreads;
    if (!kGuard || at < n) y[at] = alpha * x[at];
  }
}
"""


@click.command(
    "new",
    epilog="""\b
Examples:
  autotune new scale
  autotune new scale --to my-kernels && cd my-kernels && autotune check scale --run""",
)
@click.argument("name")
@click.option(
    "--to",
    "folder",
    default=".",
    show_default="here",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Project folder to write into.",
)
@json_option
def new_command(name: str, folder: Path, as_json: bool) -> None:
    """Write a first kernel of your own, to be changed: its spec and its template.

    The kernel scales a vector. What stands in its spec is all that is needed to check, search and export it.
    """
    from autotune.references import REFERENCES

    if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name) or keyword.iskeyword(name):
        raise InputError(f"must be a name of letters, digits and underscores, got {name!r}", key="NAME")
    spec = SPEC.replace("REFERENCES", ", ".join(REFERENCES)).replace("NAME", name)
    files = {
        folder / "configs" / "kernels" / f"{name}.yaml": spec,
        folder / "templates" / name / f"{name}.cu.j2": TEMPLATE.replace("NAME", name),
    }
    for path in files:
        if path.exists():
            raise InputError(f"{path} exists already", key="NAME", nearest="another name or --to")
    try:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write below {folder}: {error.strerror}", key="--to") from error
    if as_json:
        print_json({"kernel": name, "files": list(files)})
        return
    for path in files:
        click.echo(path)
    inside = "" if folder.resolve() == Path.cwd() else f" --project {folder}"
    click.echo(f"next: autotune check {name} --run{inside}")
    click.echo(f"then: autotune search --gpu a6000 --kernel {name} --size 1048576{inside}")

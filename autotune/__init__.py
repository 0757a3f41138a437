"""Finds the fastest legal configuration of a templated CUDA kernel on a given GPU and hands it over.

autotune.search("a6000", size=4096)              # measures where that GPU is, predicts where it is not
autotune.best("a6000", 4096).config["BM"]
autotune.export("a6000", "sgemm_a6000.cuh")
autotune.load("sgemm")(A, B)                     # on device arrays
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autotune.answers import best, export
    from autotune.api import search
    from autotune.runtime import load
    from autotune.spec.load import load_spec

__version__ = "0.1.0"
__all__ = ["__version__", "best", "export", "load", "load_spec", "search"]

# Imported on use: the command line's --help must not pay for what a search needs.
_HOMES = {
    "best": "autotune.answers",
    "export": "autotune.answers",
    "load": "autotune.runtime",
    "load_spec": "autotune.spec.load",
    "search": "autotune.api",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'autotune' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])

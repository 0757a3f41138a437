"""How times are taken: a named, versioned value that is stored with each result."""

from __future__ import annotations

from dataclasses import dataclass, replace

PROTOCOL_VERSION = 1
"""Raised whenever the meaning of a stored time changes."""


@dataclass(frozen=True)
class Protocol:
    """The measuring rules of one study.

    Cold rotates over buffer sets that together exceed the L2 several times and flushes the L2 outside the timed
    region; warm runs over one set again and again.
    """

    mode: str = "cold"
    """`cold` or `warm`."""
    data: str = "normal"
    """`normal`, `uniform`, `ones` or `zeros`; seeded."""
    data_seed: int = 1
    warmup_ms: float = 20.0
    """The kernel runs at least this long before its first sample."""
    min_samples: int = 5
    max_samples: int = 50
    precision: float = 0.01
    """Sampling stops when the median is known to this relative half-width (95%)."""
    sample_ms: float = 1.0
    """Kernels shorter than this are timed as a graph of as many calls as fill it."""
    measure_limit_s: float = 2.0
    """Sampling one kernel stops here, however noisy."""
    run_limit_s: float = 10.0
    """One verify or measure step is killed after this; shorter where a display watchdog is active."""
    racing: bool = True
    """Whether a candidate is sampled only until it is known to be slower than the best so far."""

    @property
    def key(self) -> str:
        """What makes two stored times comparable, e.g. `cold/normal-1/1`."""
        return f"{self.mode}/{self.data}-{self.data_seed}/{PROTOCOL_VERSION}"

    def warm(self) -> Protocol:
        """The same protocol, timing from a warm L2."""
        return replace(self, mode="warm")

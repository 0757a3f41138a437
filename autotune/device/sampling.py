"""When to stop taking samples, and what samples are worth: arithmetic only."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from autotune.protocol import Protocol
from autotune.records import ClockReading

DROP_FACTOR = 1.25
"""A kernel this much slower than the best, in every sample, is not measured further."""
MIN_DROP_SAMPLES = 2
DROP_AT_ONCE = 1.5
"""A kernel this much slower than the best is dropped after its first sample."""
DOUBT = 1.02
"""A kernel slower than this in `MIN_DECIDED` samples is not the best: its rank needs no further ones."""
MIN_DECIDED = 3
PAUSE_S = 0.1
"""An idle GPU lowers its clocks after about this long."""
THROTTLED_BELOW = 0.9
"""Share of the maximum SM clock below which a measurement is flagged."""
CONFIDENCE = 0.95


class BusyTime:
    """How long a GPU has been at work without a pause: after one, its clocks take a while to come back."""

    def __init__(self) -> None:
        self._since = self._until = -math.inf

    def note(self, begun_s: float, ended_s: float) -> None:
        """Work was queued at `begun_s` and over by `ended_s`, both on one steady clock."""
        if begun_s - self._until > PAUSE_S:
            self._since = begun_s
        self._until = ended_s

    @property
    def lasted_s(self) -> float:
        """Seconds from the end of the last pause to the last work."""
        return self._until - self._since if self._until > -math.inf else 0.0


def half_width(samples: Sequence[float]) -> float:
    """Half the 95% confidence interval of the median, relative to it; infinite for a single sample.

    From order statistics, so it assumes no distribution; up to five samples it is the whole range.
    """
    count = len(samples)
    if count < 2:
        return math.inf
    ordered = sorted(samples)
    cut, tail = 0, 0.5**count
    while cut < (count - 1) // 2 and 2 * tail <= 1 - CONFIDENCE:
        cut += 1
        tail += math.comb(count, cut) * 0.5**count
    low = max(0, cut - 1)
    return (ordered[count - 1 - low] - ordered[low]) / 2 / statistics.median(ordered)


def enough(samples: Sequence[float], protocol: Protocol) -> bool:
    """Whether the median is known well enough, or no more samples are allowed."""
    if len(samples) >= protocol.max_samples:
        return True
    return len(samples) >= protocol.min_samples and half_width(samples) <= protocol.precision


def decided(samples: Sequence[float], best_ms: float | None) -> bool:
    """Whether a kernel has lost against the best, though not by so much that it is dropped."""
    return best_ms is not None and len(samples) >= MIN_DECIDED and min(samples) > DOUBT * best_ms


def clearly_slower(samples: Sequence[float], best_ms: float | None) -> bool:
    """Whether a kernel can be dropped: far behind the best in every sample and beyond their spread."""
    if best_ms is None or not samples:
        return False
    if len(samples) < MIN_DROP_SAMPLES:
        return samples[0] > DROP_AT_ONCE * best_ms
    spread = max(samples) - min(samples)
    return min(samples) > DROP_FACTOR * best_ms and statistics.median(samples) - spread > best_ms


def calls_per_sample(each_ms: float, sample_ms: float, limit: int) -> int:
    """How many calls fill a sample; one where a single call does."""
    return max(1, min(limit, math.ceil(sample_ms / each_ms)))


def turn_order(count: int, round_: int) -> tuple[int, ...]:
    """Who comes when in a round, so that over the rounds nobody is always last or always after the same one.

    A Latin square of Williams: over `count` rounds (twice as many where that is odd) each is once (twice) in
    every place and once (twice) after every other.
    """
    zigzag = [(place + 1) // 2 if place % 2 else count - place // 2 for place in range(count)]
    order = tuple((start + round_) % count for start in zigzag)
    return order[::-1] if count % 2 and round_ // count % 2 else order


def joined(readings: Sequence[ClockReading | None]) -> ClockReading | None:
    """The slowest clock, the highest temperature and every reason seen over several readings."""
    seen = [reading for reading in readings if reading is not None]
    if not seen:
        return None
    reasons = {reason: None for reading in seen for reason in reading.throttle_reasons.split(",") if reason}
    return ClockReading(
        sm_clock_mhz=min(reading.sm_clock_mhz for reading in seen),
        max_sm_clock_mhz=max(reading.max_sm_clock_mhz for reading in seen),
        temperature_c=max(reading.temperature_c for reading in seen),
        throttle_reasons=",".join(reasons),
    )


def sampling_notes(
    samples: Sequence[float], clocks: ClockReading | None, protocol: Protocol
) -> tuple[str, ...]:
    """What a reader should know beside the median: throttling, and a spread wider than asked for."""
    notes = []
    if clocks is not None:
        share = clocks.sm_clock_mhz / clocks.max_sm_clock_mhz if clocks.max_sm_clock_mhz else 1.0
        if clocks.throttle_reasons or share < THROTTLED_BELOW:
            why = f" ({clocks.throttle_reasons})" if clocks.throttle_reasons else ""
            notes.append(f"throttled: SM clock at {share:.0%} of its maximum{why}")
    width = half_width(samples)
    if math.isinf(width):
        notes.append("a single sample")
    elif width > protocol.precision:
        notes.append(f"noisy: median known to {width:.1%} only")
    return tuple(notes)

"""A histogram of durations with fixed buckets."""

from __future__ import annotations

from bisect import bisect_left

BOUNDS_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)


class Histogram:
    """Counts durations by the upper bounds `BOUNDS_S`, in seconds."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self._counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum_s += seconds

    @property
    def count(self) -> int:
        """How many durations were counted."""
        return sum(self._counts)

    def cumulative(self) -> list[tuple[str, int]]:
        """Pairs of upper bound, as text, and the number of durations up to it."""
        pairs, total = [], 0
        for bound, n in zip((*map(str, BOUNDS_S), "+Inf"), self._counts, strict=True):
            total += n
            pairs.append((bound, total))
        return pairs

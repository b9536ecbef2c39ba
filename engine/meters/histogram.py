"""Values counted by size, for times and sizes alike."""

from bisect import bisect_left
from collections.abc import Iterable

from ..stats import Distribution

# all of vLLM's bounds of all its times, and finer ones below for a small model: each millisecond to 10
SECONDS = (
    *(ms / 1000 for ms in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 25, 30, 35, 40, 50, 60, 75, 80)),
    *(0.1, 0.12, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0),
    *(40.0, 50.0, 60.0, 80.0, 120.0, 160.0, 240.0, 480.0, 640.0, 960.0, 1920.0, 2560.0, 7680.0),
)
REQUEST_TOKENS = tuple(step * 10**power for power in range(6) for step in (1, 2, 5))
STEP_TOKENS = (0, *(2**power for power in range(15)))
STEP_SEQUENCES = (0, 1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512)


class Histogram:
    """How many values lay at or below each bound and above the one before, and their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def frozen(self) -> Distribution:
        """As it is now."""
        return Distribution(self.bounds, tuple(self.counts), self.sum)


def total(histograms: Iterable[Histogram]) -> Distribution:
    """All of one kind as one; there must be any."""
    each = list(histograms)
    counts = tuple(map(sum, zip(*(histogram.counts for histogram in each), strict=True)))
    return Distribution(each[0].bounds, counts, sum(histogram.sum for histogram in each))

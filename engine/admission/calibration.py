"""How good forecasts were: what waits turned out to be beside what was foreseen, and a factor that puts them right.

A step model that is wrong by half makes forecasts wrong by half; here that is noticed.
"""

from collections import deque
from statistics import median

KEPT = 63  # late requests
ENOUGH = 8  # of them, before anything is corrected
MOST = 8.0  # no correction is larger, or smaller than one over it
SHORT = 0.05  # seconds: whatever is foreseen or seen, so much is added to both, lest tiny waits count


class Calibration:
    """Owner of late ratios between seen and foreseen waits."""

    def __init__(self) -> None:
        self._ratios: deque[float] = deque(maxlen=KEPT)

    def observe(self, foreseen: float, seen: float) -> None:
        """A request began. foreseen: the wait as forecast, without this factor."""
        ratio = (seen + SHORT) / (foreseen + SHORT)
        self._ratios.append(min(max(ratio, 1 / MOST), MOST))

    @property
    def factor(self) -> float:
        """What a wait that is foreseen has to be multiplied by; 1 before enough was seen."""
        return median(self._ratios) if len(self._ratios) >= ENOUGH else 1.0

    @property
    def spread(self) -> float:
        """The part of late requests whose wait was between half and twice what was foreseen, with the factor."""
        if len(self._ratios) < ENOUGH:
            return 1.0
        factor = self.factor
        return sum(factor / 2 <= ratio <= factor * 2 for ratio in self._ratios) / len(self._ratios)

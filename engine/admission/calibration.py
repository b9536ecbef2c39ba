"""How good forecasts were: times as they turned out beside those foreseen, and what puts the next forecast right.

A step model that is wrong by half makes forecasts wrong by half; here that is noticed. What was given up unfinished
counts as Kaplan and Meier (1958) have it: else all that is known would be of those that were quick.
"""

from collections import deque

KEPT = 127  # late requests
SUPPOSED = (0.25, 0.33, 0.4, 0.5, 0.6, 0.75, 0.9, 1.0, 1.1, 1.33, 1.67, 2.0, 2.5, 3.0, 4.0)  # until enough was seen
MOST = 8.0  # no correction is larger, or smaller than one over it
SHORT = 0.05  # seconds: whatever is foreseen or seen, so much is added to both, lest tiny times count
EARLIEST = 0.1  # the part of times that are earlier than the earliest to be expected
TRUSTED = 0.8  # the part that must not have been earlier, for forecasts to be trusted
JUDGED = 32  # times, before that is asked


class Calibration:
    """Owner of late ratios between seen and foreseen times, and of how often the earliest was right."""

    def __init__(self) -> None:
        supposed = [(ratio, True) for ratio in SUPPOSED]
        self._ratios: deque[tuple[float, bool]] = deque(supposed, maxlen=KEPT)  # and whether it was the end
        self._right: deque[bool] = deque(maxlen=KEPT)
        self._parts: list[tuple[float, float]] = []  # ratios in order, and the part of times that are no longer

    def observe(self, foreseen: float, seen: float) -> None:
        """What was foreseen, without any correction, took so long."""
        self._right.append(seen >= self.at(EARLIEST, foreseen))
        self._enter(foreseen, seen, ended=True)

    def observe_more_than(self, foreseen: float, seen: float) -> None:
        """It was given up after `seen`: nobody knows how long it would have taken."""
        if seen >= self.at(EARLIEST, foreseen):
            self._right.append(True)
        self._enter(foreseen, seen, ended=False)

    def expected(self, foreseen: float) -> float:
        """What to expect instead of what is foreseen: half of all times are longer."""
        return self.at(0.5, foreseen)

    def at(self, part: float, foreseen: float) -> float:
        """The time that this part of all are earlier than."""
        return max(0.0, (foreseen + SHORT) * self._ratio(part) - SHORT)

    @property
    def factor(self) -> float:
        """What a time that is foreseen has to be multiplied by, about."""
        return self._ratio(0.5)

    @property
    def coverage(self) -> float:
        """The part of late requests that were not earlier than the earliest that was expected of them."""
        return sum(self._right) / len(self._right) if self._right else 1.0

    @property
    def is_trusted(self) -> bool:
        """Whether forecasts are good enough to refuse anybody by."""
        return len(self._right) < JUDGED or self.coverage >= TRUSTED

    def _enter(self, foreseen: float, seen: float, *, ended: bool) -> None:
        ratio = (seen + SHORT) / (foreseen + SHORT)
        self._ratios.append((min(max(ratio, 1 / MOST), MOST), ended))
        self._parts = []

    def _ratio(self, part: float) -> float:
        """The ratio that this part of all are below."""
        self._parts = self._parts or _parts(sorted(self._ratios, key=lambda each: (each[0], not each[1])))
        return next((ratio for ratio, below in self._parts if below >= part), self._parts[-1][0])


def _parts(ratios: list[tuple[float, bool]]) -> list[tuple[float, float]]:
    """Each ratio, and the part of times that end up to it."""
    parts, longer = [], 1.0
    for number, (ratio, ended) in enumerate(ratios):
        longer *= 1.0 - ended / (len(ratios) - number)
        parts.append((ratio, 1.0 - longer))
    return parts

"""How many workers are wanted: by what runs, what waits and how soon it is due. Pure; time is handed in.

Deadlines ask for as much work a second as is due by any of them in the time that is left (the processor demand of
Baruah, Rosier and Howell, "Algorithms and complexity concerning the preemptive scheduling of periodic, real-time tasks
on one processor", Real-Time Systems 2, 1990).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

PATIENCE = 10.0  # seconds of one worker's work that may wait before another worker is wanted for it
HOLD = 60.0  # seconds for which fewer workers must have been enough before one leaves
MOST_WANTED = 1000  # also where a deadline is all but here


@dataclass(frozen=True, slots=True)
class Pressure:
    """What there is to do. running: sequences; seats: of one worker. queued: seconds that one worker would take for
    all that waits. due: for each deadline of what waits, soonest first, the seconds left, and the seconds of one
    worker's work due by then.
    """

    running: int
    seats: int
    queued: float = 0.0
    due: Sequence[tuple[float, float]] = ()


def wanted(pressure: Pressure) -> int:
    """How many workers all of that asks for, one at least. Deadlines that have passed ask for nothing."""
    fills = ceil(pressure.running / pressure.seats)
    hurry = max((work / left for left, work in pressure.due if left > 0.0), default=0.0)
    return min(MOST_WANTED, max(1, fills + int(pressure.queued / PATIENCE), ceil(min(hurry, MOST_WANTED))))


class Scale:
    """Owner of how many workers there are to be, within bounds: more at once, fewer one at a time and after a while."""

    def __init__(self, least: int, most: int) -> None:
        self.count = least
        self._least = least
        self._most = most
        self._enough_since: float | None = None  # fewer would do

    def follow(self, wished: int, now: float) -> int:
        """So many are wanted now; how many there are to be."""
        wished = min(max(wished, self._least), self._most)
        if wished >= self.count:
            self.count, self._enough_since = wished, None
        elif self._enough_since is None:
            self._enough_since = now
        elif now - self._enough_since >= HOLD:
            self.count, self._enough_since = self.count - 1, now
        return self.count

    def check(self) -> None:
        assert self._least <= self.count <= self._most, f"{self.count} workers"

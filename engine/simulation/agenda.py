"""What is due when: a heap by instant, then by kind, then as things were entered. After SimPy's event queue."""

from enum import IntEnum
from heapq import heappop, heappush
from math import inf

from .trace import Arrival


class Kind(IntEnum):
    """What happens; of things at one instant the smaller comes first."""

    ARRIVAL = 0
    CANCEL = 1
    EXPIRY = 2  # after whoever could still be sent at that instant


class Agenda:
    """Arrivals, cancels and expiries to come, each of one request of the trace."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, Kind, int, Arrival]] = []
        self._entered = 0

    def enter(self, at: float, kind: Kind, arrival: Arrival) -> None:
        heappush(self._heap, (at, kind, self._entered, arrival))
        self._entered += 1

    @property
    def next_at(self) -> float:
        """When the next thing is due; inf if there is none."""
        return self._heap[0][0] if self._heap else inf

    def is_due(self, at: float, last: Kind = Kind.EXPIRY) -> bool:
        """Whether something of a kind up to `last` is due exactly at `at`."""
        return bool(self._heap) and self._heap[0][0] == at and self._heap[0][1] <= last

    def pop(self) -> tuple[Kind, Arrival]:
        """Take the next thing out."""
        _, kind, _, arrival = heappop(self._heap)
        return kind, arrival

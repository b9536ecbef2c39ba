"""Static batching of one simulated worker: asks a BatchGate, and remembers when the batch under way should end."""

from collections.abc import Collection
from math import inf

from ..stepping.batch_gate import BatchGate, Release
from .trace import Arrival


class Batching:
    """wake: when the gate wants to be asked again, whatever happens until then."""

    def __init__(self, gate: BatchGate) -> None:
        self.wake = inf
        self._gate = gate
        self._free_at = 0.0

    def release(self, waiting: Collection[Arrival], *, idle: bool, now: float) -> int:
        """How many of those who wait may leave now."""
        arrivals = [each.at for each in waiting]
        deadlines = [each.at + each.deadline for each in waiting if each.deadline is not None]
        decision = self._gate.decide(arrivals, deadlines, idle=int(idle), now=now)
        if isinstance(decision, Release):
            self.wake, self._free_at = inf, now + self._gate.compute
            return decision.count
        self.wake = decision.at
        return 0

    def can_meet(self, arrival: Arrival, ahead: int, now: float) -> bool:
        """Whether a newcomer with `ahead` others before it can have its answer in time."""
        if arrival.deadline is None:
            return True
        return self._gate.earliest_end(ahead, [self._free_at], now) <= arrival.at + arrival.deadline

    def last_start(self, deadline: float) -> float:
        """After this instant a deadline can't be met by who waits still."""
        return self._gate.last_start(deadline)

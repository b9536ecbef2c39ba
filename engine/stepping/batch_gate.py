"""When a static batch leaves: full, or its oldest has waited the delay, or to wait longer would break a deadline.

Pure, over instants in seconds: who is in the batch is the waiting room's business, and that a worker takes in nobody
until its batch has ended is the scheduler's (StepSettings.static). An arrival starts no timer of its own: the oldest
one's counts, also while all workers are busy, so what is overdue when one comes free leaves at once.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from heapq import heapify, heapreplace
from math import inf


@dataclass(frozen=True, slots=True)
class Release:
    """So many leave now, together, for one idle worker."""

    count: int


@dataclass(frozen=True, slots=True)
class NotBefore:
    """Nobody leaves before `at`, unless somebody arrives or a worker comes free; inf: only such an event helps."""

    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchGate:
    """size: requests of a full batch. delay: seconds the oldest may wait by choice. compute: seconds a batch takes."""

    size: int
    delay: float
    compute: float

    def decide(
        self, arrivals: Collection[float], deadlines: Iterable[float], *, idle: int, now: float
    ) -> Release | NotBefore:
        """What to do now with those who wait: `arrivals` of all of them, `deadlines` of those that have one.

        Ask again after a Release: it is for one worker. A deadline that is lost already (see last_start) still lets the
        batch go; taking such a request out before is the caller's business.
        """
        if not arrivals or not idle:
            return NotBefore(inf)
        if len(arrivals) >= self.size:
            return Release(self.size)
        due = min(min(arrivals) + self.delay, self.last_start(min(deadlines, default=inf)))
        return Release(len(arrivals)) if due <= now else NotBefore(due)

    def last_start(self, deadline: float) -> float:
        """The last instant at which a batch may leave and still meet `deadline`: who waits after it can expire."""
        return deadline - self.compute

    def earliest_end(self, ahead: int, free_at: Collection[float], now: float) -> float:
        """When a newcomer with `ahead` others before it would be done at the earliest.

        free_at: for each worker the instant its batch ends, in the past if it is idle. To wait by choice costs nothing
        here: a deadline ends that. So a deadline before this instant is unattainable.
        """
        free = [max(at, now) for at in free_at]
        heapify(free)
        for _ in range(ahead // self.size):
            heapreplace(free, free[0] + self.compute)
        return free[0] + self.compute

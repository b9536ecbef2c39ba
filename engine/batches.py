"""Static batching of one worker, as a front asks for it: how many may leave now, and when to be asked again.

Pure. It asks a BatchGate, and remembers what the gate must know: whether the worker's batch has ended, and what batches
take. Who goes into a batch is the waiting room's business.
"""

from collections.abc import Iterable
from dataclasses import replace
from math import inf, nextafter

from .admission.forecast import Prospect, fixed
from .admission.waiting_time import IdleTime
from .door import Report
from .request import Request
from .stepping.batch_gate import BatchGate, Release

LATE = 0.002  # seconds that a timer may be late: a deadline ends the wait by choice so much before its last instant
SMOOTHING = 0.25  # the newest batch's part in what batches are said to take


class Batches:
    """compute: seconds that every batch takes at least; None: they are measured.

    wake: when the gate wants to be asked again, whatever happens until then. idle: how long the worker has been idle.
    Nothing measured yet counts as endless, so that who has a deadline is not kept waiting by choice.
    """

    def __init__(self, size: int, delay: float, compute: float | None = None) -> None:
        self.wake = inf
        self.idle = IdleTime()
        self.least = compute or 0.0
        self._gate = BatchGate(size=size, delay=delay, compute=inf if compute is None else compute)
        self._measures = compute is None
        self._sent_at: float | None = None  # a batch is under way since
        self._answered = True  # the last Orders, by a Report

    @property
    def is_idle(self) -> bool:
        """Whether the worker has nothing to do, and has said so."""
        return self._sent_at is None and self._answered

    def release(self, waiting: Iterable[Request], now: float) -> int:
        """How many of those who wait may leave now."""
        self.wake = inf
        self.idle.set(self.is_idle, now)
        if not self.is_idle:
            return 0
        requests = list(waiting)
        deadlines = (at - LATE for each in requests for at in (each.deadline, each.ttft_deadline) if at is not None)
        decision = self._gate.decide([each.arrival for each in requests], deadlines, idle=1, now=now)
        if isinstance(decision, Release):
            return decision.count
        self.wake = decision.at
        return 0

    def send(self, admits: int, now: float) -> None:
        """Orders leave, with so many admissions."""
        self._answered = False
        if admits:
            assert self._sent_at is None, "a batch is sent to a busy worker"
            self._sent_at = now
        self.idle.set(False, now)

    def report(self, report: Report, ordered: int, now: float) -> None:
        """Take a Report; ordered: the number of the last Orders."""
        self._answered = report.orders == ordered
        if self._answered and not report.gauges.running + report.gauges.waiting:
            if self._sent_at is not None and self._measures:
                self._measure(now - self._sent_at)
            self._sent_at = None
        self.idle.set(self.is_idle, now)

    def lose(self, now: float) -> None:
        """The worker is gone, and its batch with it; another one begins with nothing."""
        self._sent_at, self._answered = None, True
        self.idle.set(False, now)

    def last_start(self, deadline: float) -> float:
        """The first instant at which who waits can't meet a deadline any more."""
        return nextafter(deadline - self.least, inf)

    def prospect(self, ahead: int, now: float) -> Prospect | None:
        """What a newcomer with `ahead` others before it may expect; None where it was not said what batches take."""
        if self._measures:
            return None
        free_at = now if self._sent_at is None else self._sent_at + self.least
        end = self._gate.earliest_end(ahead, [free_at], now)
        return fixed(end - self.least - now, self.least)

    def _measure(self, seconds: float) -> None:
        known = self._gate.compute
        took = seconds if known == inf else known + SMOOTHING * (seconds - known)
        self._gate = replace(self._gate, compute=took)

"""A worker's lease: renewed by every Report, it runs out while there is work and none comes. Pure.

It counts beats, not seconds, and whoever beats runs on the loop that also takes the Reports: a clock that jumps, or a
loop that was held up, ends no lease.
"""

from .door import Report

BEATS = 10  # without a Report, after which the worker is taken for hung


class Lease:
    """One worker's, from the moment that it is ready. An idle worker owes nothing: its end closes the door."""

    def __init__(self) -> None:
        self.is_busy = False
        self._missed = 0
        self._orders = 0

    def send(self, orders: int) -> None:
        """Orders of this number leave for the worker, which owes a Report now."""
        if not self.is_busy:
            self._missed = 0
        self._orders = orders
        self.is_busy = True

    def report(self, report: Report) -> None:
        """A Report has come: the lease is renewed."""
        self._missed = 0
        answered = report.orders >= self._orders
        self.is_busy = not answered or report.gauges.running + report.gauges.waiting > 0

    def beat(self) -> bool:
        """A part of the lease's time has gone by; whether it has run out."""
        self._missed += self.is_busy
        return self._missed >= BEATS

"""A named trace that can be made anew for any seed."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

from ..admission.bounded_queue import QueueBounds
from ..tenants import Tenants
from .trace import NO_BOOK, Arrival, Trace

UNBOUNDED = QueueBounds(entries=2**62)


@dataclass(frozen=True, slots=True)
class Suite:
    """about: one line, lengths as prompt / answer. arrivals: of a seeded Random, for so many seconds.

    drains: the simulation goes on until all have ended; otherwise it ends with the arrivals, whose tenants are
    backlogged then. book: its tenants' terms, and tiers. bounds: the most that may wait.
    """

    about: str
    arrivals: Callable[[Random, float], Iterable[Arrival]]
    seconds: float = 600.0
    drains: bool = False
    book: Tenants = NO_BOOK
    bounds: QueueBounds = UNBOUNDED

    def trace(self, name: str, seed: int, seconds: float | None = None) -> Trace:
        """Its arrivals for a seed, for `seconds` instead of its own."""
        seconds = self.seconds if seconds is None else seconds
        until = None if self.drains else seconds
        return Trace.of(name, self.arrivals(Random(seed), seconds), until, self.book)

"""Waiting rooms under load, for benchmarks/scheduler.py: what a pick, an arrival and the garbage collector take.

A pick is next() or head(), take(), and the ledger's entries of the sequence that ends to make room. Seconds are the
processor's, so that others on the machine don't count.
"""

import gc
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager

from fairstep.fairness.policies import Policy, make_room
from fairstep.fairness.seating import Seating
from fairstep.fairness.shares import Room, Shares
from fairstep.fairness.ticket import Ticket

SEATS = 256
PAGES_EACH = 8


def picks(policy: Policy, tenants: int, queued: int, count: int, *, barred: Set[str] = frozenset()) -> list[float]:
    """Seconds of each pick, with the queue as long all the time. barred: tenants that may not now."""
    room = make_room(policy)
    for seq in range(queued):
        room.add(ticket_of(seq, tenants))
    running: list[int] = []
    seconds = []
    for seq in range(queued, queued + count):
        start = time.thread_time()
        ticket = room.head(lambda ticket: ticket.tenant not in barred)
        assert ticket is not None
        room.take(ticket)
        if len(running) == SEATS:
            ended = running.pop(0)
            room.spent(ended, cached=32, computed=200, outputs=50)
            room.end(ended, natural=True)
        seconds.append(time.thread_time() - start)
        running.append(ticket.seq)
        room.add(ticket_of(seq, tenants))
    return seconds


def seatings(tenants: int, queued: int, count: int, *, most_running: int | None = None) -> list[float]:
    """Seconds of each pick where tenants keep to shares of the seats, which are full all the time.

    Any of them may end next. most_running: sequences that a tenant may have running.
    """
    rooms = _Seated(tenants, queued, most_running)
    for _ in range(SEATS):
        rooms.seat()
    seconds = []
    for _ in range(count):
        rooms.end_one()
        seconds.append(timed(rooms.seat))
    return seconds


class _Seated:
    """Seats that somebody is always waiting for, each tenant with as many waiting as the others."""

    def __init__(self, tenants: int, queued: int, most_running: int | None) -> None:
        self._random = random.Random(0)
        self._tenants = tenants
        self._most = most_running
        self._running: list[Ticket] = []
        self._of: Counter[str] = Counter()
        self._free = Room(SEATS, SEATS * PAGES_EACH)
        self._room = make_room("drr")
        shares = Shares(self._free, self._room.part)
        self._seating = Seating(self._room, lambda ticket: Room(1, PAGES_EACH), shares=shares, may=self._may)
        self._seqs = 0
        while self._seqs < queued:
            self._add()

    def seat(self) -> None:
        """One pick."""
        ticket = self._seating.next(self._free)
        if ticket is None:
            return
        self._seating.take(ticket)
        self._running.append(ticket)
        self._of[ticket.tenant] += 1
        self._free -= Room(1, PAGES_EACH)

    def end_one(self) -> None:
        """One of those running ends, and another comes."""
        ended = self._running.pop(self._random.randrange(len(self._running)))
        self._room.spent(ended.seq, computed=ended.prompt_tokens, outputs=self._random.randrange(1, 200))
        self._seating.end(ended.seq, natural=True)
        self._of[ended.tenant] -= 1
        self._free += Room(1, PAGES_EACH)
        self._add()

    def _add(self) -> None:
        self._room.add(ticket_of(self._seqs, self._tenants))
        self._seqs += 1

    def _may(self, ticket: Ticket) -> bool:
        return self._most is None or self._of[ticket.tenant] < self._most


def arrivals(tenants: int, queued: int, count: int) -> list[float]:
    """Seconds of each arrival at such a queue."""
    room = make_room("drr")
    for seq in range(queued):
        room.add(ticket_of(seq, tenants))
    return [timed(lambda seq=seq: room.add(ticket_of(seq, tenants))) for seq in range(queued, queued + count)]


def collections(tenants: int, queued: int) -> list[float]:
    """Seconds of full garbage collections beside such a queue."""
    room = make_room("drr")
    for seq in range(queued):
        room.add(ticket_of(seq, tenants))
    gc.collect()
    return [timed(gc.collect) for _ in range(5)]


def ticket_of(seq: int, tenants: int) -> Ticket:
    """Arrivals with some spread in size and urgency, the same each time."""
    mixed = seq * 2_654_435_761 % 2**32
    return Ticket(
        seq,
        seq,
        f"t{mixed % tenants}",
        priority=mixed // 7 % 3,
        deadline=float(mixed // 11 % 1000),
        prompt_tokens=mixed // 13 % 500,
        max_tokens=200,
    )


@contextmanager
def pauses() -> Iterator[list[float]]:
    """Seconds of each garbage collection that comes by itself until the block ends."""
    found: list[float] = []
    began = 0.0

    def note(phase: str, info: dict[str, int]) -> None:
        nonlocal began
        if phase == "start":
            began = time.thread_time()
        else:
            found.append(time.thread_time() - began)

    gc.callbacks.append(note)
    gc.enable()
    try:
        yield found
    finally:
        gc.disable()
        gc.callbacks.remove(note)


def timed(call: Callable[[], object]) -> float:
    """Seconds of the processor that a call takes."""
    start = time.thread_time()
    call()
    return time.thread_time() - start

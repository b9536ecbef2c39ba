"""The workers' seats as the front gives them out: the waiting room's seating, and what the workers have room for.

Pure. Without shares a few sequences are sent ahead of need, so that a seat never idles for a round trip. With shares
that is so only as long as there is one tenant: with a second one, those that wait in the worker are called back.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from .fairness.fair_room import FairRoom
from .fairness.seating import Seating
from .fairness.shares import Room, Shares
from .fairness.ticket import Ticket
from .fairness.tier_room import May
from .stations import Station, Stations

ANYTHING = Room(2**62, 2**62)


class Seats:
    """Owner of who waits and who was sent.

    stations: the workers, one at least. pages: what a sequence needs to begin. may: what bars a tenant's next one for
    now, its share apart. shared: tenants keep to shares, and yield for each other. static: batches stay as they are:
    nobody is sent ahead of need or yields.
    """

    def __init__(
        self,
        room: FairRoom,
        stations: Stations,
        pages: Callable[[int], int],
        may: May,
        *,
        shared: bool,
        static: bool = False,
    ) -> None:
        shares = Shares(stations.whole, room.part) if shared else None
        self.room = room
        self._stations = stations
        self._pages = pages
        self._static = static
        self._seating = Seating(room, self._need, shares=shares, may=may)
        self._ahead: set[int] = set()  # sent without room, and not seen to run yet
        self._seqs: dict[int, tuple[int, str]] = {}  # all that wait or run, with tier and tenant
        self._present: Counter[tuple[int, str]] = Counter()
        self._may_yield = True  # once a step

    def add(self, ticket: Ticket) -> None:
        """Let a sequence wait for the first time."""
        key = self._seqs[ticket.seq] = ticket.tier, ticket.tenant
        self._present[key] += 1
        self.room.add(ticket)

    def next(self) -> Ticket | None:
        """Who is sent now, if anybody."""
        ticket = self._seating.next(self._stations)
        if ticket is None and self._stations.can_wait and not self._is_shared and not self._static:
            ticket = self._seating.next(ANYTHING)
        return ticket

    def take(self, ticket: Ticket, beside: int | None = None) -> Station:
        """Seat whom next() gave; the worker that it is for. beside: the worker where it finds its prompt's pages."""
        need = self._need(ticket)
        station = self._stations.choose(need, beside)
        if not station.left.free.covers(need):
            self._ahead.add(ticket.seq)
        self._seating.take(ticket)
        return station

    def give_back(self) -> list[int]:
        """Sequences that the worker should give back: those ahead of need, and at most one a step that runs."""
        shares = self._seating.shares
        if shares is None or not self._is_shared or self._static:
            return []
        called = sorted(self._ahead)
        self._ahead.clear()
        for seq in called:
            if (holding := shares.holding(seq)) and not holding.leaving:
                shares.hold(replace(holding, leaving=True))
        victim = self._seating.choose_yield(self._stations.widest) if self._may_yield else None
        self._may_yield = self._may_yield and victim is None
        return called if victim is None else [*called, victim]

    def stepped(self) -> None:
        """A worker has made a step: somebody may be asked to yield again."""
        self._may_yield = True

    def resize(self) -> None:
        """Workers have come or gone."""
        if self._seating.shares:
            self._seating.shares.resize(self._stations.whole)

    def keep(self, seq: int) -> None:
        """A sequence that was sent is to be computed anew, and keeps its seat."""
        self._ahead.discard(seq)
        self._seating.keep(seq)

    def grow(self, seq: int, *, ends: bool = False) -> None:
        """A sequence was seen to run; it holds the pages that it would need to begin now. ends: with its next token."""
        self._ahead.discard(seq)
        self._seating.grow(seq, self._pages(seq), ends=ends)

    def back(self, ticket: Ticket) -> None:
        """A sequence that was sent waits again."""
        self._ahead.discard(ticket.seq)
        self._seating.back(ticket)

    def end(self, seq: int, *, natural: bool) -> None:
        """A sequence is over, wherever it is; one that never came here changes nothing."""
        key = self._seqs.pop(seq, None)
        if key is None:
            return
        self._present[key] -= 1
        if not self._present[key]:
            del self._present[key]
        self._ahead.discard(seq)
        self._seating.end(seq, natural=natural)

    def check(self, sent: set[int]) -> None:
        """Assert that books agree; sent: who the front says is in the worker."""
        self._seating.check()
        assert self._ahead <= sent, "somebody is ahead of need and was not sent"
        assert len(self._seqs) == len(self.room) + len(sent), "somebody neither waits nor runs"
        assert Counter(self._seqs.values()) == self._present, "tenants are miscounted"
        if self._seating.shares:
            assert {holding.seq for holding in self._seating.shares.holdings()} == sent, "a share is held for nobody"

    @property
    def _is_shared(self) -> bool:
        """Whether shares count: there are several tenants."""
        return self._seating.shares is not None and len(self._present) > 1

    def _need(self, ticket: Ticket) -> Room:
        return Room(1, self._pages(ticket.seq))

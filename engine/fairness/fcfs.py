"""First come, first served inside a priority: the plain policy that the fair ones are compared with.

Knows tickets only. A removed ticket stays in the heap until it surfaces, so removing is O(1).
"""

from heapq import heapify, heappop, heappush

from .waiting_room import Ticket

MIN_SWEEP = 64  # below this many dead heap entries, sweeping is not worth it


class Fcfs:
    """A WaitingRoom ordered by (priority, order)."""

    def __init__(self) -> None:
        self._tickets: dict[int, Ticket] = {}
        self._heap: list[tuple[int, int, int]] = []

    def __len__(self) -> int:
        return len(self._tickets)

    def add(self, ticket: Ticket) -> None:
        assert ticket.seq not in self._tickets, f"sequence {ticket.seq} waits already"
        self._tickets[ticket.seq] = ticket
        heappush(self._heap, _key(ticket))

    def head(self) -> Ticket | None:
        while self._heap:
            ticket = self._live(self._heap[0])
            if ticket is not None:
                return ticket
            heappop(self._heap)
        return None

    def take(self) -> Ticket:
        ticket = self.head()
        assert ticket is not None, "nobody waits"
        heappop(self._heap)
        del self._tickets[ticket.seq]
        return ticket

    def remove(self, seq: int) -> bool:
        if self._tickets.pop(seq, None) is None:
            return False
        if len(self._heap) > 2 * len(self._tickets) + MIN_SWEEP:
            self._heap = [_key(ticket) for ticket in self._tickets.values()]
            heapify(self._heap)
        return True

    def check(self) -> None:
        live = [entry for entry in self._heap if self._live(entry)]
        assert len(set(live)) == len(self._tickets), "a waiting ticket is missing from the heap"
        assert len(self._heap) <= 2 * len(self._tickets) + MIN_SWEEP + 1, "dead entries pile up"

    def _live(self, entry: tuple[int, int, int]) -> Ticket | None:
        ticket = self._tickets.get(entry[2])
        return ticket if ticket is not None and _key(ticket) == entry else None


def _key(ticket: Ticket) -> tuple[int, int, int]:
    return ticket.priority, ticket.order, ticket.seq

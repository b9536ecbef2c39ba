"""What waits in one tier, in sums that are kept as it comes and goes: nobody goes through a queue to read them. Pure.

How old the oldest is, how much it all costs, and how much of each tenant's is due by when.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from .ticket import Ticket

SPARE = 64  # dead entries that a heap may hold beside as many as live ones
STRETCHES = 8  # of time, that are told apart in a tenant's deadlines
SHORTEST = 0.25  # seconds of one


class DueCosts:
    """Units by deadline, in at most 8 equal stretches of time: where there would be more, each is twice as long."""

    def __init__(self) -> None:
        self._width = SHORTEST
        self._units: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._units)

    def __iter__(self) -> Iterator[tuple[float, int]]:
        """The middle of each stretch and its units, the soonest first."""
        return (((place + 0.5) * self._width, units) for place, units in sorted(self._units.items()))

    def add(self, deadline: float, units: int) -> None:
        """Units that wait are due then; negative: they wait no longer."""
        if not units:
            return
        place = int(deadline // self._width)
        left = self._units.get(place, 0) + units
        assert left >= 0, "more is taken out than was due"
        if left:
            self._units[place] = left
        else:
            del self._units[place]
        if not self._units:
            self._width = SHORTEST
        while len(self._units) > STRETCHES:
            self._widen()

    def _widen(self) -> None:
        self._width *= 2
        narrow, self._units = self._units, {}
        for place, units in narrow.items():
            self._units[place // 2] = self._units.get(place // 2, 0) + units


class QueueBook:
    """Owner of the sums of one tier."""

    def __init__(self) -> None:
        self.cost = 0
        self._live: dict[int, int] = {}  # sequences by order
        self._orders: list[int] = []  # a heap; those that are not live are dead
        self._due: dict[str, DueCosts] = {}

    def add(self, ticket: Ticket, units: int) -> None:
        """A sequence waits, and admitting it will charge so many units."""
        self.cost += units
        self._live[ticket.order] = ticket.seq
        heappush(self._orders, ticket.order)
        self._count_due(ticket, units)

    def remove(self, ticket: Ticket, units: int) -> None:
        """It waits no longer."""
        self.cost -= units
        del self._live[ticket.order]
        if len(self._orders) > 2 * len(self._live) + SPARE:
            self._orders = list(self._live)
            heapify(self._orders)
        self._count_due(ticket, -units)

    @property
    def oldest(self) -> int | None:
        """The number of the sequence that came first; None if none waits."""
        while self._orders and self._orders[0] not in self._live:
            heappop(self._orders)
        return self._live[self._orders[0]] if self._orders else None

    def due(self, tenant: str) -> Iterator[tuple[float, int]]:
        """A tenant's units that have a deadline: about when, and how many, the soonest first."""
        return iter(self._due.get(tenant, ()))

    def check(self) -> None:
        """Assert the bounds on memory."""
        assert set(self._live) <= set(self._orders), "somebody waits and is not in the heap"
        assert len(self._orders) <= 2 * len(self._live) + SPARE + 1, "dead entries pile up"
        assert all(self._due.values()), "a tenant is kept with nothing due"

    def _count_due(self, ticket: Ticket, units: int) -> None:
        if ticket.deadline is None or not units:
            return
        due = self._due.setdefault(ticket.tenant, DueCosts())
        due.add(ticket.deadline, units)
        if not due:
            del self._due[ticket.tenant]

"""One tier's waiting room: whose turn it is among its tenants, and what is known of each.

Pure. Which turns (deficit round robin, VTC, arrival) is handed in; so is what admitting costs.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from .queue_book import QueueBook
from .swings import Swings
from .tenant_queue import Key, TenantQueue
from .ticket import Ticket
from .turns import MayTenant, Turns, anybody

MOST_IDLE = 1000  # tenants with nothing waiting or running whose books are kept for show

May = Callable[[Ticket], bool]


def everybody(ticket: Ticket) -> bool:
    """For callers that hold nobody back."""
    return True


@dataclass(frozen=True, slots=True)
class Standing:
    """A tenant of a tier. share: its weight by those of all tenants of the tier that wait or run; 0 if it does neither.

    waiting, running: sequences. queued: units that admitting those waiting would charge. served: units charged less
    given back, since the tenant was last forgotten; largest_charge, largest_refund: see Swings, since then. debt: units
    owed by the policy's book (negative: left).
    """

    tier: int
    tenant: str
    weight: int
    share: float
    waiting: int
    running: int
    queued: int
    served: int
    debt: int
    largest_charge: int
    largest_refund: int


@dataclass(slots=True)
class _Tenant:
    weight: int
    queue: TenantQueue
    queued: int = 0
    running: int = 0
    swings: Swings = field(default_factory=Swings)

    @property
    def is_active(self) -> bool:
        return bool(self.running or len(self.queue))


class TierRoom:
    """Tenants of one tier: their queues, turns and books. weights: of those that have anything waiting or running.

    book: what waits, in sums.

    Of idle tenants the last `most_idle` are kept, and those in debt; the others are forgotten.
    """

    def __init__(self, tier: int, turns: Turns, key: Callable[[Ticket], Key], *, most_idle: int = MOST_IDLE) -> None:
        self.weights = 0
        self.waiting = 0
        self.book = QueueBook()
        self._tier = tier
        self._turns = turns
        self._key = key
        self._tenants: dict[str, _Tenant] = {}
        self._most_idle = most_idle
        self._idle: dict[str, None] = {}  # in the order in which they became so

    def add(self, ticket: Ticket, cost: int) -> None:
        """Let a sequence wait. cost: units that admitting it will charge."""
        tenant = self._tenants.get(ticket.tenant)
        if tenant is None:
            tenant = self._tenants[ticket.tenant] = _Tenant(ticket.weight, TenantQueue(self._key))
        if not tenant.is_active:
            self._idle.pop(ticket.tenant, None)
            tenant.weight = ticket.weight
            self.weights += tenant.weight
        if not len(tenant.queue):
            self._turns.enter(ticket.tenant, tenant.weight)
        if tenant.weight != ticket.weight and not ticket.again:
            self._weigh(ticket, tenant)
        tenant.queue.add(ticket)
        tenant.queued += cost
        self.waiting += 1
        self.book.add(ticket, cost)
        if tenant.queue.head() is ticket:
            self._turns.head(ticket.tenant, self._key(ticket))

    def head(self, may: May, within: May, kept: str | None) -> Ticket | None:
        """The next one whose tenant may now; who is not `within` its share is passed over for a while.

        kept: a tenant that goes first, whatever it owes.
        """
        if kept is not None and (ticket := self.head_of(kept)) and may(ticket):
            return ticket
        name = self._turns.first(self._asks(may), self._asks(within))
        return None if name is None else self._head(name)

    def head_of(self, name: str) -> Ticket | None:
        """A tenant's own next one."""
        tenant = self._tenants.get(name)
        return tenant.queue.head() if tenant else None

    def leave(self, ticket: Ticket, cost: int) -> None:
        """Take a sequence out of its queue. cost: as it was given to add()."""
        tenant = self._tenants[ticket.tenant]
        was_head = tenant.queue.head() is ticket
        tenant.queue.remove(ticket.seq)
        tenant.queued -= cost
        self.waiting -= 1
        self.book.remove(ticket, cost)
        head = tenant.queue.head()
        if head is None:
            self._turns.leave(ticket.tenant)
            self._rest(ticket.tenant)
        elif was_head:
            self._turns.head(ticket.tenant, self._key(head))

    def begin(self, ticket: Ticket, units: int, *, ahead: bool) -> None:
        """A sequence that waits is admitted for `units`; leave() follows. ahead: no round goes by for it."""
        if not ahead:
            self._turns.start(ticket.tenant)
        self._tenants[ticket.tenant].running += 1
        self._bill(ticket.tenant, units, admitted=True)

    def end(self, name: str) -> None:
        """A tenant's running sequence is over, or waits again (after add)."""
        self._tenants[name].running -= 1
        self._rest(name)

    def charge(self, name: str, units: int) -> None:
        """Bill a tenant; negative gives back."""
        self._bill(name, units, admitted=False)

    def debt(self, name: str) -> int:
        """Units a tenant owes by the policy's book (negative: has left)."""
        return self._turns.debt(name)

    def weight(self, name: str) -> int:
        """The weight of a tenant that waits or runs."""
        return self._tenants[name].weight

    def turns(self) -> Turns:
        """The turns as they are, to be played forward."""
        return self._turns.copy()

    def standings(self) -> Iterator[Standing]:
        """All tenants that are known here."""
        return (self.standing(name) for name in self._tenants)

    def standing(self, name: str) -> Standing:
        """One tenant that is known here."""
        tenant = self._tenants[name]
        return Standing(
            tier=self._tier,
            tenant=name,
            weight=tenant.weight,
            share=tenant.weight / self.weights if tenant.is_active else 0.0,
            waiting=len(tenant.queue),
            running=tenant.running,
            queued=tenant.queued,
            served=tenant.swings.charged,
            debt=self._turns.debt(name),
            largest_charge=tenant.swings.largest_charge,
            largest_refund=tenant.swings.largest_refund,
        )

    def check(self) -> None:
        """Assert that queues, turns and sums agree."""
        self._turns.check()
        self.book.check()
        assert self.book.cost == sum(tenant.queued for tenant in self._tenants.values()), "costs are miscounted"
        active = [tenant for tenant in self._tenants.values() if tenant.is_active]
        assert sum(tenant.weight for tenant in active) == self.weights, "weights are miscounted"
        assert sum(len(tenant.queue) for tenant in active) == self.waiting, "waiting sequences are miscounted"
        for name, tenant in self._tenants.items():
            tenant.queue.check()
            assert tenant.is_active != (name in self._idle), f"{name} is idle or it is not"
            assert len(tenant.queue) or not tenant.queued, f"{name} has a cost queued and nobody waiting"

    def _bill(self, name: str, units: int, *, admitted: bool) -> None:
        self._turns.charge(name, units)
        self._tenants[name].swings.charge(units, admitted=admitted)

    def _asks(self, may: May) -> MayTenant:
        """The same of tenants, by each one's next."""
        return anybody if may is everybody else lambda name: may(self._head(name))

    def _head(self, name: str) -> Ticket:
        ticket = self._tenants[name].queue.head()
        assert ticket is not None, f"{name} has a turn and nobody waiting"
        return ticket

    def _weigh(self, ticket: Ticket, tenant: _Tenant) -> None:
        self.weights += ticket.weight - tenant.weight
        tenant.weight = ticket.weight
        self._turns.weigh(ticket.tenant, ticket.weight)

    def _rest(self, name: str) -> None:
        """A tenant may be idle now. For each that is, up to two are forgotten, so that a turn never waits for many."""
        tenant = self._tenants[name]
        if tenant.is_active:
            return
        self.weights -= tenant.weight
        self._idle[name] = None
        for _ in range(min(2, len(self._idle) - self._most_idle)):
            oldest = next(iter(self._idle))
            del self._idle[oldest]
            if self._turns.forget(oldest):
                del self._tenants[oldest]
            else:
                self._idle[oldest] = None  # in debt: it is asked again when its turn comes round

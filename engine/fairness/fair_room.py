"""The fair waiting room: tiers in order, inside a tier the tenants' turns, inside a tenant its own order.

Pure. It knows no pages: who may not now, and who is within its share, is the caller's knowledge.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from .billing import Billing
from .quantum import AutoQuantum
from .queue_book import QueueBook
from .tenant_queue import Key, by_urgency
from .ticket import Ticket
from .tier_room import May, Standing, TierRoom, everybody
from .tiers import Tiers
from .turns import Turns


class FairRoom:
    """A waiting room that keeps a ledger. A sequence is charged to its tenant in the tier that it came in with.

    A sequence is added, taken, and ended; between, spent() says what it really takes, and add() lets it wait again. Who
    waits again has paid, and goes before new sequences of its tenant's. quantum: units, about one request's cost.
    sizing: what chooses it anew now and then.
    """

    def __init__(
        self,
        turns: Callable[[], Turns],
        billing: Billing,
        tiers: Tiers,
        *,
        quantum: int,
        key: Callable[[Ticket], Key] = by_urgency,
        sizing: AutoQuantum | None = None,
    ) -> None:
        self.billing = billing
        self.quantum = self.largest_quantum = quantum
        self._sizing = sizing
        self._make_turns = turns
        self.key = key
        self._order = tiers
        self._tiers: dict[int, TierRoom] = {}
        self._waiting: dict[int, Ticket] = {}
        self._costs: dict[int, int] = {}  # what those waiting were said to cost
        self._running: dict[int, Ticket] = {}
        self._kept: tuple[int, str] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    # --- who goes next

    def add(self, ticket: Ticket) -> None:
        """Let a sequence wait, for the first time or again."""
        assert ticket.seq not in self._waiting, f"sequence {ticket.seq} waits already"
        if ticket.seq in self.billing:
            ticket = replace(ticket, again=True)
        tier = self._tiers.get(ticket.tier)
        if tier is None:
            tier = self._tiers[ticket.tier] = TierRoom(ticket.tier, self._make_turns(), self.key)
        cost = self.billing.price(ticket)
        tier.add(ticket, cost)
        self._waiting[ticket.seq], self._costs[ticket.seq] = ticket, cost
        if self._running.pop(ticket.seq, None) is not None:
            tier.end(ticket.tenant)

    def head(self, may: May = everybody, within: May = everybody) -> Ticket | None:
        """The next one; asking changes nothing.

        may: tenants whose own next one may not now are passed over. within: so are those over their share, for as long
        as the tier's turns allow.
        """
        for number in self._order.order(self._waiting_tiers()):
            kept = self._kept[1] if self._kept and self._kept[0] == number else None
            ticket = self._tiers[number].head(may, within, kept)
            if ticket is not None:
                return ticket
        return None

    def take(self, ticket: Ticket | None = None) -> Ticket:
        """Take out the head, or what head() has just given, and charge its tenant."""
        ticket = ticket or self.head()
        assert ticket is not None, "nobody waits"
        tier = self._tiers[ticket.tier]
        assert tier.head_of(ticket.tenant) is ticket, f"sequence {ticket.seq} is not its tenant's next"
        ahead = self._kept == (ticket.tier, ticket.tenant) and tier.debt(ticket.tenant) <= 0
        units = self.billing.admit(ticket)
        self._order.served(ticket.tier, units, self._waiting_tiers())
        tier.begin(ticket, units, ahead=ahead)
        self._leave(ticket)
        self._running[ticket.seq] = ticket
        if self._kept == (ticket.tier, ticket.tenant):
            self._kept = None
        if self._sizing and units:
            self.quantum = self._sizing.admitted(units)
            self.largest_quantum = max(self.largest_quantum, self.quantum)
        return ticket

    def keep(self, ticket: Ticket | None) -> None:
        """Room is being freed for a waiting sequence (None: no longer): its tenant's next one goes first in its tier.

        Until one of its tenant is taken, or none waits. Higher tiers still go before. If the tenant owes nothing, no
        round goes by for it, so that it costs nobody's turn; if it does, whoever could have gone was passed over.
        """
        assert ticket is None or ticket.seq in self._waiting, "room is kept for nobody"
        self._kept = (ticket.tier, ticket.tenant) if ticket else None

    def remove(self, seq: int) -> bool:
        """A sequence that waits is over, by cancel or expiry; False if it does not wait here."""
        if seq not in self._waiting:
            return False
        self.end(seq, natural=False)
        return True

    def set_least(self, least: Mapping[int, int]) -> None:
        """Change the minimum shares of tiers (thousandths), from the next sequence on."""
        self._order.set_least(least)

    # --- what it takes

    def spent(
        self, seq: int, *, cached: int = 0, computed: int = 0, recomputed: int = 0, outputs: int = 0, micros: int = 0
    ) -> None:
        """What a Report tells of a sequence (see Billing.spent). One that is over changes nothing any more."""
        if seq not in self.billing:
            return
        units = self.billing.spent(
            seq, cached=cached, computed=computed, recomputed=recomputed, outputs=outputs, micros=micros
        )
        self._charge(self._ticket(seq), units)

    def end(self, seq: int, *, natural: bool) -> None:
        """A sequence is over, waiting or not: its tenant gets back what it paid in vain.

        natural: its answer ended by itself, so that its length tells something of the next one's.
        """
        if seq not in self._waiting and seq not in self._running:
            return
        ticket = self._ticket(seq)
        if seq in self.billing:
            self._charge(ticket, self.billing.end(seq, natural=natural))
        if seq in self._waiting:
            self._leave(ticket)
        else:
            del self._running[seq]
            self._tiers[ticket.tier].end(ticket.tenant)

    # --- what others see

    @property
    def top_tier(self) -> int | None:
        """The highest tier that has somebody waiting: the one of the smallest number."""
        return min(self._waiting_tiers(), default=None)

    def part(self, tier: int, tenant: str) -> tuple[int, int]:
        """The weight of a tenant that waits or runs, and that of all of its tier that do."""
        room = self._tiers[tier]
        return room.weight(tenant), room.weights

    def debt(self, tier: int, tenant: str) -> int:
        """Units a tenant owes by the policy's book (negative: has left)."""
        return self._tiers[tier].debt(tenant) if tier in self._tiers else 0

    def book(self, tier: int) -> QueueBook:
        """What waits in a tier that was ever waited in, in sums."""
        return self._tiers[tier].book

    def waits(self, tier: int, tenant: str) -> bool:
        """Whether a tenant has somebody waiting in a tier."""
        return tier in self._tiers and self._tiers[tier].head_of(tenant) is not None

    def turns(self, tier: int) -> Turns:
        """A tier's turns as they are, to be played forward."""
        return self._tiers[tier].turns() if tier in self._tiers else self._make_turns()

    def standings(self) -> Iterator[Standing]:
        """All tenants that are known, tier by tier."""
        for number in sorted(self._tiers):
            yield from self._tiers[number].standings()

    def check(self) -> None:
        """Assert that tickets, queues, turns and bills agree."""
        self.billing.check()
        self._order.check()
        if self._sizing:
            self._sizing.check()
        for tier in self._tiers.values():
            tier.check()
        assert sum(tier.waiting for tier in self._tiers.values()) == len(self._waiting), "tickets and queues disagree"
        assert self._waiting.keys() == self._costs.keys(), "a waiting sequence has no cost"
        assert not self._waiting.keys() & self._running.keys(), "a sequence waits and runs"
        assert all(seq in self.billing for seq in self._running), "a running sequence has no bill"
        running = sum(standing.running for standing in self.standings())
        assert running == len(self._running), "running sequences are miscounted"

    # --- inside

    def _waiting_tiers(self) -> list[int]:
        return [number for number, tier in self._tiers.items() if tier.waiting]

    def _ticket(self, seq: int) -> Ticket:
        return self._waiting[seq] if seq in self._waiting else self._running[seq]

    def _charge(self, ticket: Ticket, units: int) -> None:
        if units:
            self._tiers[ticket.tier].charge(ticket.tenant, units)

    def _leave(self, ticket: Ticket) -> None:
        tier = self._tiers[ticket.tier]
        del self._waiting[ticket.seq]
        tier.leave(ticket, self._costs.pop(ticket.seq))
        if not tier.waiting:
            self._order.left(ticket.tier)
        if self._kept == (ticket.tier, ticket.tenant) and tier.head_of(ticket.tenant) is None:
            self._kept = None

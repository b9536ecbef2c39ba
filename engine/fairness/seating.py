"""Who is seated next and who gives a seat back: the waiting room and the shares joined, for one worker.

Pure: it is told what is free, what a sequence needs and who may not now, and says what to order. Without shares it is
the waiting room alone.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Protocol

from .fair_room import FairRoom
from .shares import Holding, Room, Shares
from .ticket import Ticket
from .tier_room import May, everybody
from .yield_budget import YieldBudget
from .yields import choose_yield, somebody_could


class Free(Protocol):
    """Room that is free: a Room, or what answers for several workers."""

    def covers(self, need: Room) -> bool: ...


class Seating:
    """next() and take() until next() gives None, then choose_yield() once a step; back() and end() as Reports tell.

    need: the room that a sequence needs to begin. may: what bars a tenant's next one for now, its share apart. shares:
    None under policies that know none.
    """

    def __init__(
        self, room: FairRoom, need: Callable[[Ticket], Room], *, shares: Shares | None = None, may: May = everybody
    ) -> None:
        self.room = room
        self.shares = shares
        self._need = need
        self._may = may
        self._yielded: set[int] = set()  # sequences that gave their seat back and are not over
        self._budget = YieldBudget()

    def next(self, free: Free) -> Ticket | None:
        """Who is seated now; None if nobody may, or if the one whose turn it is does not fit: nobody jumps it."""
        ticket = self.room.head(self._may, self._is_within if self.shares else everybody)
        return ticket if ticket is not None and free.covers(self._need(ticket)) else None

    def take(self, ticket: Ticket) -> None:
        """Seat whom next() gave, and charge its tenant."""
        need = self._need(ticket)
        self.room.take(ticket)
        self._budget.admitted()
        if self.shares:
            spared = ticket.seq in self._yielded
            self.shares.hold(Holding(ticket.seq, ticket.order, ticket.tier, ticket.tenant, need.pages, spared))

    def grow(self, seq: int, pages: int, *, ends: bool = False) -> None:
        """A seated sequence holds so many pages now. ends: with its next step: nobody need yield for its room."""
        if self.shares and (holding := self.shares.holding(seq)) and (holding.pages != pages or ends):
            self.shares.hold(replace(holding, pages=pages, leaving=holding.leaving or ends))

    def keep(self, seq: int) -> None:
        """A seated sequence is to be computed anew, and keeps its seat: it yields to nobody as long as it has it."""
        if self.shares and (holding := self.shares.holding(seq)):
            self.shares.hold(replace(holding, leaving=False, spared=True))

    def choose_yield(self, free: Room) -> int | None:
        """The sequence that should give its room back, if a tenant under its share lacks room for its next one.

        That tenant goes first from now on; nobody else is seated in its tier until it is. The ledger has the last word:
        nobody takes room from a tenant of its tier if it owes a quantum more than that one, by weight. One that holds a
        quarter of its share or more needs a yield of the budget for that.
        """
        tier = self.room.top_tier
        if not self.shares or tier is None or not somebody_could(self.shares, tier):
            return None
        claimant = self.room.head(self._may_claim)
        if claimant is None:
            return None
        need = self._need(claimant)
        victim = choose_yield(self.shares, claimant.tier, claimant.tenant, need, free, self._may_ask(claimant))
        if victim is None:
            return None
        if not self._is_in_need(claimant):
            self._budget.spend()
        self.shares.hold(replace(victim, leaving=True))
        self.room.keep(claimant)
        return victim.seq

    def back(self, ticket: Ticket) -> None:
        """A sequence gave its seat back, by a yield or a preemption, and waits again."""
        self._yielded.add(ticket.seq)
        self._drop(ticket.seq)
        self.room.add(ticket)

    def end(self, seq: int, *, natural: bool) -> None:
        """A sequence is over, waiting or seated."""
        self._yielded.discard(seq)
        self._drop(seq)
        self.room.end(seq, natural=natural)

    def check(self) -> None:
        """Assert that room and shares agree on who is seated."""
        self.room.check()
        if self.shares:
            self.shares.check()
            held = {(holding.tier, holding.tenant): 0 for holding in self.shares.holdings()}
            for holding in self.shares.holdings():
                held[holding.tier, holding.tenant] += 1
            seated = {(s.tier, s.tenant): s.running for s in self.room.standings() if s.running}
            assert held == seated, "who is seated is miscounted"

    def _is_within(self, ticket: Ticket) -> bool:
        assert self.shares is not None
        return self.shares.is_within_cap(ticket.tier, ticket.tenant, self._need(ticket))

    def _may_claim(self, ticket: Ticket) -> bool:
        assert self.shares is not None
        if not self._can_pay(ticket) and not any(tier > ticket.tier for tier, _ in self.shares.tenants()):
            return False
        return self.shares.is_under(ticket.tier, ticket.tenant) and self._may(ticket)

    def _can_pay(self, ticket: Ticket) -> bool:
        """Whether its tenant may take room from another of its tier."""
        assert self.shares is not None
        return self._is_in_need(ticket) or self._budget.can_spend()

    def _is_in_need(self, ticket: Ticket) -> bool:
        """Whether its tenant holds less than a quarter of its share."""
        assert self.shares is not None
        held = self.shares.held(ticket.tier, ticket.tenant)
        return not held.seats or self.shares.compare(ticket.tier, ticket.tenant, held + held + held + held) < 0

    def _may_ask(self, claimant: Ticket) -> Callable[[str], bool]:
        if not self._can_pay(claimant):
            return lambda tenant: False
        more = self._debt_by_weight(claimant.tier, claimant.tenant) - self.room.quantum
        return lambda tenant: more <= max(Fraction(0), self._debt_by_weight(claimant.tier, tenant))

    def _debt_by_weight(self, tier: int, tenant: str) -> Fraction:
        return Fraction(self.room.debt(tier, tenant), self.room.part(tier, tenant)[0])

    def _drop(self, seq: int) -> None:
        if self.shares:
            self.shares.drop(seq)

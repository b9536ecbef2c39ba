"""Histories for waiting rooms: a machine without time that serves a FairRoom at random, and a meter of its promise.

The meter knows only what was charged and who waited; of the policy under test it knows the quantum.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

from fairstep.fairness.billing import Billing
from fairstep.fairness.drr import DeficitRoundRobin
from fairstep.fairness.fair_room import FairRoom
from fairstep.fairness.pricing import UNIT, CostKind, CostModel
from fairstep.fairness.ticket import Ticket
from fairstep.fairness.tier_room import everybody
from fairstep.fairness.tiers import Tiers

WEIGHTS = (1, 1, 2, 4)


@dataclass
class Book:
    """A tenant's charges so far, and the extremes that the promise names."""

    weight: int
    charged: int = 0
    run: int = 0  # charged since the last admission, itself included, or since the sum last began to rise
    fall: int = 0
    largest_charge: int = 0
    largest_refund: int = 0

    def charge(self, units: int, *, admission: bool) -> None:
        self.charged += units
        self.run = units if admission else max(self.run, 0) + units
        self.fall = max(self.fall, 0) - units
        self.largest_charge = max(self.largest_charge, self.run)
        self.largest_refund = max(self.largest_refund, self.fall)

    @property
    def scaled(self) -> Fraction:
        return Fraction(self.charged, self.weight)

    @property
    def swing(self) -> Fraction:
        return Fraction(self.largest_charge + self.largest_refund, self.weight)


@dataclass
class Meter:
    """The largest gap of each pair of tenants of a tier, over all windows in which both wait and may."""

    quantum: int
    books: dict[str, Book] = field(default_factory=dict)
    open: dict[tuple[str, str], tuple[Fraction, Fraction]] = field(default_factory=dict)  # least and most of the gap
    spans: dict[tuple[str, str], Fraction] = field(default_factory=dict)

    def charge(self, tenant: str, units: int, *, admission: bool) -> None:
        self.books[tenant].charge(units, admission=admission)
        self._note(tenant)

    def watch(self, admissible: set[str]) -> None:
        """Who waits and may from now on, until told otherwise."""
        for pair in [pair for pair in self.open if not set(pair) <= admissible]:
            del self.open[pair]
        for one in admissible:
            for other in admissible:
                if one < other and (one, other) not in self.open:
                    gap = self.books[one].scaled - self.books[other].scaled
                    self.open[one, other] = gap, gap

    def ratio(self) -> float:
        """The largest gap by its bound."""
        bounds = {pair: 2 * self.quantum + sum(self.books[name].swing for name in pair) for pair in self.spans}
        return max((float(span / bounds[pair]) for pair, span in self.spans.items()), default=0.0)

    def _note(self, tenant: str) -> None:
        for pair, (least, most) in self.open.items():
            if tenant in pair:
                gap = self.books[pair[0]].scaled - self.books[pair[1]].scaled
                least, most = min(least, gap), max(most, gap)
                self.open[pair] = least, most
                self.spans[pair] = max(self.spans.get(pair, Fraction(0)), most - least)


class MeteredTurns(DeficitRoundRobin):
    """Deficit round robin that tells what it is charged."""

    def __init__(self, quantum: int, told: Callable[[str, int], None], bypass: int = 0) -> None:
        super().__init__(quantum, bypass)
        self._told = told

    def charge(self, tenant: str, units: int) -> None:
        super().charge(tenant, units)
        self._told(tenant, units)


@dataclass
class Running:
    ticket: Ticket
    length: int
    outputs: int = 0
    reported: bool = False


class History:
    """A seeded history: tenants with habits of their own in one or two tiers, seats, and everything that can happen.

    turns: makes the policy from a quantum, from whom to tell each charge, and from bypass. With a bypass, tenants are
    over their share at times; the promise is for them too.
    """

    def __init__(
        self, seed: int, turns: Callable[[int, Callable[[str, int], None], int], DeficitRoundRobin], bypass: int = 0
    ) -> None:
        self.random = random.Random(seed)
        choose = self.random.choice
        self.seats = choose((1, 2, 4, 8, 16))
        kind: CostKind = choose(("tokens", "tokens", "adaptive", "requests"))
        quantum = choose((1, 2, 5)) * UNIT if kind == "requests" else choose((20, 100, 500, 2000)) * UNIT
        self.tiers = choose((1, 1, 2))
        self.meters = [Meter(quantum * (1 + bypass)) for _ in range(self.tiers)]
        self.names = [f"t{i}" for i in range(self.random.randint(2, 5))]
        self.habits = {name: self._habit() for name in self.names}
        tiers = iter(self.meters)  # a tier's turns are made when it is first seen, the lowest first
        least = {1: 100} if self.tiers == 2 and self.random.random() < 0.5 else {}
        billing = Billing(CostModel(kind=kind), expects=self.random.random() < 0.8)
        make_turns = lambda: turns(quantum, self._teller(next(tiers)), bypass)  # noqa: E731
        self.room = FairRoom(make_turns, billing, Tiers(least, quantum), quantum=quantum)
        self.running: dict[int, Running] = {}
        self.waiting: dict[int, Ticket] = {}
        self.lengths: dict[int, Running] = {}
        self.barred: set[str] = set()
        self.bypass = bypass
        self.over: set[str] = set()  # who holds more than its share
        self.kept: tuple[int, str] | None = None  # the tier and tenant that room is kept for
        self.admitting = False
        self.seqs = 0
        for tier in range(self.tiers):
            for name in self.names:
                self.meters[tier].books[name] = Book(self.habits[name][0])
                self.arrive(name, tier)

    def run(self, steps: int) -> float:
        """The worst ratio of gap to bound."""
        for _ in range(steps):
            self._come_and_go()
            self._admit()
            self._compute()
            self.room.check()
        return max(meter.ratio() for meter in self.meters)

    def arrive(self, name: str, tier: int) -> None:
        weight, prompt, answer, slack, _ = self.habits[name]
        self.seqs += 1
        length = self.random.randint(1, answer)
        ticket = Ticket(
            self.seqs,
            self.seqs,
            name,
            priority=self.random.choice((0, 0, 0, 1)),
            deadline=self.random.choice((None, float(self.seqs))),
            tier=tier,
            weight=weight,
            prompt_tokens=self.random.randint(1, prompt),
            max_tokens=length * slack,
        )
        self.lengths[self.seqs] = Running(ticket, length)
        self.waiting[self.seqs] = ticket
        self.room.add(ticket)
        self._watch()

    def _habit(self) -> tuple[int, int, int, int, float]:
        """Weight, longest prompt and answer, how far max_tokens is above, how busy."""
        choose = self.random.choice
        return choose(WEIGHTS), choose((10, 300, 3000)), choose((5, 100, 600)), choose((1, 2, 50)), choose((0.2, 1, 1))

    def _come_and_go(self) -> None:
        for name in self.names:
            busy = self.habits[name][4]
            for tier in range(self.tiers):
                while self.random.random() < busy and self._queued(name, tier) < 3:
                    self.arrive(name, tier)
        if self.random.random() < 0.05 and self.waiting:
            self._leave(self.random.choice(list(self.waiting)))
        if self.random.random() < 0.05 and self.running:
            self._leave(self.random.choice(list(self.running)))
        if self.random.random() < 0.05 and self.running:
            self._yield(self.random.choice(list(self.running)))
        if self.random.random() < 0.02:
            for seq in [seq for seq, ticket in self.waiting.items() if ticket.tenant == self.names[0]]:
                self._leave(seq)
        if self.random.random() < 0.1:
            self.barred = {name for name in self.names if self.random.random() < 0.2}
        if self.bypass and self.random.random() < 0.1:
            self.over = {name for name in self.names if self.random.random() < 0.5}
        if self.random.random() < 0.05 and self.waiting:
            kept = self.random.choice(list(self.waiting.values()))
            self.room.keep(kept)
            self.kept = kept.tier, kept.tenant
        self._watch()

    def _admit(self) -> None:
        while len(self.running) < self.seats:
            within = (lambda ticket: ticket.tenant not in self.over) if self.bypass else everybody
            ticket = self.room.head(lambda ticket: ticket.tenant not in self.barred, within)
            if ticket is None:
                return
            if self.kept == (ticket.tier, ticket.tenant):
                self.kept = None
                if self.room.debt(ticket.tier, ticket.tenant) > 0:
                    self.meters[ticket.tier].watch(set())  # whoever's turn it was is passed over
            self.admitting = True
            self.room.take(ticket)
            self.admitting = False
            del self.waiting[ticket.seq]
            self.running[ticket.seq] = self.lengths[ticket.seq]
            self._watch()
            if self.habits[ticket.tenant][4] == 1:
                self.arrive(ticket.tenant, ticket.tier)  # a flood never lets its queue run dry

    def _compute(self) -> None:
        for seq, running in list(self.running.items()):
            if self.random.random() < 0.1:
                continue  # a chunked prompt: nothing is told yet
            outputs = min(self.random.choice((0, 1, 1, 3)), running.length - running.outputs)
            cached = 0 if running.reported else self.random.randint(0, running.ticket.prompt_tokens)
            computed = 0 if running.reported else running.ticket.prompt_tokens - cached
            running.reported = True
            running.outputs += outputs
            micros = outputs * 10 * (1 + len(running.ticket.tenant) + int(running.ticket.tenant[1:]))
            self.room.spent(seq, cached=cached, computed=computed, outputs=outputs, micros=micros)
            if running.outputs == running.length:
                del self.running[seq]
                self.room.end(seq, natural=True)

    def _leave(self, seq: int) -> None:
        self.waiting.pop(seq, None)
        self.running.pop(seq, None)
        self.room.end(seq, natural=False)
        self._watch()

    def _yield(self, seq: int) -> None:
        ticket = self.running.pop(seq).ticket
        self.waiting[seq] = ticket
        self.room.add(ticket)
        self._watch()

    def _queued(self, name: str, tier: int) -> int:
        return sum(ticket.tenant == name and ticket.tier == tier for ticket in self.waiting.values())

    def _watch(self) -> None:
        if self.kept and not self._queued(self.kept[1], self.kept[0]):
            self.kept = None
        for tier, meter in enumerate(self.meters):
            waiting = {ticket.tenant for ticket in self.waiting.values() if ticket.tier == tier}
            meter.watch(waiting - self.barred)

    def _teller(self, meter: Meter) -> Callable[[str, int], None]:
        return lambda tenant, units: meter.charge(tenant, units, admission=self.admitting)

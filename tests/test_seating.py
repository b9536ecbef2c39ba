"""seating.py: waiting room and shares joined, over a machine whose yields take effect a step later."""

import random
from dataclasses import dataclass, field

import pytest

from fairstep.fairness.policies import make_room
from fairstep.fairness.pricing import UNIT
from fairstep.fairness.seating import Seating
from fairstep.fairness.shares import NOTHING, Room, Shares
from fairstep.fairness.ticket import Ticket
from fairstep.fairness.tier_room import May, everybody
from fairstep.fairness.yield_budget import MOST


def need(ticket: Ticket) -> Room:
    return Room(1, ticket.prompt_tokens // 1000)


@dataclass
class Machine:
    """Seats and pages: one for each 1000 tokens of a prompt. A sequence runs as many steps as its max_tokens."""

    whole: Room
    shared: bool = True
    may: May = everybody
    quantum: int = 1000 * UNIT  # a request of one page
    step: int = 0
    seqs: int = 0
    left: dict[int, int] = field(default_factory=dict)  # steps, of sequences that run
    tickets: dict[int, Ticket] = field(default_factory=dict)
    started: dict[int, int] = field(default_factory=dict)  # the step in which each began first
    yielding: int | None = None
    yields: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        room = make_room("drr", quantum=self.quantum)
        shares = Shares(self.whole, room.part) if self.shared else None
        self.seating = Seating(room, need, shares=shares, may=lambda ticket: self.may(ticket))

    def arrive(self, tenant: str, count: int = 1, *, pages: int = 1, steps: int = 1000, tier: int = 0) -> list[int]:
        for _ in range(count):
            self.seqs += 1
            ticket = Ticket(self.seqs, self.seqs, tenant, tier=tier, prompt_tokens=1000 * pages, max_tokens=steps)
            self.tickets[ticket.seq] = ticket
            self.seating.room.add(ticket)
        return list(range(self.seqs - count + 1, self.seqs + 1))

    @property
    def free(self) -> Room:
        return sum((NOTHING - need(self.tickets[seq]) for seq in self.left), self.whole)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._step()

    def running(self, tenant: str) -> int:
        return sum(self.tickets[seq].tenant == tenant for seq in self.left)

    def _step(self) -> None:
        self.step += 1
        if self.yielding in self.left:
            del self.left[self.yielding]
            self.seating.back(self.tickets[self.yielding])
        while (ticket := self.seating.next(self.free)) is not None:
            self.seating.take(ticket)
            self.left[ticket.seq] = ticket.max_tokens
            self.started.setdefault(ticket.seq, self.step)
        self._check_nobody_is_blocked()
        self.yielding = self.seating.choose_yield(self.free)
        if self.yielding is not None:
            self.yields.append(self.yielding)
        self._compute()
        self.seating.check()

    def _check_nobody_is_blocked(self) -> None:
        """Where everybody who waits and may would fit, nobody who may is left."""
        assert self.free.covers(NOTHING), "more is held than there is"
        waiting = self._heads()
        room = self.free if self.left else self.whole
        if all(room.covers(need(ticket)) for ticket in waiting):
            assert not waiting, "somebody may, and nobody is seated"

    def _heads(self) -> list[Ticket]:
        """The next one of every tenant, if it may."""
        seen: set[tuple[int, str]] = set()
        heads = []
        while head := self.seating.room.head(lambda t: (t.tier, t.tenant) not in seen and self.may(t)):
            seen.add((head.tier, head.tenant))
            heads.append(head)
        return heads

    def _compute(self) -> None:
        for seq in list(self.left):
            self.left[seq] -= 1
            self.seating.room.spent(seq, computed=1, outputs=1)
            if not self.left[seq]:
                del self.left[seq]
                self.seating.end(seq, natural=True)


def flooded(tenants: str = "a", seats: int = 8, **more: object) -> Machine:
    """A machine that runs nothing but these tenants' endless sequences, with many more waiting."""
    machine = Machine(Room(seats, 10 * seats))
    for tenant in tenants:
        machine.arrive(tenant, 4 * seats, **more)  # type: ignore[arg-type]
    machine.run(3)
    assert not machine.yields
    return machine


def test_a_newcomer_starts_within_two_steps() -> None:
    machine = flooded()
    (newcomer,) = machine.arrive("b")
    arrived = machine.step
    machine.run(5)
    assert machine.started[newcomer] <= arrived + 2
    assert len(machine.yields) == 1


@pytest.mark.parametrize("tenants", ["ab", "abc", "abcdef"])
def test_a_newcomer_starts_within_two_steps_among_many_that_are_not_over_the_cap(tenants: str) -> None:
    machine = flooded(tenants, seats=48)
    (newcomer,) = machine.arrive("z")
    arrived = machine.step
    machine.run(5)
    assert machine.started[newcomer] <= arrived + 2


def test_a_newcomer_gets_its_share_and_no_more_a_seat_a_step() -> None:
    machine = flooded()
    machine.arrive("b", 20)
    machine.run(6)
    assert machine.running("a") == machine.running("b") == 4
    assert len(machine.yields) == len(set(machine.yields)) == 4


def test_freed_room_is_kept_for_a_larger_one_until_it_fits() -> None:
    machine = flooded(pages=10)
    (large,) = machine.arrive("b", pages=30)
    machine.run(3)
    assert large not in machine.started and len(machine.left) < 8
    machine.run(2)
    assert machine.started[large] == machine.step - 1
    assert machine.running("a") == 5 and len(machine.yields) == 3


def test_nobody_takes_room_that_owes_a_quantum_more_than_whom_it_would_take_it_from() -> None:
    machine = flooded()
    machine.arrive("b", 20, pages=3)
    machine.run(10)
    assert machine.running("b") == 1 and len(machine.yields) == 1
    machine.run(250)
    assert machine.running("b") > 1


def test_who_is_in_need_always_takes_room_and_others_by_a_budget() -> None:
    machine = Machine(Room(40, 400), quantum=100_000 * UNIT)
    machine.arrive("a", 100)
    machine.run(3)
    machine.arrive("b", 30)
    machine.run(60)
    assert len(machine.yields) == 5 + MOST == machine.running("b")  # a quarter of its 20 seats
    (newcomer,) = machine.arrive("c")
    machine.run(3)
    assert newcomer in machine.started


def test_nobody_yields_for_what_yields_alone_cannot_seat() -> None:
    machine = flooded(pages=10)
    (large,) = machine.arrive("b", pages=60)
    machine.run(10)
    assert not machine.yields and large not in machine.started


def test_a_higher_tier_takes_seats_from_a_lower_one_only() -> None:
    machine = flooded()
    machine.arrive("low", 8, tier=1)
    machine.run(5)
    assert machine.running("low") == 0
    machine = Machine(Room(8, 80))
    machine.arrive("low", 20, tier=1, steps=1000)
    machine.run(2)
    machine.arrive("a", 20)
    machine.run(20)
    assert machine.running("a") == 7 and machine.running("low") == 1  # the oldest stays


def test_a_lone_tenant_gets_everything() -> None:
    assert flooded().running("a") == 8


def test_a_cap_holds_while_another_tenant_has_somebody_waiting() -> None:
    machine = Machine(Room(8, 80))
    machine.arrive("a", 20)
    machine.arrive("b", 20)
    machine.run(4)
    assert machine.running("a") <= 6 and machine.running("b") <= 6


def test_without_shares_nobody_yields() -> None:
    machine = Machine(Room(8, 80), shared=False)
    machine.arrive("a", 20)
    machine.run(2)
    machine.arrive("b")
    machine.run(5)
    assert machine.running("a") == 8 and not machine.yields


def test_who_gave_its_seat_back_once_keeps_it_the_next_time() -> None:
    machine = flooded(seats=2)
    machine.arrive("b", steps=3)
    machine.run(8)
    assert machine.yields == [2] and machine.running("a") == 2
    machine.arrive("c", steps=3)
    machine.run(8)
    assert machine.yields == [2]


@pytest.mark.parametrize("seed", range(40))
def test_capped_limited_and_free_tenants_never_block_one_another(seed: int) -> None:
    """Whoever may by its limits, on a machine where everything fits, is seated; in the end nobody waits."""
    choose = random.Random(seed)
    limits = {name: choose.choice((1, 2, 1000)) for name in "abcd"}
    machine = Machine(Room(choose.choice((2, 5, 12)), 60))
    machine.may = lambda ticket: machine.running(ticket.tenant) < limits[ticket.tenant]
    for _ in range(60):
        for name in "abcd":
            if choose.random() < 0.2:
                pages, steps = choose.choice((1, 1, 4, 30)), choose.randint(1, 12)
                machine.arrive(name, choose.randint(1, 6), pages=pages, steps=steps, tier=choose.choice((0, 0, 1)))
        machine.run(1)
        assert len(machine.yields) == len(set(machine.yields)), "one yielded twice"
    for _ in range(3000):
        if not len(machine.seating.room) and not machine.left:
            break
        assert machine.left or machine.seating.next(machine.free), "nobody is admitted, and nobody runs"
        machine.run(1)
    assert not machine.left and machine.started.keys() == machine.tickets.keys()


def test_nobody_yields_where_room_comes_free_with_the_next_step_anyway() -> None:
    machine = flooded()
    machine.arrive("b")
    machine.seating.grow(1, 1, ends=True)
    machine.run(1)
    assert not machine.yields

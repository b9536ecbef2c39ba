"""fair_room.py: tiers, turns and own order joined; the ledger's invariants over random histories."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fairstep.fairness.billing import Billing
from fairstep.fairness.drr import DeficitRoundRobin
from fairstep.fairness.fair_room import FairRoom
from fairstep.fairness.policies import POLICIES, Policy, make_room
from fairstep.fairness.pricing import UNIT, CostModel
from fairstep.fairness.tenant_queue import by_urgency
from fairstep.fairness.ticket import Ticket
from fairstep.fairness.tier_room import everybody
from fairstep.fairness.tiers import Tiers


def ticket(seq: int, tenant: str = "a", **more: object) -> Ticket:
    values = {"prompt_tokens": 100, "max_tokens": 50, **more}
    return Ticket(seq, seq, tenant, **values)  # type: ignore[arg-type]


def room_of(*tickets: Ticket, quantum: int = 100 * UNIT, least: dict[int, int] | None = None) -> FairRoom:
    room = make_room("drr", quantum=quantum, least=least)
    for each in tickets:
        room.add(each)
    return room


def taken(room: FairRoom, count: int) -> list[int]:
    return [room.take().seq for _ in range(count)]


def test_a_burst_of_ten_thousand_does_not_delay_five() -> None:
    room = make_room("drr")
    for seq in range(10_000):
        room.add(ticket(seq, "a"))
    for seq in range(10_000, 10_005):
        room.add(ticket(seq, "b"))
    order = [room.take().tenant for _ in range(25)]
    assert order.count("b") == 5


def test_a_higher_tier_goes_first() -> None:
    room = room_of(ticket(1, "a", tier=1), ticket(2, "b", tier=0), ticket(3, "a", tier=1), ticket(4, "b", tier=0))
    assert taken(room, 4) == [2, 4, 1, 3]


def test_a_lower_tier_can_have_a_minimum_share() -> None:
    room = room_of(*(ticket(seq, tier=seq % 2) for seq in range(200)), least={1: 250})
    tiers = Counter(room.take().tier for _ in range(100))
    assert abs(tiers[1] - 25) <= 2


def test_inside_a_tenant_its_own_order_holds() -> None:
    room = room_of(ticket(1), ticket(2, deadline=5.0), ticket(3, priority=-1), ticket(4, deadline=4.0))
    assert taken(room, 4) == [3, 4, 2, 1]


def test_who_waits_again_goes_first_and_pays_nothing() -> None:
    room = room_of(ticket(1), ticket(2, deadline=1.0))
    room.take(room.head())
    first = room.take()
    served = next(room.standings()).served
    room.add(ticket(3, deadline=0.0))
    room.add(first)
    assert taken(room, 2) == [first.seq, 3]
    assert next(room.standings()).served == served + 100 * UNIT


def test_a_tenant_that_may_not_now_is_passed_over_without_charge() -> None:
    room = room_of(ticket(1, "a"), ticket(2, "b"))
    head = room.head(lambda ticket: ticket.tenant != "a")
    assert head is not None
    assert room.take(head).tenant == "b"
    assert [standing.served for standing in room.standings()] == [0, 100 * UNIT]
    assert room.head() == ticket(1, "a")


def test_asking_changes_nothing() -> None:
    room = room_of(ticket(1, "a"), ticket(2, "b"), ticket(3, "b"))
    before = list(room.standings())
    assert room.head(lambda ticket: False) is None
    assert room.head() is room.head()
    assert list(room.standings()) == before


def test_an_expired_or_cancelled_sequence_leaves_free_of_charge_once() -> None:
    room = room_of(ticket(1), ticket(2))
    assert room.remove(1) and not room.remove(1)
    room.end(1, natural=False)
    room.spent(1, computed=5)
    assert room.take().seq == 2
    room.end(2, natural=False)
    room.check()
    assert len(room) == 0 and all(not standing.served for standing in room.standings())


def test_a_sequence_that_expires_while_it_waits_again_gets_back_what_it_did_not_use() -> None:
    room = room_of(ticket(1))
    first = room.take()
    room.spent(1, computed=40)
    room.add(first)
    assert room.remove(1)
    room.check()
    assert next(room.standings()).served == 40 * UNIT


def test_whom_room_is_kept_for_goes_before_its_turn_and_no_round_is_lost_for_it() -> None:
    room = room_of(*(ticket(seq, tenant) for seq, tenant in enumerate("aabb")), quantum=150 * UNIT)
    assert room.take().tenant == "a"
    newcomer = ticket(4, "c")
    room.add(newcomer)
    room.keep(newcomer)
    assert room.head() == newcomer
    assert room.take().tenant == "c"
    assert [standing.debt for standing in room.standings()] == [-50 * UNIT, -150 * UNIT, 100 * UNIT]
    assert [room.take().tenant for _ in range(3)] == ["a", "b", "b"]
    room.keep(None)
    room.check()


def test_room_is_kept_only_as_long_as_somebody_waits_for_it() -> None:
    room = room_of(ticket(1, "a"), ticket(2, "b"))
    room.keep(ticket(2, "b"))
    room.remove(2)
    room.add(ticket(3, "b"))
    assert room.head() == ticket(1, "a")


def test_other_names_change_no_order() -> None:
    orders = []
    for names in ("abc", "zyx"):
        room = room_of(*(ticket(seq, names[seq * seq % 3], prompt_tokens=1 + seq % 7 * 40) for seq in range(60)))
        orders.append(taken(room, 60))
    assert orders[0] == orders[1]


def test_splitting_requests_into_small_ones_changes_a_share_by_a_quantum_and_a_request_at_most() -> None:
    services = []
    for parts in (1, 10):
        room = make_room("drr", quantum=500 * UNIT)
        for seq in range(100):
            room.add(ticket(seq, "a", prompt_tokens=1000))
        for seq in range(100, 100 + 100 * parts):
            room.add(ticket(seq, "b", prompt_tokens=1000 // parts))
        served = {"a": 0, "b": 0}
        while served["a"] + served["b"] < 60_000 * UNIT:
            head = room.take()
            served[head.tenant] += head.prompt_tokens * UNIT
        services.append(served["b"])
    assert abs(services[0] - services[1]) <= (500 + 1000) * UNIT


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_keeps_the_same_books(policy: Policy) -> None:
    room = make_room(policy)
    for seq in range(30):
        room.add(ticket(seq, "abc"[seq % 3]))
    for _ in range(30):
        head = room.take()
        room.spent(head.seq, cached=20, computed=80, outputs=1)
        room.spent(head.seq, computed=9, outputs=9)
        room.end(head.seq, natural=True)
        room.check()
    assert all(standing.served == 10 * (80 + 2 + 20) * UNIT for standing in room.standings())


class Ledger(RuleBasedStateMachine):
    """Random lives of sequences against plain books: who waits, who runs, what each really took."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: list[DeficitRoundRobin] = []
        billing = Billing(CostModel(kind="tokens"))
        self.room = FairRoom(self._turns, billing, Tiers({1: 200}, 200 * UNIT), quantum=100 * UNIT)
        self.waiting: dict[int, Ticket] = {}
        self.running: dict[int, Ticket] = {}
        self.took: dict[int, list[int]] = {}  # uncached, cached, outputs of sequences that are not over
        self.over: Counter[tuple[int, str]] = Counter()  # units of those that are over
        self.seqs = 0

    def _turns(self) -> DeficitRoundRobin:
        self.turns.append(DeficitRoundRobin(100 * UNIT))
        return self.turns[-1]

    @rule(
        tenant=st.sampled_from("abc"),
        tier=st.integers(0, 1),
        weight=st.sampled_from([1, 1, 2, 5]),
        priority=st.integers(0, 1),
        deadline=st.none() | st.integers(0, 9).map(float),
        prompt=st.integers(1, 400),
    )
    def arrive(self, tenant: str, tier: int, weight: int, priority: int, deadline: float | None, prompt: int) -> None:
        self.seqs += 1
        new = Ticket(self.seqs, self.seqs, tenant, priority, deadline, tier, weight, prompt, 200)
        self.waiting[new.seq] = new
        self.room.add(new)

    @rule(barred=st.sets(st.sampled_from("abc")), over=st.sets(st.sampled_from("abc")))
    def take(self, barred: set[str], over: set[str]) -> None:
        head = self.room.head(lambda ticket: ticket.tenant not in barred, lambda ticket: ticket.tenant not in over)
        free = [ticket for ticket in self.waiting.values() if ticket.tenant not in barred]
        assert (head is None) == (not free), "somebody may, and nobody is served"
        if head is None:
            return
        own = [t for t in self.waiting.values() if (t.tenant, t.tier) == (head.tenant, head.tier)]
        assert head == min(own, key=by_urgency), "its tenant's own order is broken"
        self.room.take(head)
        self.running[head.seq] = self.waiting.pop(head.seq)
        self.took.setdefault(head.seq, [])

    @precondition(lambda self: self.running)
    @rule(data=st.data(), cached=st.integers(0, 400), outputs=st.integers(0, 50), over=st.booleans())
    def compute(self, data: st.DataObject, cached: int, outputs: int, over: bool) -> None:
        seq = data.draw(st.sampled_from(sorted(self.running)))
        rounds = [turns.round for turns in self.turns]
        prompt = self.running[seq].prompt_tokens
        if not self.took[seq]:
            cached = min(cached, prompt)
            self.took[seq] = [prompt - cached, cached, 0]
        self.took[seq][2] += outputs
        self.room.spent(seq, cached=cached, computed=prompt - min(cached, prompt), outputs=outputs)
        if over:
            self._end(seq, natural=True)
        assert rounds == [turns.round for turns in self.turns], "a round passed without anybody's turn"

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        seq = data.draw(st.sampled_from(sorted(self.running)))
        back = self.running.pop(seq)
        self.room.add(back)
        self.waiting[seq] = replace(back, again=True)

    @precondition(lambda self: self.waiting or self.running)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self._end(data.draw(st.sampled_from(sorted({**self.waiting, **self.running}))), natural=False)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def keep(self, data: st.DataObject) -> None:
        self.room.keep(self.waiting[data.draw(st.sampled_from(sorted(self.waiting)))])

    @invariant()
    def books_agree(self) -> None:
        self.room.check()
        assert len(self.room) == len(self.waiting)
        for standing in self.room.standings():
            mine = [t for t in self.waiting.values() if (t.tenant, t.tier) == (standing.tenant, standing.tier)]
            assert standing.waiting == len(mine)
            assert len(mine) or standing.debt >= 0, "credit is banked"

    def _end(self, seq: int, *, natural: bool) -> None:
        self.room.end(seq, natural=natural)
        over = self.waiting.pop(seq, None) or self.running.pop(seq)
        if took := self.took.pop(seq, None):
            uncached, cached, outputs = took
            self.over[over.tier, over.tenant] += uncached * UNIT + cached * UNIT // 10 + outputs * 2 * UNIT

    def teardown(self) -> None:
        """Once arrivals stop everybody is served; then each tenant was charged exactly what it took."""
        for seq in sorted(self.running):
            self._end(seq, natural=True)
        count = len(self.waiting)
        for _ in range(count):
            head = self.room.head(everybody)
            assert head is not None
            self.room.take(head)
            self.running[head.seq] = self.waiting.pop(head.seq)
            self._end(head.seq, natural=False)
        self.room.check()
        assert len(self.room) == 0
        assert {(s.tier, s.tenant): s.served for s in self.room.standings() if s.served} == dict(self.over)
        assert not any(seq in self.room.billing for seq in range(self.seqs + 1))


TestLedger = Ledger.TestCase

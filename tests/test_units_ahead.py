"""units_ahead.py: what is served before a request, beside what deficit round robin does."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairstep.fairness.drr import DeficitRoundRobin
from units_ahead import Backlog, ahead

QUANTUM = 100


def test_a_flood_of_another_tenant_counts_for_no_more_than_its_rounds() -> None:
    flood = Backlog(tenant="flood", cost=10_000 * 100)
    assert ahead(Backlog(tenant="small"), [flood], QUANTUM) == 50  # the one or the other goes first
    assert ahead(Backlog(tenant="small", cost=200), [flood], QUANTUM) == 200 + 250


def test_what_waits_of_the_own_tenant_is_before_it_and_little_of_others_counts_whole() -> None:
    mine = Backlog(tenant="a", cost=10_000)
    assert ahead(mine, [Backlog(tenant="b", cost=30), mine], QUANTUM) == 10_030


def test_weights_and_debts_count() -> None:
    mine = Backlog(tenant="a", weight=2, cost=1000)
    assert ahead(mine, [Backlog(tenant="b", weight=4, cost=10**6)], QUANTUM) == 1000 + 2200
    assert ahead(mine, [Backlog(tenant="b", weight=4, cost=10**6, debt=500)], QUANTUM) == 1000 + 1700
    owing = Backlog(tenant="a", weight=2, cost=1000, debt=200)
    assert ahead(owing, [Backlog(tenant="b", weight=4, cost=10**6)], QUANTUM) == 1000 + 2600


def test_a_tenant_that_is_owed_a_turn_goes_at_once() -> None:
    others = [Backlog(tenant="b", cost=10**6, debt=40)]
    assert ahead(Backlog(tenant="a", debt=-100), others, QUANTUM) == 0


def test_what_others_send_meanwhile_overtakes_a_long_queue_within_their_turns() -> None:
    mine = Backlog(tenant="a", cost=10_000)
    sending = [Backlog(tenant="b", arriving=500.0)]
    assert ahead(mine, sending, QUANTUM) == 10_000
    assert ahead(mine, sending, QUANTUM, rate=1000.0) == pytest.approx(20_000, rel=0.05)  # half of all is b's
    flooding = [Backlog(tenant="b", arriving=1e9)]
    assert ahead(mine, flooding, QUANTUM, rate=1000.0) == 20_050
    before = [Backlog(tenant="b", tier=0, arriving=500.0)]
    late = Backlog(tenant="a", tier=1, cost=10_000)
    assert ahead(late, before, QUANTUM, rate=1000.0) == pytest.approx(20_000, rel=0.05)


def test_tiers_before_it_are_served_whole_and_those_after_it_not_at_all() -> None:
    others = [Backlog(tenant="b", tier=0, cost=5000), Backlog(tenant="c", tier=2, cost=7000)]
    assert ahead(Backlog(tenant="a", tier=1), others, QUANTUM) == 5000


queues = st.lists(
    st.tuples(st.integers(1, 4), st.lists(st.integers(1, 250), min_size=1, max_size=30)), min_size=2, max_size=5
)


@given(queues, st.data())
def test_it_is_what_deficit_round_robin_serves_give_or_take_a_turn_of_each(
    queues: list[tuple[int, list[int]]], data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(queues[0][1]) - 1))
    backlogs = [
        Backlog(tenant=str(number), weight=weight, cost=sum(costs[:place] if number == 0 else costs))
        for number, (weight, costs) in enumerate(queues)
    ]
    foreseen = ahead(backlogs[0], backlogs[1:], QUANTUM)
    served = _served_before(queues, place)
    weights = sum(weight for weight, _ in queues)
    assert abs(foreseen - served) <= QUANTUM * weights + 250 * len(queues)


def _served_before(queues: list[tuple[int, list[int]]], place: int) -> int:
    """Units that real turns serve before request number `place` of the first queue."""
    turns = DeficitRoundRobin(QUANTUM)
    left = {str(number): deque(costs) for number, (_, costs) in enumerate(queues)}
    for number, (weight, _) in enumerate(queues):
        turns.enter(str(number), weight)
    served = 0
    while True:
        tenant = turns.first(lambda name: True)
        assert tenant is not None
        if tenant == "0" and len(left["0"]) == len(queues[0][1]) - place:
            return served
        cost = left[tenant].popleft()
        served += cost
        turns.start(tenant)
        turns.charge(tenant, cost)
        if not left[tenant]:
            turns.leave(tenant)

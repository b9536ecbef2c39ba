"""drain.py: the fluid picture of all tenants at once, beside what is told of one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairstep.admission.drain import Claim, Drain
from units_ahead import Backlog, ahead

QUANTUM = 1000
CLAIMS = st.lists(
    st.builds(Claim, weight=st.integers(1, 5), cost=st.integers(0, 10_000), debt=st.integers(-1000, 5000)),
    min_size=1,
    max_size=8,
)


@given(CLAIMS, st.integers(0, 5000), st.data())
def test_it_says_for_each_request_what_backlog_says(claims: list[Claim], before: int, data: st.DataObject) -> None:
    drain = Drain(claims, before=before, quantum=QUANTUM)
    who = data.draw(st.integers(0, len(claims) - 1))
    cost = data.draw(st.integers(0, claims[who].cost))
    backlogs = [
        Backlog(tenant=str(number), tier=1, weight=claim.weight, cost=claim.cost, debt=claim.debt)
        for number, claim in enumerate(claims)
    ]
    mine = Backlog(tenant=str(who), tier=1, weight=claims[who].weight, cost=cost, debt=claims[who].debt)
    others = [Backlog(tenant="top", tier=0, cost=before), *(each for n, each in enumerate(backlogs) if n != who)]
    assert drain.units_before(claims[who], cost) == pytest.approx(ahead(mine, others, QUANTUM), abs=1.0)


def test_a_small_tenant_begins_before_a_flood_and_the_flood_last() -> None:
    flood, small = Claim(1, 1_000_000), Claim(1, 1000)
    drain = Drain([flood, small], before=0, quantum=QUANTUM)
    assert drain.total == 1_001_000
    assert drain.units_before(small, small.cost) == 1000 + 1500
    assert drain.units_before(flood, flood.cost) == drain.total


def test_weight_counts() -> None:
    heavy, light = Claim(4, 40_000), Claim(1, 40_000)
    drain = Drain([heavy, light], before=0, quantum=QUANTUM)
    assert drain.units_before(light, 10_000) == 10_000 + 40_000
    assert drain.units_before(heavy, 40_000) == 40_000 + 10_500


def test_tiers_before_go_first() -> None:
    assert Drain([Claim(1, 10)], before=500, quantum=QUANTUM).units_before(Claim(1, 10), 0) == 500
    assert Drain([], before=500, quantum=QUANTUM).total == 500

"""measures.py and logbook's curves: against plain sums over small books."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairstep.simulation.logbook import Curve, Logbook, Story
from fairstep.simulation.measures import waiting_spans, windowed_difference, worst_gap
from fairstep.simulation.trace import Arrival, Trace
from fairstep.tenants import Tenants, TenantTerms


def book_of(end: float, *tenants: TenantTerms, **served: dict[float, float]) -> Logbook:
    """A run of tenants that wait all the time: instants and amounts of service for each."""
    arrivals = [Arrival(at=0.0, tenant=name, prompt_tokens=1, outputs=1) for name in served]
    log = Logbook(Trace.of("t", arrivals, end, Tenants(tenants=tenants)))
    for name, amounts in served.items():
        for at, amount in amounts.items():
            log.books[name].service.add(at, amount)
            log.books[name].demand.add(at, 1000 * amount)
    log.ended_at = end
    return log


def test_a_curve_adds_up() -> None:
    curve = Curve()
    for at, amount in ((1.0, 5.0), (1.0, 2.0), (4.0, 3.0)):
        curve.add(at, amount)
    assert [curve.at(instant) for instant in (0.5, 1.0, 3.9, 4.0, 9.0)] == [0.0, 7.0, 7.0, 10.0, 10.0]
    assert (curve.between(1.0, 4.0), curve.total, list(curve.inside(1.0, 4.0))) == (3.0, 10.0, [4.0])


def test_equal_service_is_no_difference() -> None:
    each = {float(at): 10.0 for at in range(1, 200)}
    log = book_of(200.0, A=each, B=dict(each))
    assert windowed_difference(log).most == 0.0
    assert worst_gap(log) == 0.0


def test_the_difference_is_what_the_worse_served_one_lacked_a_second() -> None:
    log = book_of(200.0, A={float(at): 10.0 for at in range(1, 201)}, B={float(at): 4.0 for at in range(1, 201)})
    found = windowed_difference(log)
    assert found.mean == pytest.approx(6.0, rel=0.02) and found.variance < 0.1
    assert worst_gap(log) == pytest.approx(6.0 * 200, rel=0.02)


def test_nobody_lacks_what_it_did_not_ask_for() -> None:
    log = book_of(100.0, A={float(at): 10.0 for at in range(1, 101)}, B={50.0: 4.0})
    log.books["B"].demand = Curve()
    log.books["B"].demand.add(50.0, 4.0)
    assert windowed_difference(log).most == 0.0


def test_weights_divide_service() -> None:
    fast, slow = {float(at): 12.0 for at in range(1, 101)}, {float(at): 4.0 for at in range(1, 101)}
    log = book_of(100.0, TenantTerms("A", weight=3), A=fast, B=slow)
    assert windowed_difference(log).most == pytest.approx(0.0)
    assert worst_gap(log) == 0.0


def test_tenants_of_different_tiers_are_not_compared() -> None:
    log = book_of(100.0, TenantTerms("B", tier=1), A={1.0: 50.0}, B={1.0: 1.0})
    assert worst_gap(log) == 0.0


def test_gaps_count_only_while_both_wait() -> None:
    log = book_of(100.0, A={10.0: 5.0, 50.0: 70.0}, B={20.0: 1.0})
    log.stories[1].sent_at = 30.0  # B: nobody waits from here on
    assert worst_gap(log) == 5.0


def test_a_run_of_nothing_has_no_difference() -> None:
    log = Logbook(Trace.of("t", []))
    assert (windowed_difference(log).most, worst_gap(log)) == (0.0, 0.0)


spans = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), max_size=12)


@given(spans)
def test_waiting_spans_are_the_union_of_the_waits(waits: list[tuple[int, int]]) -> None:
    waits.sort()
    stories = [
        Story(Arrival(at=float(at), tenant="A", prompt_tokens=1, outputs=1), sent_at=float(at + length))
        for at, length in waits
    ]
    found = waiting_spans(stories).get("A", [])
    assert all(earlier[1] < later[0] for earlier, later in pairwise(found))
    for half in range(80):
        instant = half / 2 + 0.25
        assert any(begin < instant < end for begin, end in found) == any(
            at < instant < at + length for at, length in waits
        )


amounts = st.dictionaries(st.integers(1, 20).map(float), st.integers(1, 9).map(float), max_size=8)


@given(amounts, amounts)
def test_the_worst_gap_is_the_worst_over_all_windows(one: dict[float, float], other: dict[float, float]) -> None:
    log = book_of(21.0, A=dict(sorted(one.items())), B=dict(sorted(other.items())))
    difference = [
        sum(v for at, v in one.items() if at <= tick) - sum(v for at, v in other.items() if at <= tick)
        for tick in range(21)
    ]
    assert worst_gap(log) == max(abs(late - early) for early in difference for late in difference)

"""trace.py, processes.py and the suites: what comes in, and when."""

from itertools import pairwise
from random import Random
from statistics import fmean, pstdev

import pytest

from fairstep.simulation.processes import Lengths, constant, gamma, on_off, poisson, requests, rising
from fairstep.simulation.suites import SUITES, suite_trace
from fairstep.simulation.trace import Arrival, Trace


def test_arrivals_are_put_in_order_and_numbered() -> None:
    trace = Trace.of("t", [Arrival(at=at, prompt_tokens=1, outputs=1) for at in (3.0, 1.0, 2.0)])
    assert [(each.at, each.number) for each in trace.arrivals] == [(1.0, 0), (2.0, 1), (3.0, 2)]
    assert trace.span == 3.0


def test_the_answer_is_the_shorter_of_what_would_come_and_what_may() -> None:
    assert Arrival(at=0, prompt_tokens=1, outputs=10, max_tokens=4096).answer == 10
    assert Arrival(at=0, prompt_tokens=1, outputs=10, max_tokens=4).answer == 4
    assert Arrival(at=0, prompt_tokens=1, outputs=10).answer == 10


def test_scaling_keeps_order_and_at_least_one_token() -> None:
    arrival = Arrival(at=8.0, prompt_tokens=100, outputs=3, max_tokens=50, shared=33, deadline=5.0)
    trace = Trace.of("t", [arrival], until=20.0).scaled(lengths=16, time=2)
    [small] = trace.arrivals
    assert (small.at, small.prompt_tokens, small.outputs, small.max_tokens, small.shared) == (4.0, 6, 1, 3, 2)
    assert (small.deadline, trace.until) == (5.0, 10.0)


def test_constant_arrivals_are_as_far_apart_as_the_rate_says() -> None:
    assert list(constant(2.0, 2.0)) == [0.0, 0.5, 1.0, 1.5]
    assert list(constant(1.0, 2.0, phase=0.5, start=10.0)) == [10.5, 11.5]


@pytest.mark.parametrize("spread", [0.5, 1.0, 4.0])
def test_gamma_gaps_have_the_rate_and_the_spread(spread: float) -> None:
    instants = list(gamma(5.0, 4000.0, Random(1), spread=spread))
    gaps = [later - earlier for earlier, later in pairwise(instants)]
    assert fmean(gaps) == pytest.approx(0.2, rel=0.1)
    assert pstdev(gaps) / fmean(gaps) == pytest.approx(spread, rel=0.1)


def test_poisson_begins_where_it_is_told() -> None:
    instants = list(poisson(10.0, 5.0, Random(2), start=100.0))
    assert 20 < len(instants) < 90 and all(100 < at < 105 for at in instants)


def test_a_rising_rate_comes_closer_together() -> None:
    instants = list(rising(0.2, 2.0, 600.0))
    assert len(instants) == pytest.approx(600 * 1.1, rel=0.05)
    assert sum(at > 300 for at in instants) > 2 * sum(at <= 300 for at in instants)


def test_on_and_off_take_turns() -> None:
    assert list(on_off([0.0, 59.0, 60.0, 119.0, 120.0], 60.0)) == [0.0, 59.0, 120.0]


def test_lengths_stay_in_their_bounds() -> None:
    made = list(requests("A", constant(1.0, 500.0), Lengths((3, 5), (7, 7)), Random(0)))
    assert {each.prompt_tokens for each in made} == {3, 4, 5}
    assert {(each.outputs, each.tenant) for each in made} == {(7, "A")}


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_is_the_same_for_a_seed_and_ends_as_it_says(name: str) -> None:
    trace = suite_trace(name, 3, 60.0 if name != "burst" else None)
    assert trace == suite_trace(name, 3, 60.0 if name != "burst" else None)
    assert trace.name == name and trace.arrivals
    assert (trace.until is None) == SUITES[name].drains
    assert all(each.at < 61.0 for each in trace.arrivals)


def test_the_paper_s_rates_are_met() -> None:
    def per_second(name: str) -> dict[str, float]:
        trace = suite_trace(name)
        assert trace.until is not None
        return {own: sum(each.tenant == own for each in trace.arrivals) / trace.until for own in trace.names}

    assert per_second("overload") == pytest.approx({"1": 1.5, "2": 3.0}, rel=0.01)
    assert per_second("overload_weighted") == pytest.approx({"1": 0.8, "2": 0.8, "3": 1.2, "4": 1.6}, rel=0.01)
    assert per_second("on_off_overload") == pytest.approx({"1": 1.0, "2": 3.0}, rel=0.02)
    assert per_second("poisson_short_long") == pytest.approx({"1": 8.0, "2": 1.5}, rel=0.1)
    assert [each.weight for each in suite_trace("overload_weighted").book.tenants] == [1, 2, 3, 4]


def test_ten_thousand_against_five() -> None:
    trace = suite_trace("burst")
    counts = [sum(each.tenant == name for each in trace.arrivals) for name in ("A", "B")]
    assert counts == [10_000, 5]
    assert [each.at for each in trace.arrivals if each.tenant == "B"] == [0.0, 1.0, 2.0, 3.0, 4.0]

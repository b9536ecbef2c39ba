"""demand.py: what tenants go on asking for."""

import pytest

from fairstep.admission.demand import MIN_SWEEP, NO_HURRY, SHORTEST, Demand


def test_a_steady_demand_is_told_as_it_is_and_fades_when_it_ends() -> None:
    demand = Demand()
    for tenth in range(2000):
        demand.add("a", 50, tenth / 10)
    assert demand.of("a", 200.0) == pytest.approx(500.0, rel=0.01)
    assert demand.of("a", 300.0) < 5.0
    assert demand.of("b", 200.0) == 0.0


def test_a_burst_is_no_more_than_a_few_seconds_demand() -> None:
    demand = Demand()
    demand.add("a", 1000, 0.0)
    assert demand.of("a", 0.0) == pytest.approx(1000 / SHORTEST, rel=0.15)


def test_who_has_more_time_is_overtaken_by_what_comes_later_and_has_less() -> None:
    demand = Demand()
    for tenth in range(2000):
        demand.add("a", 1, tenth / 10, left=1.0)
        demand.add("a", 1, tenth / 10)
    assert demand.overtaking("a", 1.0, 9.0, 200.0) == 0.0, "none has less time"
    assert demand.overtaking("a", 5.0, 2.0, 200.0) == pytest.approx(20.0, rel=0.05)
    assert demand.overtaking("a", 5.0, 100.0, 200.0) == pytest.approx(40.0, rel=0.05), "until it has as little left"
    assert demand.overtaking("a", NO_HURRY, 100.0, 200.0) == pytest.approx(1000.0, rel=0.05)
    assert demand.overtaking("b", 5.0, 2.0, 200.0) == 0.0


def test_few_classes_of_hurry_are_kept() -> None:
    demand = Demand()
    for number in range(10_000):
        demand.add("a", 1, 0.0, left=number / 7)
    assert len(demand._came["a"].units) < 100


def test_tenants_that_left_are_forgotten() -> None:
    demand = Demand()
    for number in range(10 * MIN_SWEEP):
        demand.add(f"tenant {number}", 1, number * 10.0)
    assert len(demand.tenants()) <= MIN_SWEEP
    assert f"tenant {10 * MIN_SWEEP - 1}" in demand.tenants()

"""demand.py: what tenants go on asking for."""

import pytest

from fairstep.admission.demand import MIN_SWEEP, Demand


def test_a_steady_demand_is_told_as_it_is_and_fades_when_it_ends() -> None:
    demand = Demand()
    for tenth in range(2000):
        demand.add("a", 50, tenth / 10)
    assert demand.of("a", 200.0) == pytest.approx(500.0, rel=0.01)
    assert demand.of("a", 300.0) < 5.0
    assert demand.of("b", 200.0) == 0.0


def test_tenants_that_left_are_forgotten() -> None:
    demand = Demand()
    for number in range(10 * MIN_SWEEP):
        demand.add(f"tenant {number}", 1, number * 10.0)
    assert len(demand.tenants()) <= MIN_SWEEP
    assert f"tenant {10 * MIN_SWEEP - 1}" in demand.tenants()

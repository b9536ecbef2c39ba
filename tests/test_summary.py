"""summary.py: what a run comes to."""

import pytest

from fairstep.fairness.policies import make_room
from fairstep.simulation.simulator import simulate
from fairstep.simulation.suites import suite_trace
from fairstep.simulation.summary import Percentiles, summarize
from fairstep.simulation.trace import Arrival, Trace


def test_percentiles_are_by_nearest_rank() -> None:
    assert Percentiles.of(range(1, 101)) == Percentiles(50, 95, 99)
    assert Percentiles.of([3.0]) == Percentiles(3.0, 3.0, 3.0)
    assert Percentiles.of([]) == Percentiles(None, None, None)


def test_ends_are_counted_and_refusals_by_code() -> None:
    arrivals = [
        Arrival(at=0.0, tenant="A", prompt_tokens=8, outputs=4),
        Arrival(at=0.0, tenant="A", prompt_tokens=8, outputs=400, cancel=0.1),
        Arrival(at=0.0, tenant="A", prompt_tokens=8, outputs=400, deadline=0.1),
        Arrival(at=0.0, tenant="A", prompt_tokens=9000, outputs=1),
        Arrival(at=0.0, tenant="B", prompt_tokens=8, outputs=4, max_tokens=2),
    ]
    summary = summarize(simulate(Trace.of("t", arrivals), make_room("fcfs")))
    assert summary.tenants["A"].ended == {"cancelled": 1, "expired": 1, "refused": 1, "stop": 1}
    assert summary.tenants["A"].refused == {"context_length_exceeded": 1}
    assert summary.tenants["B"].ended == {"length": 1}
    assert summary.tenants["A"].goodput == pytest.approx(1 / summary.seconds)
    assert sum(tenant.share for tenant in summary.tenants.values()) == pytest.approx(1.0)


def test_one_tenant_s_flood_shows_in_the_other_s_times_under_first_come_first_served() -> None:
    summary = summarize(simulate(suite_trace("noisy_neighbour"), make_room("fcfs")))
    light, heavy = summary.tenants["B"], summary.tenants["A"]
    assert (light.requests, heavy.requests) == (5, 100)
    assert light.ttft.p50 is not None and light.ttft.p50 > 5.0  # alone it waits 0.06 s
    assert heavy.service == 20 * light.service
    assert summary.busy == pytest.approx(1.0)
    assert summary.tokens_per_second == pytest.approx(105 * 64 / summary.seconds)


def test_a_run_without_requests_has_a_summary() -> None:
    assert summarize(simulate(Trace.of("t", []), make_room("fcfs"))).tenants == {}

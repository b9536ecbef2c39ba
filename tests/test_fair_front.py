"""Tenants through the real front and step loop: floods cost others a few steps, ledgers add up, tiers are strict."""

from dataclasses import replace

import pytest

from fairstep import Engine, SamplingParams
from fairstep.config import EngineConfig
from fairstep.door import Report
from fairstep.fairness.policies import Policy, make_room
from fairstep.fairness.pricing import UNIT
from fairstep.request import Delta
from fairstep.simulation.logbook import Logbook
from fairstep.simulation.own_suites import burst
from fairstep.simulation.simulator import SETTINGS, Setup, Simulator
from fairstep.simulation.trace import Arrival, Trace
from fairstep.tenants import Tenants, TenantTerms
from fakes_text import FakeTokenizer
from fakes_worker import FakeRunner, fake_build, settings

SMALL = replace(SETTINGS, seats=8)


def simulator(
    trace: Trace, policy: Policy = "drr", *, slow_door: bool = False, quantum: int | None = None
) -> Simulator:
    setup = Setup(settings=SMALL, shared=policy == "drr", slow_door=slow_door)
    return Simulator(trace, make_room(policy, quantum=quantum), setup)


def waits(log: Logbook, tenant: str) -> list[float]:
    """Seconds to each first token."""
    found = [
        story.first_at - story.arrival.at for story in log.stories if story.arrival.tenant == tenant and story.first_at
    ]
    assert len(found) == sum(story.arrival.tenant == tenant for story in log.stories)
    return found


def flood(seats: int, *, tokens: int = 400, at: float = 1.0, **more: int) -> Trace:
    """A fills all seats and more; B comes once, later."""
    arrivals = [Arrival(at=0.0, tenant="A", prompt_tokens=16, outputs=tokens) for _ in range(seats + 4)]
    return Trace.of("flood", [*arrivals, Arrival(at=at, tenant="B", prompt_tokens=16, outputs=4, **more)])


def test_a_flood_of_a_thousand_costs_five_others_a_few_steps_and_under_fcfs_all_of_it() -> None:
    trace = burst(1000).trace("burst", 0)
    fair = simulator(trace)
    b_fair = waits(fair.run(), "B")
    fair.check()
    b_fcfs = waits(simulator(trace, "fcfs").run(), "B")
    assert max(b_fair) < 0.4, "a step takes about 0.02 to 0.06 s"
    assert min(b_fcfs) > 200.0


@pytest.mark.full
def test_a_flood_of_ten_thousand_costs_no_more() -> None:
    assert max(waits(simulator(burst(10_000).trace("burst", 0)).run(), "B")) < 0.4


@pytest.mark.parametrize(("slow_door", "most"), [(False, 2), (True, 3)])
def test_a_yield_lets_a_newcomer_begin_within_two_steps_three_over_a_slow_door(slow_door: bool, most: int) -> None:
    run = simulator(flood(8), slow_door=slow_door)
    under_way, first = steps_until_b(run)
    assert first - under_way <= most
    assert run.log.stories[-1].is_done and run.log.recomputed > 0, "somebody yielded"


def steps_until_b(run: Simulator) -> tuple[int, int]:
    """The step that was under way when B came, and the first one with a slice of its prompt, by number."""
    seen: dict[str, int] = {}
    receive = run.front.receive

    def watch(report: Report, now: float) -> list[Delta]:
        if report.step is not None and now >= 1.0:
            seen.setdefault("came", report.step.number)
            if any(piece.seq == run.front.seq_of("12") for piece in report.step.slices):
                seen.setdefault("began", report.step.number)
        return receive(report, now)

    run.front.receive = watch  # type: ignore[method-assign]
    run.run()
    run.check()
    return seen["came"], seen["began"]


def test_a_lone_tenant_gets_every_seat_and_loses_none_to_nobody() -> None:
    run = simulator(Trace.of("alone", [Arrival(at=0.0, tenant="A", prompt_tokens=4, outputs=20) for _ in range(20)]))
    running = []
    receive = run.front.receive

    def watch(report: Report, now: float) -> list[Delta]:
        running.append(report.gauges.running)
        return receive(report, now)

    run.front.receive = watch  # type: ignore[method-assign]
    log = run.run()
    assert max(running) == 8 and log.recomputed == 0


def test_a_higher_tier_goes_before_all_of_a_lower_one() -> None:
    arrivals = [
        *(Arrival(at=0.0, tenant="low", prompt_tokens=8, outputs=30) for _ in range(12)),
        *(Arrival(at=0.0, tenant="high", prompt_tokens=8, outputs=30) for _ in range(12)),
    ]
    terms = (TenantTerms("low", tier=1, weight=9), TenantTerms("high", tier=0))
    log = simulator(Trace.of("tiers", arrivals, book=Tenants(tenants=terms))).run()
    sent = {name: [s.sent_at or 0.0 for s in log.stories if s.arrival.tenant == name] for name in ("low", "high")}
    assert max(sent["high"]) <= sorted(sent["low"])[8], "no seat that became free went to the lower tier before"


def test_max_running_lets_a_tenant_wait_while_seats_are_free() -> None:
    arrivals = [Arrival(at=0.0, tenant="A", prompt_tokens=4, outputs=10) for _ in range(6)]
    run = simulator(Trace.of("most", arrivals, book=Tenants(tenants=(TenantTerms("A", max_running=2),))))
    running = []
    receive = run.front.receive

    def watch(report: Report, now: float) -> list[Delta]:
        running.append(report.gauges.running)
        return receive(report, now)

    run.front.receive = watch  # type: ignore[method-assign]
    log = run.run()
    assert max(running) == 2 and all(story.is_done for story in log.stories)


@pytest.mark.parametrize("pages", [64, 10])
def test_charges_less_refunds_are_what_the_answers_took(pages: int) -> None:
    """Also with preemptions and yields, which cost tenants nothing."""
    own = replace(settings(pages=pages, seats=4, context=40), prefix_cache=False)
    tenants = Tenants(tenants=(TenantTerms("a", weight=2), TenantTerms("b"), TenantTerms("low", tier=1)))
    build = fake_build(FakeRunner(), own)
    engine = Engine("fake", EngineConfig(quantum=20), tokenizer=FakeTokenizer(), tenants=tenants, build_worker=build)
    cost = dict.fromkeys(("a", "b", "low"), 0)
    for number in range(24):
        tenant = ("a", "b", "low")[number % 3]
        most = 9 + number % 9
        engine.submit(range(7), SamplingParams(max_tokens=most), tenant=tenant)
        cost[tenant] += UNIT * (7 + 2 * most)
        if number % 4 == 3:
            engine.step()
        engine.check()
    while engine.has_requests:
        for delta in engine.step():
            assert delta.finish_reason in (None, "length"), delta
        engine.check()
    charged = {each.tenant: each.served for each in engine._front._seats.room.standings()}
    assert charged == cost
    preempted = engine.stats().steps.preemptions
    assert preempted or pages == 64, "this pool is too small for that"


def test_terms_that_come_with_a_request_go_before_the_book() -> None:
    plans = FakeRunner()
    engine = Engine("fake", tokenizer=FakeTokenizer(), build_worker=fake_build(plans, settings()))
    engine.submit("abc", SamplingParams(max_tokens=1), terms=TenantTerms("t", tier=3, weight=5, prefix_group="g"))
    orders = engine._front.orders(0.0)
    assert orders is not None
    [admit] = orders.admit
    assert (admit.tenant, admit.tier, admit.weight, admit.salt) == ("t", 3, 5, "\x1fg")

"""What a front counts of its requests, tenants and tiers, from the door to the end."""

from dataclasses import replace
from typing import Any

import pytest

from fairstep.admission.limits import Need
from fairstep.batches import Batches
from fairstep.door import Coefficients, Gauges, Headroom, Report, Result
from fairstep.errors import RateLimited, ServerOverloaded, TenantQueueFull
from fairstep.fairness.policies import make_room
from fairstep.fairness.pricing import UNIT
from fairstep.front import Front
from fairstep.metrics import Metrics
from fairstep.request import Request, SamplingParams
from fairstep.simulation.own_suites import burst
from fairstep.simulation.simulator import SETTINGS, Setup, Simulator
from fairstep.stats import OTHER, Stats, TenantStats
from fairstep.tenants import Tenants, TenantTerms, TierTerms
from fakes_text import FakeTokenizer
from fakes_worker import ready, settings

BOOK = Tenants(
    tiers=(TierTerms(0, "fast", ttft_ms=1000, itl_ms=500), TierTerms(1, "slow")),
    tenants=(TenantTerms("acme"), TenantTerms("beta", tier=1)),
)


def front(batches: Batches | None = None, **changes: int) -> Front:
    room = make_room("drr")
    return Front(
        ready(settings(**changes)),
        FakeTokenizer(),
        room,
        Metrics(),
        draw_seed=lambda: 7,
        tenants=BOOK,
        shared=batches is None,
        batches=batches,
    )


def ask(name: str, tenant: str = "acme", arrival: float = 0.0, **more: Any) -> Request:
    params = SamplingParams(max_tokens=4)
    return Request(id=name, prompt_ids=tuple(b"hello"), params=params, tenant=tenant, arrival=arrival, **more)


def tell(f: Front, now: float, *results: Result, orders: int = 1, running: int = 1) -> None:
    gauges = Gauges(pages_total=64, running=running)
    f.receive(Report(orders, results, Headroom(4, 64), gauges, Coefficients(0, 0, 0, 0)), now)
    f.check()


def result(seq: int, outputs: int = 1, attempt: int = 1, **more: Any) -> Result:
    return Result(seq, attempt, (97,) * outputs, **more)


def of(f: Front, tenant: str = "acme") -> TenantStats:
    return f.stats(0.0).tenant(tenant)


def test_tokens_are_counted_where_they_are_served_and_no_token_twice() -> None:
    f = front()
    f.submit(ask("r"), now=0.0)
    f.orders(0.0)
    tell(f, 1.0, result(1, 0, cached=2, computed=1))
    tell(f, 2.0, result(1, computed=2))
    tell(f, 3.0, result(1, computed=1))
    tell(f, 4.0, result(1, 0, outcome="preempted"), running=0)
    f.orders(4.0)
    tell(f, 5.0, result(1, attempt=2, cached=3, recomputed=4), orders=2)  # its own work, found and done again
    tell(f, 6.0, result(1, attempt=2, computed=1, outcome="length"), orders=2)
    acme = of(f)
    assert (acme.cached_tokens, acme.uncached_tokens, acme.output_tokens) == (2, 3, 4)
    assert (acme.accepted, acme.yields) == (1, 0)
    assert f.stats(0.0).steps.preemptions == 1
    assert f.stats(0.0).ledger.recomputed == 4


def test_what_is_called_back_unseen_has_not_yielded_and_what_it_finds_later_is_counted() -> None:
    f = front()
    f.submit(ask("r"), now=0.0)
    f.orders(0.0)
    tell(f, 1.0, result(1, 0, outcome="yielded"), running=0)
    assert of(f).yields == 0
    f.orders(1.0)
    tell(f, 2.0, result(1, 0, attempt=2, cached=4, computed=1), orders=2)
    assert of(f).cached_tokens == 4 and f.stats(0.0).steps.prefix_found == 4
    tell(f, 3.0, result(1, 0, attempt=2, outcome="yielded"), orders=2, running=0)
    assert of(f).yields == 1


def test_running_and_waiting_follow_what_happens() -> None:
    f = front(seats=1)

    def now() -> tuple[int, int]:
        live = f.stats(0.0).live
        return live.running, live.waiting

    f.submit(ask("r"), ask("s"), now=0.0)
    f.orders(0.0)
    assert now() == (0, 2)
    tell(f, 1.0, result(1, computed=5))
    assert now() == (1, 1)
    tell(f, 2.0, result(1, 0, outcome="preempted"))
    assert now() == (0, 2)
    f.orders(2.0)
    tell(f, 3.0, result(1, attempt=2, recomputed=6), orders=2)
    f.cancel("r", 3.0)
    assert now() == (0, 1)
    f.fail_all("gone", 4.0)
    assert now() == (0, 0)


def test_waiting_for_a_batch_and_for_a_busy_worker_are_told_apart() -> None:
    f = front(Batches(4, 10.0, 1.0))
    tell(f, 0.0, orders=0, running=0)  # idle, and says so
    f.submit(ask("first", arrival=1.5), now=2.0)
    assert f.orders(2.0) is None
    assert f.orders(11.5) is not None  # after 9.5 s by choice; tokenizing is in neither part
    f.submit(ask("second", arrival=12.0), now=12.0)
    tell(f, 15.0, result(1, 4, computed=5, outcome="length"), running=0)  # 3 s for the worker
    assert f.orders(15.0) is None
    assert f.orders(22.0) is not None  # and 7 by choice
    acme = of(f)
    assert (acme.by_choice.sum, acme.for_worker.sum) == (9.5 + 7.0, 3.0)
    assert (acme.by_choice.count, acme.for_worker.count) == (2, 2)
    assert f.stats(0.0).requests.queue.sum == 10.0 + 10.0


def test_without_batches_nobody_waits_by_choice() -> None:
    f = front(seats=1)
    f.submit(ask("r"), ask("s"), now=1.0)
    f.orders(3.0)
    assert of(f).by_choice.sum == 0.0 and of(f).for_worker.sum == 2.0 * of(f).for_worker.count


@pytest.mark.parametrize(
    ("first_at", "gap", "good"), [(1.0, 0.5, 1), (1.1, 0.1, 0), (0.5, 0.6, 0)], ids=["in time", "late", "slow"]
)
def test_goodput_is_what_keeps_to_the_tiers_targets(first_at: float, gap: float, good: int) -> None:
    f = front()
    f.submit(ask("r"), ask("any", "beta"), now=0.0)
    f.orders(0.0)
    for number in range(3):
        now = first_at + number * gap
        outcome = "length" if number == 2 else None
        tell(f, now, *(result(seq, computed=5 if not number else 1, outcome=outcome) for seq in (1, 2)))
    stats = f.stats(10.0)
    assert (stats.tier("fast").ended, stats.tier("fast").good) == (1, good)
    assert (stats.tier("slow").ended, stats.tier("slow").good) == (1, 1)


def test_what_expires_is_refused_with_its_code_and_no_good_answer() -> None:
    f = front()
    f.submit(ask("r", deadline=2.0), now=0.0)
    f.orders(0.0)
    f.expire(2.0)
    stats = f.stats(2.0)
    assert stats.tenant("acme").refused == {"deadline_exceeded": 1}
    assert (stats.tier("fast").ended, stats.tier("fast").good) == (1, 0)


def test_refusals_are_the_tenants_and_those_for_want_of_room_were_asked_for_too() -> None:
    f = front()
    need = Need(prompt_tokens=1000, max_tokens=100)
    f.refused(BOOK.of("acme"), RateLimited("too much"), need, 0.0)
    assert f.stats(0.0).ledger.offered == 0.0  # a limit of its own
    f.refused(BOOK.of("acme"), ServerOverloaded("full"), need, 0.0)
    asked = f.stats(0.0).tier("fast").offered
    assert asked > 0.0
    f.refused(BOOK.of("beta"), TenantQueueFull("full"), None, 0.0)
    f.refused(None, RateLimited("who"), None, 0.0)
    stats = f.stats(0.0)
    assert stats.tenant("acme").refused == {"rate_limit_exceeded": 1, "server_overloaded": 1}
    assert stats.tenant("beta").refused == {"tenant_queue_full": 1}
    assert stats.tenant(OTHER).refused == {"rate_limit_exceeded": 1}
    assert stats.tier("fast").offered == asked


def test_the_oldest_is_the_one_that_came_first_and_waits() -> None:
    f = front(seats=1)
    f.submit(ask("r", arrival=1.0), now=1.0)
    f.submit(ask("s", arrival=4.0), now=4.0)
    assert f.stats(6.0).tier("fast").oldest_age == 5.0
    f.cancel("r", 6.0)
    assert f.stats(6.0).tier("fast").oldest_age == 2.0


def simulated(policy: str = "drr") -> tuple[Simulator, Stats]:
    simulator = Simulator(burst(200).trace("burst", 0), make_room(policy), Setup(settings=replace(SETTINGS, seats=8)))  # type: ignore[arg-type]
    simulator.run()
    simulator.check()
    return simulator, simulator.front.stats(simulator.clock.now())


def test_a_whole_run_adds_up() -> None:
    simulator, stats = simulated()
    stories = simulator.log.stories
    for name in ("A", "B"):
        mine = [story for story in stories if story.arrival.tenant == name]
        tenant = stats.tenant(name)
        assert tenant.accepted == len(mine) == tenant.first_token.count == tenant.by_choice.count
        assert tenant.uncached_tokens == sum(story.arrival.prompt_tokens for story in mine)
        assert tenant.output_tokens == sum(story.outputs for story in mine) == tenant.gap.count + len(mine)
    # nothing is left, and the ledger charged what was served, in its prices
    assert {(each.waiting, each.running, each.queued) for each in stats.accounts} == {(0, 0, 0)}
    for account in stats.accounts:
        tenant = stats.tenant(account.tenant)
        assert account.charged == UNIT * (tenant.uncached_tokens + 2 * tenant.output_tokens)
    assert stats.requests.output_tokens == sum(story.outputs for story in stories)
    assert stats.ledger.capacity is not None and stats.ledger.capacity > 0.0


def test_a_burst_is_more_than_can_be_served_while_it_lasts() -> None:
    trace = burst(200).trace("burst", 0)
    simulator = Simulator(trace, make_room("drr"), Setup(settings=replace(SETTINGS, seats=8)))
    seen: list[tuple[bool, float | None]] = []
    told = simulator.log.reported

    def look(report: Report, now: float) -> None:
        tier = simulator.front.stats(now).tiers[0]
        seen.append((tier.saturated, tier.predicted_wait))
        told(report, now)

    simulator.log.reported = look  # type: ignore[method-assign]
    simulator.run()
    assert seen[0] == (False, None)  # nothing was measured yet
    assert (True, pytest.approx(seen[100][1], rel=0.01)) in seen[50:200]
    waits = [wait for _, wait in seen if wait is not None]
    assert max(waits) > 10.0 and waits[-1] == 0.0
    assert seen[-1][0] is False or simulator.clock.now() < 100.0

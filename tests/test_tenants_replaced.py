"""A new book of tenants under way: shares, weights and limits of tenants already known change, and no stream ends."""

import asyncio
from itertools import pairwise

from fairstep import AsyncEngine, EngineConfig, SamplingParams
from fairstep.streams import Stream
from fairstep.tenants import Tenants, TenantTerms, TierTerms
from fakes_worker import settings
from virtual_time import TimedLink, virtual_engine

STEP = 1.0
CONFIG = EngineConfig(quantum=4)


def book(*, least: float = 0.0, weight: int = 1, running: int | None = None) -> Tenants:
    """a and c share the first tier, b is in the second."""
    tiers = TierTerms(0, "first"), TierTerms(1, "second", min_share=least)
    tenants = (
        TenantTerms("a", weight=weight, max_running=running),
        TenantTerms("b", tier=1),
        TenantTerms("c"),
    )
    return Tenants(tiers=tiers, tenants=tenants)


def ask(engine: AsyncEngine, tenant: str, count: int, tokens: int = 1) -> list[Stream]:
    return [engine.submit((1,), SamplingParams(max_tokens=tokens), tenant=tenant) for _ in range(count)]


def served(link: TimedLink, until: float) -> str:
    """Whose sequences were admitted up to an instant, in their order."""
    return "".join(admit.tenant for at, admit in link.sent if at <= until)


def test_a_new_minimum_share_counts_for_those_who_wait_already() -> None:
    link = TimedLink(settings(seats=1), STEP)
    with virtual_engine(link, CONFIG) as (engine, runner):

        async def replaced() -> str:
            async with engine:
                engine.tenants = book()
                asked = {name: ask(engine, name, 60) for name in "ab"}
                await asyncio.sleep(20 * STEP)
                engine.tenants = book(least=0.5)
                engine.check()
                await asyncio.sleep(20 * STEP)
                engine.check()
                assert all(not stream.ended for stream in asked["a"][40:])
                return served(link, 40 * STEP)

        order = runner.run(replaced())
    assert set(order[:20]) == {"a"}, "the second tier has no share yet"
    assert 7 <= order[23:].count("b") <= 10, order


def test_a_stream_under_way_goes_on_and_new_weights_and_limits_count_for_what_comes_next() -> None:
    link = TimedLink(settings(seats=2), STEP)
    with virtual_engine(link, CONFIG) as (engine, runner):

        async def replaced() -> tuple[str, str]:
            async with engine:
                engine.tenants = book()
                long = ask(engine, "b", 1, tokens=120)[0]
                asked = {name: ask(engine, name, 60) for name in "ac"}
                await asyncio.sleep(20 * STEP)
                engine.tenants = book(weight=4)
                later = {name: ask(engine, name, 60) for name in "ac"}
                usage = (await long.completion()).usage
                assert usage is not None and usage.completion_tokens == 120
                assert not any(stream.ended for stream in (asked["c"][-1], later["a"][-1]))
                whole = served(link, 100 * STEP)
                return whole[1:20], whole[21:]

        before, after = runner.run(replaced())
    assert abs(before.count("a") - before.count("c")) <= 4, before
    assert after.count("a") > 1.5 * after.count("c"), after


def test_a_new_bound_on_running_counts_for_requests_to_come() -> None:
    link = TimedLink(settings(seats=4), STEP)
    with virtual_engine(link, CONFIG) as (engine, runner):

        async def replaced() -> None:
            async with engine:
                engine.tenants = book()
                first = ask(engine, "a", 4, tokens=5)
                await asyncio.sleep(2 * STEP)
                engine.tenants = book(running=1)
                for stream in [*first, *ask(engine, "a", 3, tokens=5)]:
                    await stream.completion()

        runner.run(replaced())
    times = [at for at, _ in link.sent]
    assert times[:4] == [0, 0, 0, 0]
    assert all(later - earlier >= 4 * STEP for earlier, later in pairwise(times[4:])), times

"""A tenant over its share, one that may not run more, one whose rate is limited and a free one: none blocks another.

Through the whole engine in virtual time: as long as a seat is free, nobody waits who may run; and in the end all did.
"""

import asyncio
from random import Random

import pytest

from fairstep import AsyncEngine, EngineConfig, SamplingParams
from fairstep.admission.admission import Admission
from fairstep.admission.bounded_queue import QueueBounds
from fairstep.admission.limit_store import MemoryLimits
from fairstep.admission.limits import Limit
from fairstep.errors import RateLimited
from fairstep.reception import Reception
from fairstep.tenants import Tenants, TenantTerms, TierTerms
from fakes_worker import settings
from virtual_time import TimedLink, virtual_engine

STEP, SEATS, SECONDS = 1.0, 6, 60
PER_MINUTE = 5


def book(random: Random) -> Tenants:
    tiers = TierTerms(0, "first"), TierTerms(1, "second", min_share=random.choice((0.0, 0.3)))
    limit = Limit(what="requests", per="minute", amount=PER_MINUTE)
    return Tenants(
        tiers=tiers,
        tenants=(
            TenantTerms("flood", weight=random.choice((1, 3))),
            TenantTerms("capped", max_running=random.choice((1, 2))),
            TenantTerms("limited", limits=(limit,)),
            TenantTerms("free", tier=random.choice((0, 0, 1))),
        ),
    )


class Crowd:
    """The clients. served, refused: requests of each tenant."""

    def __init__(self, engine: AsyncEngine, random: Random) -> None:
        self.engine, self.random = engine, random
        self.reception = Reception(Admission(QueueBounds(), MemoryLimits()), lambda: "fake", engine.now, engine.now)
        self.served = dict.fromkeys(("flood", "capped", "limited", "free"), 0)
        self.refused = 0

    async def ask(self, tenant: str, at: float) -> None:
        await asyncio.sleep(at)
        params = SamplingParams(max_tokens=self.random.randint(1, 8), ignore_eos=True)
        visit = None
        try:
            visit = self.reception.arrive(self.engine.tenants.of(tenant), "/v1/completions", 1)
            visit.count(prompt_tokens=2, max_tokens=params.max_tokens or 1, sequences=1)
            completion = await self.engine.submit((1, 2), params, tenant=tenant).completion()
            visit.leave(completion.usage.completion_tokens, answered=True)
            self.served[tenant] += 1
        except RateLimited:
            assert tenant == "limited"
            self.refused += 1

    async def watch(self) -> None:
        """Between any two events: whoever waits may not run, or all seats are taken."""
        while True:
            await asyncio.sleep(STEP / 4)
            front = self.engine._front
            assert front is not None
            front.check()
            waiting = {e.request.tenant for e in front._entries.values() if not e.sent}
            running = [e.request.tenant for e in front._entries.values() if e.sent]
            may = [name for name in waiting if running.count(name) < (front.tenants.of(name).max_running or SEATS)]
            assert len(running) >= SEATS or not may, f"{may} wait beside a free seat, {running} run"


@pytest.mark.parametrize("seed", range(12))
def test_whoever_may_run_does_while_there_is_a_seat(seed: int) -> None:
    random = Random(seed)
    link = TimedLink(settings(seats=SEATS, pages=64, context=40), STEP, slow=seed % 2 == 0)
    with virtual_engine(link, EngineConfig(max_seats=SEATS, quantum=random.choice((4, 40)))) as (engine, runner):

        async def crowd() -> Crowd:
            async with engine:
                engine.tenants = book(random)
                crowd = Crowd(engine, random)
                coming = [(name, random.uniform(0, SECONDS)) for name in crowd.served for _ in range(20)]
                coming += [("flood", 5.0)] * 40
                watching = asyncio.create_task(crowd.watch())
                asking = asyncio.gather(*(crowd.ask(*each) for each in coming))
                await asyncio.wait((watching, asking), return_when=asyncio.FIRST_COMPLETED)
                if watching.done():
                    watching.result()
                watching.cancel()
                await asking
                crowd.reception.check()
                return crowd

        crowd = runner.run(crowd())
    served = crowd.served
    assert (served["flood"], served["capped"], served["free"]) == (60, 20, 20)
    assert served["limited"] + crowd.refused == 20 and PER_MINUTE <= served["limited"] <= 2 * PER_MINUTE + 1

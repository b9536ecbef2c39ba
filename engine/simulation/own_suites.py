"""Suites of our own: what one tenant can do to another.

The simulator's machine does about 11 requests of 128 / 64 a second.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from random import Random

from ..admission.bounded_queue import QueueBounds
from ..tenants import Tenants, TenantTerms, TierTerms
from .processes import Lengths, constant, on_off, poisson, requests
from .suite import Suite
from .trace import Arrival

CHAT = Lengths.fixed(128, 64)
SHORT = Lengths.fixed(64, 64)
LIE = 4096  # max_tokens of who will need ten
PREFIX = 512
TIERS = (TierTerms(0, "paid"), TierTerms(1, "trial"))
PAID_AND_TRIAL = (TenantTerms("paid", tier=0), TenantTerms("trial", tier=1))


def burst(count: int, queue: int | None = None) -> Suite:
    """`count` requests of one tenant at once, and one a second of another. queue: the most that may wait."""

    def arrivals(random: Random, seconds: float) -> Iterator[Arrival]:
        yield from requests("A", [0.0] * count, CHAT, random)
        yield from requests("B", constant(1.0, seconds), CHAT, random)

    about = f"128 / 64: A sends {count:,} at once, B one a second, five in all"
    if queue is None:
        return Suite(about, arrivals, seconds=5.0, drains=True)
    return Suite(f"{about}; {queue:,} may wait", arrivals, 5.0, drains=True, bounds=QueueBounds(entries=queue))


def liar(random: Random, seconds: float) -> Iterator[Arrival]:
    lies = requests("liar", poisson(20.0, seconds, random), Lengths.fixed(64, 10), random)
    yield from (replace(each, max_tokens=LIE) for each in lies)
    yield from requests("honest", poisson(10.0, seconds, random), SHORT, random)


def big_head(random: Random, seconds: float) -> Iterator[Arrival]:
    yield from requests("big", poisson(0.2, seconds, random), Lengths.fixed(6000, 64), random)
    yield from requests("small", poisson(15.0, seconds, random), SHORT, random)


def tier_flood(random: Random, seconds: float) -> Iterator[Arrival]:
    yield from requests("trial", [0.0] * 2000, CHAT, random)
    yield from requests("paid", poisson(1.0, seconds, random), CHAT, random)


def least_share(random: Random, seconds: float) -> Iterator[Arrival]:
    yield from requests("paid", poisson(20.0, seconds, random), CHAT, random)
    yield from requests("trial", poisson(5.0, seconds, random), CHAT, random)


def bursts(random: Random, seconds: float) -> Iterator[Arrival]:
    yield from requests("on_off", on_off(poisson(20.0, seconds, random), 30.0), CHAT, random)
    yield from requests("steady", poisson(6.0, seconds, random), CHAT, random)


def hidden_reasoning(random: Random, seconds: float) -> Iterator[Arrival]:
    yield from requests("thinker", poisson(1.0, seconds, random), Lengths((32, 96), (1000, 3000)), random)
    yield from requests("plain", poisson(10.0, seconds, random), SHORT, random)


def shared_prefix(random: Random, seconds: float) -> Iterator[Arrival]:
    warm = requests("warm", poisson(6.0, seconds, random), Lengths.fixed(PREFIX + 64, 64), random)
    yield from (replace(each, shared=PREFIX) for each in warm)
    yield from requests("cold", poisson(6.0, seconds, random), Lengths.fixed(PREFIX + 64, 64), random)


def late_flood(random: Random, seconds: float) -> Iterator[Arrival]:
    yield from requests("early", constant(10.0, seconds), CHAT, random)
    yield from requests("late", constant(10.0, seconds / 2, start=seconds / 2), CHAT, random)


def deadline_storm(random: Random, seconds: float) -> Iterator[Arrival]:
    """Half of what the machine can do, then one and a half times, then three times as much."""
    third = seconds / 3
    for tenant in ("A", "B"):
        instants: Iterable[float] = chain.from_iterable(
            poisson(rate, third, random, start=part * third) for part, rate in enumerate((2.75, 8.25, 16.5))
        )
        for each in requests(tenant, instants, CHAT, random):
            yield replace(each, deadline=random.uniform(5.0, 20.0))


OWN_SUITES = {
    "burst": burst(10_000),
    "burst_capped": burst(10_000, queue=1000),
    "noisy_neighbour": burst(100),
    "liar": Suite("64 / 10 with max_tokens 4096 at 20 a second, beside an honest 64 / 64 at 10", liar, 120.0),
    "big_head": Suite("6,000 / 64 at 0.2 a second in a pool of 10,000, beside 64 / 64 at 15", big_head, 300.0),
    "tier_flood": Suite(
        "128 / 64: 2,000 at once of a lower tier, one a second of a higher one",
        tier_flood,
        120.0,
        book=Tenants(tiers=TIERS, tenants=PAID_AND_TRIAL),
    ),
    "least_share": Suite(
        "128 / 64: 5 a second of a lower tier that gets at least a tenth, beside 20 of a higher one",
        least_share,
        120.0,
        book=Tenants(tiers=(TIERS[0], replace(TIERS[1], min_share=0.1)), tenants=PAID_AND_TRIAL),
    ),
    "on_off": Suite("128 / 64 at 20 a second every other half minute, beside 6", bursts, 240.0),
    "hidden_reasoning": Suite("32-96 / 1,000-3,000 at 1 a second, beside 64 / 64 at 10", hidden_reasoning, 600.0),
    "shared_prefix": Suite(
        "576 / 64 at 6 a second, 512 of them shared, beside 6 that share none", shared_prefix, 120.0
    ),
    "late_flood": Suite("128 / 64 at 10 a second, joined by a second tenant half-way", late_flood, 240.0),
    "deadline_storm": Suite(
        "128 / 64 due in 5 to 20 s, at 0.5, 1.5 and 3 times what can be done", deadline_storm, 180.0, drains=True
    ),
}

"""meters/rooms.py: what a waiting room shows, and that nobody goes through its queues for that."""

import sys
from dataclasses import replace
from types import FrameType

import pytest

from fairness_drive import History, MeteredTurns
from fairstep.fairness.fair_room import FairRoom
from fairstep.fairness.policies import make_room
from fairstep.fairness.pricing import UNIT
from fairstep.fairness.ticket import Ticket
from fairstep.meters.rooms import Queue, RoomReader
from fairstep.metrics import Metrics
from fairstep.stats import OTHER, Stats, TierStats
from fairstep.tenants import Tenants, TierTerms

QUANTUM = 1000 * UNIT
TIERS = (TierTerms(0, "premium"), TierTerms(1, "standard"))


def queue_of(*tickets: Ticket) -> FairRoom:
    room = make_room("drr", quantum=QUANTUM)
    for ticket in tickets:
        room.add(ticket)
    return room


def wait(seq: int, tenant: str = "acme", tokens: int = 100, **more: object) -> Ticket:
    return replace(Ticket(seq, seq, tenant, prompt_tokens=tokens), **more)  # type: ignore[arg-type]


def read(room: FairRoom, rate: float | None = 100.0 * UNIT, now: float = 0.0) -> dict[int, Queue]:
    return dict(RoomReader(room, lambda tenant: tenant, str).queues(rate, now))


def tier_of(room: FairRoom, rate: float | None = 100.0 * UNIT, now: float = 0.0) -> TierStats:
    return Metrics().stats(room=room, arrival=float, capacity=rate, now=now).tiers[0]


def test_a_tier_says_how_much_waits_and_since_when() -> None:
    room = queue_of(wait(3), wait(5, "beta", 300))
    tier = tier_of(room, now=10.0)
    assert (tier.waiting, tier.queued, tier.oldest_age) == (2, 400 * UNIT, 7.0)
    assert tier.predicted_wait == 4.0
    room.end(3, natural=False)
    assert tier_of(room, now=10.0).oldest_age == 5.0
    room.end(5, natural=False)
    tier = tier_of(room, now=10.0)
    assert (tier.waiting, tier.queued, tier.oldest_age, tier.predicted_wait, tier.pressure) == (0, 0, 0.0, 0.0, 0.0)


def test_a_lower_tier_waits_for_the_higher_ones() -> None:
    queues = read(queue_of(wait(1, tokens=200), wait(2, "beta", tokens=100, tier=1)))
    assert [queues[tier].predicted_wait for tier in (0, 1)] == [2.0, 3.0]


def test_nothing_is_foreseen_before_anything_was_measured() -> None:
    tier = tier_of(queue_of(wait(1, deadline=0.0)), rate=None)
    assert (tier.predicted_wait, tier.pressure) == (None, None)


def test_a_small_tenant_is_foreseen_to_wait_less_than_a_flood() -> None:
    flood = [wait(seq, "flood", 1000) for seq in range(100)]
    (queue,) = read(queue_of(*flood, wait(100, "small"))).values()
    waits = {account.tenant: account.predicted_wait for account in queue.accounts}
    assert waits["flood"] == pytest.approx(1001.0)
    assert waits["small"] == pytest.approx(1.0 + 6.0)  # its own, and the flood's turns until then


def test_pressure_is_the_part_that_is_due_before_it_can_begin() -> None:
    # a second each: of ten that are due in 6 s, about four begin too late
    same = [wait(seq, deadline=6.0) for seq in range(10)]
    assert tier_of(queue_of(*same)).pressure == pytest.approx(0.4, abs=0.05)
    spread = [wait(seq, deadline=4.0 * seq + 2) for seq in range(10)]
    assert tier_of(queue_of(*spread)).pressure == 0.0
    late = [wait(seq, deadline=seq / 4) for seq in range(20)]
    assert tier_of(queue_of(*late)).pressure == pytest.approx(1.0, abs=0.15)
    half = [wait(seq, deadline=100.0 + seq) for seq in range(5)] + [wait(5 + seq, deadline=0.1) for seq in range(5)]
    assert tier_of(queue_of(*half)).pressure == pytest.approx(0.5, abs=0.05)
    assert tier_of(queue_of(*half), rate=1e9 * UNIT).pressure == 0.0
    assert tier_of(queue_of(*half), now=200.0).pressure == 1.0


def test_a_floods_deadlines_are_not_a_small_tenants() -> None:
    flood = [wait(seq, "flood") for seq in range(100)]  # without deadlines
    small = wait(100, "small", deadline=5.0)
    assert tier_of(queue_of(*flood, small), rate=500.0 * UNIT).pressure == 0.0  # it begins within a round
    assert tier_of(queue_of(*flood, replace(small, tenant="flood")), rate=500.0 * UNIT).pressure == 0.0  # it goes first


def test_the_bound_can_be_read_off() -> None:
    room = queue_of(wait(1, tokens=500), wait(2, "beta", tokens=300, weight=2))
    while room.head() is not None:
        room.take()
    room.spent(1, cached=400, outputs=1)
    tier = tier_of(room)
    swings = {each.tenant: (each.largest_charge, each.largest_refund) for each in read(room)[0].accounts}
    assert swings == {"acme": (500 * UNIT, 358 * UNIT), "beta": (300 * UNIT, 0)}
    assert tier.bound == 4 * QUANTUM + 858 * UNIT + 150 * UNIT  # two rounds each: its own, and one to pass it over


@pytest.mark.parametrize("seed", range(8))
def test_swings_are_what_the_promise_is_measured_by(seed: int) -> None:
    history = History(seed, MeteredTurns)
    ratio = history.run(60)
    assert ratio <= 1.0
    for standing in history.room.standings():
        book = history.meters[standing.tier].books[standing.tenant]
        assert (standing.largest_charge, standing.largest_refund) == (book.largest_charge, book.largest_refund)
        assert standing.served == book.charged


def test_accounts_of_tenants_without_a_name_are_one() -> None:
    metrics = Metrics(most_tenants=1)
    metrics.use(Tenants(tiers=TIERS, anonymous=None))
    metrics.tenants.of("acme")
    room = queue_of(*(wait(seq, name, 100 * seq) for seq, name in enumerate(("acme", "beta", "gamma"), 1)))
    accounts = metrics.stats(room=room, capacity=1.0, now=0.0).accounts
    assert [(each.tier, each.tenant, each.queued, each.waiting) for each in accounts] == [
        ("premium", "acme", 100 * UNIT, 1),
        ("premium", OTHER, 500 * UNIT, 2),
    ]
    assert accounts[1].share == pytest.approx(2 / 3)


def test_reading_takes_no_longer_when_more_waits() -> None:
    def calls(each: int) -> int:
        tickets = [wait(seq, f"t{seq % 10}", deadline=float(seq % 97)) for seq in range(10 * each)]
        return _calls(Metrics(), queue_of(*tickets))

    assert calls(1000) <= calls(50) * 1.5


def _calls(metrics: Metrics, room: FairRoom) -> int:
    """Python functions that are called for stats."""
    count = 0

    def on_event(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(on_event)
    try:
        stats: Stats = metrics.stats(room=room, capacity=1000.0 * UNIT, now=0.0)
    finally:
        sys.setprofile(None)
    assert stats.tiers[0].waiting == len(room)
    return count

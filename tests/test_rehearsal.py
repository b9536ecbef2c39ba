"""rehearsal.py: turns played forward, beside what the real turns do."""

from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairstep.admission.rehearsal import LONGEST, Contender, Rehearsal, Stage
from fairstep.fairness.arrivals import Arrivals
from fairstep.fairness.drr import DeficitRoundRobin
from fairstep.fairness.turns import Turns

QUANTUM = 100
SEATS = 4


def stage(*turns: Turns, running: Any = (), **changes: Any) -> Stage:
    """All seats are taken by what runs; by default four sequences that end after 1, 2, 3 and 4 s."""
    running = running or [(float(number), 1.0, 0, "running") for number in range(1, SEATS + 1)]
    values = {"seats": SEATS, "pages": 1000, "free_seats": SEATS - len(running), "free_pages": 900, **changes}
    return Stage(turns=dict(enumerate(turns or (DeficitRoundRobin(QUANTUM),))), running=running, **values)


def tenant(name: str, waiting: float = 0.0, **changes: Any) -> Contender:
    return Contender(tenant=name, waiting=waiting, **{"cost": 100, "seconds": 10.0, **changes})


def wait(mine: Contender, others: list[Contender], on: Stage, pages: int = 1, **more: Any) -> float:
    return Rehearsal(mine, pages, others, on, **more).wait()


def test_where_there_is_room_nobody_waits() -> None:
    assert wait(tenant("a"), [], stage(free_seats=1)) == 0.0


def test_who_is_next_gets_the_first_seat_whose_pages_are_enough() -> None:
    assert wait(tenant("a"), [], stage()) == 1.0
    assert wait(tenant("a"), [], stage(free_pages=0), pages=3) == 3.0
    assert wait(tenant("a"), [], stage(free_pages=-100), pages=3) == 4.0, "more than all give back: until the last"


def test_those_of_its_own_go_before_it_and_run_on_in_their_seats() -> None:
    assert wait(tenant("a", 2), [], stage()) == 3.0
    assert wait(tenant("a", 4), [], stage()) == 11.0, "the fifth gets the seat of the first, which ran for 10 s"


def test_a_flood_of_another_tenant_is_before_it_by_turns_alone() -> None:
    assert wait(tenant("small"), [tenant("flood", 10_000)], stage()) <= 2.0
    assert wait(tenant("small", 1), [tenant("flood", 10_000)], stage()) <= 4.0


def test_what_is_not_reached_goes_on_at_the_pace_of_what_is() -> None:
    alone = wait(tenant("a", 10_000), [], stage())
    assert alone == LONGEST
    quick = wait(tenant("a", 1000, seconds=0.1), [], stage())
    assert quick == pytest.approx(1000 * 0.1 / SEATS, rel=0.15)


def test_who_overtakes_and_who_gives_up_counts() -> None:
    assert wait(tenant("a"), [], stage(), overtaking=lambda seconds: min(seconds, 1.0)) == 2.0
    assert wait(tenant("a", 3, gone=lambda seconds: 2.0 * (seconds >= 1.0)), [], stage()) == 2.0


def test_others_that_come_meanwhile_take_their_turns() -> None:
    idle = wait(tenant("a", 3), [tenant("b")], stage())
    assert wait(tenant("a", 3), [tenant("b", coming=5.0)], stage()) > idle


def test_a_higher_tier_goes_first_and_a_lower_one_not_at_all() -> None:
    turns = DeficitRoundRobin(QUANTUM), DeficitRoundRobin(QUANTUM), DeficitRoundRobin(QUANTUM)
    others = [tenant("high", 2), tenant("low", 50, tier=2)]
    assert wait(tenant("mine", tier=1), others, stage(*turns)) == 3.0


def test_who_holds_more_than_the_cap_of_its_share_lets_others_go_first() -> None:
    running = [(float(number), 1.0, 0, "a") for number in range(1, SEATS + 1)]
    mine, other = tenant("a"), tenant("b", 1)
    free = wait(mine, [other], stage(DeficitRoundRobin(QUANTUM, 1), running=running, cap=1.5))
    assert free == 2.0


def test_who_has_nothing_running_gets_anothers_seat_a_step_later() -> None:
    running = [(float(number), 1.0, 0, "flood") for number in range(10, 10 + SEATS)]
    assert wait(tenant("a"), [tenant("flood", 5)], stage(running=running, cap=1.5, step=0.1)) == pytest.approx(0.1)
    assert wait(tenant("a"), [tenant("flood", 5)], stage(running=running, step=0.1)) == 10.0, "without shares"


def test_one_queue_for_all_is_a_tenant_alone() -> None:
    assert wait(tenant("", 2), [], stage(Arrivals())) == 3.0


queues = st.lists(
    st.tuples(st.integers(1, 4), st.integers(1, 250), st.integers(1, 12)), min_size=1, max_size=5
)  # weight, cost and length of each


@given(queues, st.integers(0, 12))
def test_without_shares_it_is_what_real_turns_do(queues: list[tuple[int, int, int]], before: int) -> None:
    turns = DeficitRoundRobin(QUANTUM)
    contenders = []
    for number, (weight, cost, length) in enumerate(queues):
        turns.enter(str(number), weight)
        waiting = before if number == 0 else length
        contenders.append(tenant(str(number), waiting, weight=weight, cost=cost, seconds=1e9, in_turn=True))
    seats = [(float(number), 1.0, 0, "running") for number in range(1, 200)]
    foreseen = wait(contenders[0], contenders[1:], stage(turns.copy(), running=seats, seats=199, free_seats=0))
    assert foreseen == _served_before(turns, [before, *(length for _, _, length in queues[1:])], queues) + 1.0


def _served_before(turns: DeficitRoundRobin, lengths: list[int], queues: list[tuple[int, int, int]]) -> int:
    """How many the real turns serve before the first queue's request that has so many before it."""
    left = [deque(range(length)) for length in lengths]
    left[0].append(-1)
    served = 0
    while True:
        name = turns.first(lambda name: True)
        assert name is not None
        if left[int(name)].popleft() == -1:
            return served
        served += 1
        turns.start(name)
        turns.charge(name, queues[int(name)][1])
        if not left[int(name)]:
            turns.leave(name)

"""batch_gate.py: full, overdue or endangered batches leave; timers are absolute; nothing leaves for a busy worker."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairstep.stepping.batch_gate import BatchGate, NotBefore, Release

GATE = BatchGate(size=4, delay=10, compute=100)  # in ms


def decide(*arrivals: float, now: float, deadlines: tuple[float, ...] = (), idle: int = 1) -> Release | NotBefore:
    return GATE.decide(arrivals, deadlines, idle=idle, now=now)


def test_a_full_batch_leaves_at_once() -> None:
    assert decide(0, 0, 0, 0, now=0) == Release(4)
    assert decide(0, 0, 0, 0, 0, now=0) == Release(4)


def test_a_lone_request_waits_its_delay_and_takes_the_next_along() -> None:
    assert decide(0, now=0) == NotBefore(10)
    assert decide(0, 7, now=7) == NotBefore(10)  # the second starts no timer
    assert decide(0, 7, now=10) == Release(2)


def test_what_is_overdue_leaves_when_a_worker_comes_free() -> None:
    assert decide(1, now=100) == Release(1)
    assert decide(1, 95, now=100) == Release(2)


def test_what_is_not_overdue_keeps_its_own_timer() -> None:
    assert decide(95, now=100) == NotBefore(105)
    assert decide(95, now=105) == Release(1)


def test_a_deadline_ends_the_wait_by_choice() -> None:
    assert decide(0, now=0, deadlines=(105,)) == NotBefore(5)
    assert decide(0, now=5, deadlines=(105,)) == Release(1)
    assert decide(0, now=0, deadlines=(500,)) == NotBefore(10)


def test_nothing_leaves_for_a_busy_worker_or_for_nobody() -> None:
    assert decide(0, 0, 0, 0, now=50, idle=0) == NotBefore(inf)
    assert decide(now=50) == NotBefore(inf)


def test_the_last_start_is_the_deadline_less_the_compute() -> None:
    assert GATE.last_start(150) == 50


@pytest.mark.parametrize(
    ("ahead", "free_at", "now", "end"),
    [
        (0, [100], 1, 200),  # the fifth of five: predicted 200, so a deadline of 150 is refused at 1
        (3, [100], 1, 200),
        (4, [100], 1, 300),
        (0, [100], 130, 230),  # idle: now
        (8, [100, 150], 0, 300),  # batches at 100 and 150, then 200
    ],
)
def test_the_earliest_end_counts_whole_batches_ahead(ahead: int, free_at: list[float], now: float, end: float) -> None:
    assert GATE.earliest_end(ahead, free_at, now) == end


times = st.floats(0, 1000)


@given(st.lists(times, max_size=9), st.lists(st.floats(0, 2000), max_size=9), st.integers(0, 2), times)
def test_it_leaves_exactly_when_one_of_the_three_reasons_holds(
    arrivals: list[float], deadlines: list[float], idle: int, now: float
) -> None:
    full = len(arrivals) >= 4
    overdue = any(at + 10 <= now for at in arrivals)
    endangered = any(deadline - 100 <= now for deadline in deadlines)
    decision = GATE.decide(arrivals, deadlines, idle=idle, now=now)
    if idle and arrivals and (full or overdue or endangered):
        assert decision == Release(min(len(arrivals), 4))
    else:
        assert isinstance(decision, NotBefore) and decision.at > now


@given(st.lists(times, min_size=1, max_size=3), st.lists(st.floats(0, 2000), max_size=3), times)
def test_asked_again_at_the_instant_it_named_it_lets_go(
    arrivals: list[float], deadlines: list[float], now: float
) -> None:
    first = GATE.decide(arrivals, deadlines, idle=1, now=now)
    if isinstance(first, NotBefore):
        assert GATE.decide(arrivals, deadlines, idle=1, now=first.at) == Release(len(arrivals))

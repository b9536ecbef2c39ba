"""memory_plan.py: what a step does not take keeps keys and values; smaller plans, and when nothing fits, in words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairstep.errors import ConfigError
from fairstep.model.memory_plan import LEFT_ALONE, MemoryPlan, Room, Wish, plan_memory

GIB = 1024**3
MIB = 1024**2
ROOM = Room(total=80 * GIB, free=60 * GIB)


def wish(kv_memory: int | None = None, seats: int = 256, step_tokens: int = 8192) -> Wish:
    return Wish(kv_memory, page=2 * MIB, seats=seats, step_tokens=step_tokens)


def test_pages_get_all_that_the_largest_step_leaves_but_a_reserve() -> None:
    plan = plan_memory(wish(), ROOM, lambda tokens: 3 * GIB)
    assert plan == MemoryPlan(60 * GIB - 3 * GIB - 5 * GIB, 256, 8192, ())


def test_what_is_asked_for_is_used_where_it_fits_and_cut_with_a_note_where_not() -> None:
    assert plan_memory(wish(8 * GIB), ROOM, lambda tokens: GIB) == MemoryPlan(8 * GIB, 256, 8192, ())
    plan = plan_memory(wish(70 * GIB), ROOM, lambda tokens: GIB)
    assert plan.kv_memory == 54 * GIB
    assert plan.notes == ("kv_memory is 70.0 GiB, but the GPU has room for 54.0 GiB: that is used",)


def test_steps_that_run_out_of_memory_are_halved_until_they_do_not() -> None:
    tried: list[int] = []

    def takes(tokens: int) -> int | None:
        tried.append(tokens)
        return None if tokens > 2048 else GIB

    plan = plan_memory(wish(), ROOM, takes)
    assert tried == [8192, 4096, 2048] and plan.step_tokens == 2048
    assert "step_tokens is 2048" in plan.notes[0]


def test_steps_that_leave_no_page_for_each_seat_are_halved_too() -> None:
    plan = plan_memory(wish(), Room(16 * GIB, 9 * GIB), lambda tokens: tokens * MIB)
    assert plan.step_tokens == 4096


def test_fewer_seats_are_the_last_resort() -> None:
    plan = plan_memory(wish(), Room(16 * GIB, GIB + 100 * MIB), lambda tokens: 40 * MIB)
    assert (plan.seats, plan.step_tokens) == (30, 256) and "max_seats is 30" in plan.notes[-1]


@pytest.mark.parametrize("takes", [None, 20 * GIB])
def test_where_nothing_fits_the_error_says_what_to_change(takes: int | None) -> None:
    with pytest.raises(ConfigError, match=r"9\.0 GiB of 16\.0 GiB free.*max_seats"):
        plan_memory(wish(), Room(16 * GIB, 9 * GIB), lambda tokens: takes)


@given(
    asked=st.none() | st.integers(1, 100 * GIB),
    seats=st.integers(1, 300),
    tokens=st.integers(1, 10_000),
    free=st.integers(0, 80 * GIB),
    each=st.integers(0, 20 * MIB),
    holds=st.integers(0, 10_000),
)
def test_a_plan_always_fits(asked: int | None, seats: int, tokens: int, free: int, each: int, holds: int) -> None:
    def takes(count: int) -> int | None:
        return each * count if count <= holds else None

    own = wish(asked, seats, max(tokens, seats))
    try:
        plan = plan_memory(own, Room(80 * GIB, free), takes)
    except ConfigError:
        return
    step = takes(plan.step_tokens)
    assert step is not None and step + plan.kv_memory + 80 * GIB // LEFT_ALONE <= free
    assert 1 <= plan.seats <= seats <= own.step_tokens and plan.seats <= plan.step_tokens <= own.step_tokens
    assert asked is None or plan.kv_memory <= asked

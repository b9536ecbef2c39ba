"""How many workers are wanted: what runs, what waits and what is due each ask for theirs; fewer only after a while."""

from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from fairstep.scaling import HOLD, MOST_WANTED, PATIENCE, Pressure, Scale, wanted

SECONDS = st.floats(0.0, 1e6, allow_nan=False)
MOVES = st.lists(st.tuples(st.integers(0, 20), st.floats(0.0, 100.0)), max_size=40)
DUE = st.lists(st.tuples(st.floats(-10.0, 1e6), SECONDS), max_size=5)


def test_one_is_wanted_when_nothing_is_to_do() -> None:
    assert wanted(Pressure(0, 8)) == 1


def test_what_runs_fills_workers_and_what_waits_for_long_asks_for_more() -> None:
    assert wanted(Pressure(9, 8)) == 2
    assert wanted(Pressure(8, 8, queued=PATIENCE - 0.1)) == 1, "it will have been served before another has loaded"
    assert wanted(Pressure(8, 8, queued=3 * PATIENCE)) == 4


def test_deadlines_ask_for_as_much_work_as_is_due_by_any_of_them() -> None:
    assert wanted(Pressure(1, 8, due=[(10.0, 5.0), (20.0, 50.0), (100.0, 60.0)])) == 3
    assert wanted(Pressure(1, 8, due=[(-1.0, 5.0), (0.0, 5.0)])) == 1, "what is late can't be helped"
    assert wanted(Pressure(1, 8, due=[(1e-9, 5.0)])) == MOST_WANTED


@given(st.integers(0, 500), st.integers(1, 64), SECONDS, DUE)
def test_more_to_do_never_asks_for_fewer(
    running: int, seats: int, queued: float, due: list[tuple[float, float]]
) -> None:
    few = wanted(Pressure(running, seats, queued, due))
    assert 1 <= few <= MOST_WANTED and few >= min(MOST_WANTED, ceil(running / seats))
    assert few <= wanted(Pressure(running + 1, seats, queued + 1.0, [*due, (5.0, 10.0)]))


def test_more_come_at_once_and_fewer_one_at_a_time_after_a_while() -> None:
    scale = Scale(1, 4)
    assert scale.follow(9, 0.0) == 4
    assert scale.follow(1, 1.0) == 4
    assert scale.follow(1, 1.0 + HOLD - 0.1) == 4
    assert scale.follow(1, 1.0 + HOLD) == 3
    assert scale.follow(1, 2.0 + HOLD) == 3
    assert scale.follow(1, 1.0 + 2 * HOLD) == 2
    assert scale.follow(2, 2.0 + 2 * HOLD) == 2
    assert scale.follow(1, 1.9 + 3 * HOLD) == 2, "two were wanted meanwhile"


@given(st.integers(1, 5), st.integers(0, 5), MOVES)
def test_there_are_always_as_many_as_are_allowed(least: int, more: int, moves: list[tuple[int, float]]) -> None:
    scale, now = Scale(least, least + more), 0.0
    for wished, later in moves:
        before, now = scale.count, now + later
        assert scale.follow(wished, now) >= before - 1
        scale.check()

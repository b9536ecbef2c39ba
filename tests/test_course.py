"""course.py: instants of one run, and how many seats were held."""

import pytest

from courses import answer, two_seats


def test_an_answer_tells_its_first_token_its_pace_and_its_end() -> None:
    told = answer(1.0, 3.0, 3.5, 5.0)
    assert (told.ttft, told.seconds, told.pace, list(told.gaps)) == (2.0, 4.0, 1.0, [0.5, 1.5])
    assert told.is_whole


def test_one_token_has_no_pace() -> None:
    assert answer(0.0, 2.0).pace == 0.0


def test_a_run_knows_when_it_was_full_when_the_last_came_began_and_ended() -> None:
    course = two_seats()
    assert (course.full_at, course.last_arrival, course.last_begun, course.ended_at) == (1.0, 1.0, 3.0, 5.0)
    assert course.served_rate == pytest.approx(2 / 3)


def test_held_seats_count_by_time_and_none_is_held_between_steps() -> None:
    course = two_seats()
    assert course.held(0.0, 5.0) == pytest.approx((1 + 2 + 2 + 0 + 1) / 10)
    assert course.held(0.5, 1.5) == pytest.approx((0.5 * 1 + 0.5 * 2) / 2)
    assert course.held(2.0, 2.0) == 0.0

"""figures.py: what a run comes to, from a course made by hand."""

import pytest

from courses import two_seats
from fairstep.benchmarking.figures import Limits, figures_of

LIMITS = Limits(ttft=1.0, pace=1.0)


def test_rates_are_over_the_time_from_the_first_arrival_to_the_last_token() -> None:
    figures = figures_of(two_seats(), LIMITS)
    assert (figures.requests, figures.seconds) == (3, 5.0)
    assert (figures.requests_per_second, figures.tokens_per_second) == (3 / 5, 7 / 5)
    assert (figures.ttft.p50, figures.ttft.p99, figures.e2e.p99, figures.itl.p99) == (1.0, 2.0, 4.0, 2.0)


@pytest.mark.parametrize(("ttft", "pace", "good"), [(1.0, 1.0, 2), (1.0, 0.5, 1), (2.0, 2.0, 3), (0.5, 2.0, 0)])
def test_a_good_answer_keeps_to_both_limits(ttft: float, pace: float, good: int) -> None:
    figures = figures_of(two_seats(), Limits(ttft=ttft, pace=pace))
    assert (figures.good, figures.goodput) == (good / 3, good / 5)


def test_seats_slots_and_padding_are_parts_of_what_there_was() -> None:
    figures = figures_of(two_seats(), LIMITS)
    assert figures.seats == pytest.approx(6 / 10)
    assert figures.wasted == pytest.approx(1 - 5 / 8)
    assert figures.padding == pytest.approx(9 / 20)


def test_the_ideal_is_told_under_overload_alone() -> None:
    assert figures_of(two_seats(), LIMITS).ideal is None
    assert figures_of(two_seats(), LIMITS, overload=True).ideal == 1.0
    course = two_seats()
    course.seats = 3
    assert figures_of(course, LIMITS, overload=True).ideal is None, "never full"

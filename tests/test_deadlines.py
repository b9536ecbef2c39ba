"""deadlines.py: instants, allowances, targets; one pot of waiting."""

from math import inf

import pytest

from fairstep.admission.deadlines import Allowances, Deadlines, LatencyTarget, Span, tightest
from fairstep.errors import DeadlineImpossible


def test_the_ways_and_the_computing_leave_60_of_200_ms_for_all_waiting() -> None:
    deadlines = Allowances(way_in=20, way_out=20).deadlines(received=20, first=None, whole=200)
    assert deadlines == Deadlines(None, 180)  # when the answer must leave
    assert deadlines.last_start(100, 100) - 20 == 60


def test_e_with_deadline_150_has_lost_at_50() -> None:
    assert Deadlines(whole=150).last_start(to_first=100, to_whole=100) == 50


def test_a_deadline_that_the_ways_take_is_impossible_and_names_its_field() -> None:
    with pytest.raises(DeadlineImpossible, match="40 ms") as caught:
        Allowances(0.02, 0.02).deadlines(0.0, first=0.04, whole=None)
    assert caught.value.param == "ttft_deadline_ms"
    assert caught.value.should_retry is False


def test_both_kinds_count_and_the_sooner_sorts() -> None:
    both = Deadlines(first=10, whole=30)
    assert both.sooner == 10 and Deadlines(whole=30).sooner == 30 and Deadlines().sooner is None
    assert both.last_start(to_first=2, to_whole=25) == 5
    assert both.excess(first=11, whole=29) == 1 and both.excess(first=8, whole=31) == 1
    assert both.excess(first=8, whole=25) == -2
    assert Deadlines().excess(1e9, 1e9) == -inf and Deadlines().last_start(1, 1) == inf


def test_a_running_request_is_over_at_the_first_deadline_that_it_has_not_met() -> None:
    both = Deadlines(first=10, whole=30)
    assert both.due(told=False) == 10 and both.due(told=True) == 30
    assert Deadlines(first=10).due(told=True) == inf


def test_the_tightest_of_the_targets_that_apply_counts() -> None:
    targets = [
        LatencyTarget(first=5.0),
        LatencyTarget(first=2.0, tier=0),
        LatencyTarget(whole=60.0, endpoint="/v1/chat/*"),
        LatencyTarget(first=1.0, model="light-*"),
    ]
    assert tightest(targets, 0, "/v1/chat/completions", "heavy") == Span(2.0, 60.0)
    assert tightest(targets, 1, "/v1/completions", "light-1b") == Span(1.0)
    assert tightest((), 0, "", "") == Span()


def test_what_cannot_keep_a_target_even_alone_may_wait_as_long_as_the_target() -> None:
    span = Span(first=2.0, whole=10.0)
    assert span.deadlines(100.0, alone=(1.0, 5.0)) == Deadlines(102.0, 110.0)
    assert span.deadlines(100.0, alone=(3.0, 5.0)) == Deadlines(105.0, 110.0)

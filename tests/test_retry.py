"""retry.py: hints to come back, computed and spread."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairstep.admission.retry import Pace, jittered


@given(st.one_of(st.none(), st.floats(0, 1e9)), st.integers())
def test_a_hint_is_from_1_s_to_under_120_s(seconds: float | None, seed: int) -> None:
    assert 1.0 <= jittered(seconds, Random(seed).uniform) < 120.0


def test_a_hint_is_what_was_computed_give_or_take_a_fifth() -> None:
    random = Random(1)
    hints = [jittered(50.0, random.uniform) for _ in range(200)]
    assert 40.0 <= min(hints) < 42.0 and 58.0 < max(hints) <= 60.0


def test_nothing_is_known_of_the_pace_before_a_place_came_free() -> None:
    assert Pace().promise("a", 1.0, 1, 0.0) == 1.0


def test_those_who_are_refused_are_told_one_after_another_at_the_pace_of_places() -> None:
    pace = Pace()
    for second in range(101):
        pace.freed(2, float(second))
    assert pace.rate(100.0) == pytest.approx(2.0, rel=0.05)
    told = [pace.promise("a", 1.0, 1, 100.0) for _ in range(10)]
    assert told == pytest.approx([n / pace.rate(100.0) for n in range(1, 11)])


def test_a_tenant_is_promised_its_part_whatever_others_were_promised() -> None:
    pace = Pace()
    for second in range(101):
        pace.freed(2, float(second))
    for _ in range(10_000):
        assert pace.promise("flood", 0.5, 1, 100.0) < 100.0
    assert pace.promise("small", 0.5, 1, 100.0) == pytest.approx(1.0, rel=0.05)


def test_the_pace_follows_what_happens() -> None:
    pace = Pace()
    for second in range(100):
        pace.freed(4, float(second))
    for second in range(100, 250):
        pace.freed(1, float(second))
    assert pace.rate(250.0) == pytest.approx(1.0, rel=0.1)
    assert pace.rate(1000.0) < 0.001

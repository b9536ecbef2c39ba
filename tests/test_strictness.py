"""strictness.py: who is refused follows what became of those that were let in."""

from random import Random

import pytest

from fairstep.admission.strictness import IN_TIME, LEAST, MOST, Strictness


def test_it_ends_between_its_bounds_whatever_comes() -> None:
    strictness = Strictness()
    for _ in range(1000):
        strictness.ended(True)
    assert strictness.part == LEAST
    for _ in range(100):
        strictness.ended(False)
    assert strictness.part == MOST


def test_it_comes_to_rest_where_as_many_are_in_time_as_should_be() -> None:
    """Here as many of those let in are late as the part leaves: the rest below it."""
    strictness, random = Strictness(), Random(0)
    met = 0
    for _ in range(20_000):
        in_time = random.random() > (MOST - strictness.part) / 2
        strictness.ended(in_time)
        met += in_time
    assert met / 20_000 == pytest.approx(IN_TIME, abs=0.01)

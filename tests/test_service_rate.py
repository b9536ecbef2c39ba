"""service_rate.py: what is served a second while others wait."""

import pytest

from fairstep.admission.service_rate import ServiceRate


def test_no_rate_is_told_before_a_second_was_seen() -> None:
    rate = ServiceRate()
    for _ in range(9):
        rate.observe(100, 0.1)
    assert rate.units is None
    for _ in range(2):
        rate.observe(100, 0.1)
    assert rate.units == pytest.approx(1000.0)


def test_steps_count_by_their_length_and_the_rate_follows_what_changes() -> None:
    rate = ServiceRate()
    for _ in range(100):
        rate.observe(300, 0.1)
        rate.observe(0, 0.2)
        rate.observe(5, 0.0)
    assert rate.units == pytest.approx(1000.0, rel=0.05)
    for _ in range(1000):
        rate.observe(50, 0.1)
    assert rate.units == pytest.approx(500.0, rel=0.02)


def test_a_step_longer_than_what_counts_is_all_that_counts() -> None:
    rate = ServiceRate()
    rate.observe(10, 1.0)
    rate.observe(100, 50.0)
    assert rate.units == 2.0

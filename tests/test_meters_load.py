"""meters/load.py: when there is more to do than can be done, and how often that is said."""

import logging

import pytest

from fairstep.meters.load import QUIET, Load


def steady(load: Load, tier: int, units: int, begin: int, end: int, *, capacity: float | None = None) -> None:
    """`units` come each second."""
    for now in range(begin, end):
        load.ask(tier, units, float(now))
        load.look(capacity, float(now))


def test_what_is_asked_for_is_a_rate_and_fades() -> None:
    load = Load()
    steady(load, 0, 1000, 0, 200)
    assert load.asked(0, 199.0) == pytest.approx(1000, rel=0.05)
    assert load.asked(0, 299.0) < 10
    assert load.asked(1, 199.0) == 0.0


def test_a_tier_is_saturated_with_those_before_it() -> None:
    load = Load()
    for now in range(200):
        load.ask(0, 600, float(now))
        load.ask(1, 600, float(now))
        load.ask(2, 10, float(now))
    load.look(1000.0, 199.0)
    assert [load.is_saturated(tier) for tier in (0, 1, 2)] == [False, True, True]


def test_nothing_is_predicted_before_anything_was_measured() -> None:
    load = Load()
    steady(load, 0, 10**9, 0, 100, capacity=None)
    assert load.saturated is None


def test_it_ends_only_well_below_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    load = Load()
    with caplog.at_level(logging.WARNING):
        steady(load, 0, 1050, 0, 200, capacity=1000.0)
        assert load.saturated == 0
        steady(load, 0, 950, 200, 400, capacity=1000.0)
        assert load.saturated == 0  # within a tenth
        steady(load, 0, 500, 400, 600, capacity=1000.0)
        assert load.saturated is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "more work comes than can be served" in caplog.text


def test_a_load_that_comes_and_goes_does_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    load = Load()
    steady(load, 0, 1000, 0, 100)
    changes = 0
    for now in range(100, 100 + 3 * int(QUIET)):
        before = load.saturated
        load.ask(0, 1000, float(now))
        load.look(100.0 if now % 2 else 10_000.0, float(now))
        changes += load.saturated != before
    assert changes > 100
    assert len(caplog.records) == 3


def test_it_looks_once_a_second() -> None:
    load = Load()
    steady(load, 0, 1000, 0, 100)
    load.look(10_000.0, 100.0)
    load.look(1.0, 100.5)
    assert load.saturated is None
    load.look(1.0, 101.0)
    assert load.saturated == 0


def test_a_refusal_of_unknown_size_counts_as_a_usual_request() -> None:
    load = Load()
    load.ask(0, None, 0.0)
    assert load.asked(0, 0.0) == 0.0
    load.ask(0, 100, 0.0)
    before = load.asked(0, 0.0)
    load.ask(0, None, 0.0)
    assert load.asked(0, 0.0) == pytest.approx(2 * before)

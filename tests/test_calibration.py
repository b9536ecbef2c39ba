"""calibration.py: forecasts that are wrong by a factor are put right."""

import pytest

from fairstep.admission.calibration import EARLIEST, JUDGED, KEPT, MOST, SHORT, Calibration


def test_nothing_is_corrected_before_anything_was_seen() -> None:
    calibration = Calibration()
    assert (calibration.factor, calibration.coverage, calibration.is_trusted) == (1.0, 1.0, True)
    assert calibration.expected(3.0) == pytest.approx(3.0)
    assert calibration.at(EARLIEST, 3.0) < 2.0


@pytest.mark.parametrize("wrong", [0.5, 1.0, 1.5])
def test_a_model_that_is_wrong_by_half_is_put_right(wrong: float) -> None:
    calibration = Calibration()
    for wait in range(5, 5 + KEPT):
        calibration.observe(wait * wrong, float(wait))
    assert calibration.factor == pytest.approx(1 / wrong, rel=0.02)
    assert calibration.expected(8.0) == pytest.approx(8.0 / wrong, rel=0.03)
    assert calibration.at(EARLIEST, 8.0) == pytest.approx(8.0 / wrong, rel=0.03)


def test_tiny_times_and_one_surprise_change_little() -> None:
    calibration = Calibration()
    for _ in range(KEPT):
        calibration.observe(0.0, SHORT / 10)
    calibration.observe(0.001, 1000.0)
    assert calibration.factor == pytest.approx(1.1)


def test_no_correction_is_boundless() -> None:
    calibration = Calibration()
    for _ in range(KEPT):
        calibration.observe(0.0, 1e6)
    assert calibration.factor == MOST


def test_what_was_given_up_counts_as_longer_and_not_as_an_end() -> None:
    """Half take as long as foreseen; the others are given up at half of that, and would take twice as long."""
    known, quick = Calibration(), Calibration()
    for _ in range(KEPT):
        known.observe(1.0, 1.0)
        known.observe_more_than(1.0, 0.5)
        quick.observe(1.0, 0.5)
        quick.observe_more_than(1.0, 0.6)
    assert known.factor == pytest.approx(1.0), "nobody was seen to take less"
    assert quick.factor == pytest.approx(0.65 / 1.05), "half of all are seen to end, the rest are known to be longer"


def test_forecasts_are_not_trusted_while_the_earliest_are_wrong() -> None:
    calibration = Calibration()
    for _ in range(JUDGED - 1):
        calibration.observe(100.0, 0.1)
        assert calibration.is_trusted
    calibration.observe(100.0, 0.1)
    assert calibration.coverage < 0.8 and not calibration.is_trusted
    for _ in range(KEPT):
        calibration.observe(1.0, 1.0)
    assert calibration.is_trusted

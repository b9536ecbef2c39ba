"""calibration.py: forecasts that are wrong by a factor are put right."""

import pytest

from fairstep.admission.calibration import ENOUGH, MOST, SHORT, Calibration


def test_nothing_is_corrected_before_enough_was_seen() -> None:
    calibration = Calibration()
    for _ in range(ENOUGH - 1):
        calibration.observe(1.0, 2.0)
    assert (calibration.factor, calibration.spread) == (1.0, 1.0)


@pytest.mark.parametrize("wrong", [0.5, 1.0, 1.5])
def test_a_model_that_is_wrong_by_half_is_put_right(wrong: float) -> None:
    calibration = Calibration()
    for wait in range(5, 25):
        calibration.observe(wait * wrong, float(wait))
    assert calibration.factor == pytest.approx(1 / wrong, rel=0.02)
    assert calibration.spread == 1.0


def test_tiny_waits_and_one_surprise_change_little() -> None:
    calibration = Calibration()
    for _ in range(ENOUGH):
        calibration.observe(0.0, SHORT / 10)
    calibration.observe(0.001, 1000.0)
    assert calibration.factor == pytest.approx(1.1)
    assert calibration.spread == ENOUGH / (ENOUGH + 1)


def test_no_correction_is_boundless() -> None:
    calibration = Calibration()
    for _ in range(ENOUGH):
        calibration.observe(0.0, 1e6)
    assert calibration.factor == MOST

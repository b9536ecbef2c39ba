"""step_times.py: how long steps take, beside what a model says."""

from math import inf, nan

import pytest

from fairstep.admission.step_times import EPOCH, MARGIN, StepTimes
from fairstep.door import Coefficients


def test_nothing_is_known_before_a_step() -> None:
    times, model = StepTimes(), Coefficients(1.0, 2.0, 3.0, 4.0)
    assert (times.least, times.mean, times.busy) == (0.0, 0.0, 0.0)
    assert times.corrected(model) == model


@pytest.mark.parametrize("wrong", [0.5, 1.0, 1.5])
def test_a_wrong_model_is_put_right_by_what_steps_took(wrong: float) -> None:
    times = StepTimes()
    for number in range(50):
        times.observe(0.1 + 0.01 * (number % 5), (0.1 + 0.01 * (number % 5)) * wrong, busy=False)
    assert times.corrected(Coefficients(wrong, wrong, wrong, wrong)).prompt == pytest.approx(1.0)


def test_the_shortest_is_forgotten_after_two_epochs() -> None:
    times = StepTimes()
    times.observe(0.01, 0.01, busy=False)
    for _ in range(EPOCH):
        times.observe(0.5, 0.5, busy=False)
    assert times.least == pytest.approx(0.01 * MARGIN)
    for _ in range(EPOCH):
        times.observe(0.5, 0.5, busy=False)
    assert times.least == pytest.approx(0.5 * MARGIN)


def test_steps_beside_which_somebody_waited_are_told_apart() -> None:
    times = StepTimes()
    for _ in range(200):
        times.observe(0.1, 0.1, busy=False)
        times.observe(0.3, 0.3, busy=True)
    assert times.busy == pytest.approx(0.3) and times.mean == pytest.approx(0.2, rel=0.02)


@pytest.mark.parametrize("odd", [0.0, -1.0, inf, nan])
def test_what_cannot_be_a_steps_time_teaches_nothing(odd: float) -> None:
    times = StepTimes()
    times.observe(odd, 1.0, busy=True)
    assert (times.least, times.mean, times.busy) == (0.0, 0.0, 0.0)

"""forecast.py: waiting, prefill and decode in seconds."""

import pytest

from fairstep.admission.forecast import IDLE, Forecast, Running, Speed, fixed, forecast, least, prospect, residual
from fairstep.admission.limits import Need
from fairstep.door import Coefficients

STEP = Coefficients(base=0.02, prompt=0.001, sequence=0.002, context=0.0)
SPEED = Speed(coefficients=STEP, units=1000.0, chunk=100, least_step=0.01)
NEED = Need(prompt_tokens=250, max_tokens=11)


def test_an_idle_server_takes_steps_for_the_prompt_and_one_for_each_further_token() -> None:
    expected = forecast(NEED, 0, IDLE, SPEED)
    assert expected.wait == 0.0
    assert expected.first == pytest.approx(3 * 0.022 + 250 * 0.001)
    assert expected.whole == pytest.approx(expected.first + 10 * 0.022)


def test_what_is_served_before_it_takes_time_at_the_measured_rate() -> None:
    busy = Running(sequences=4, free=False, residual=0.5, prompt_left=50)
    expected = forecast(NEED, 2000, busy, SPEED)
    assert expected.wait == pytest.approx(0.5 + 2.0)
    assert expected.first == pytest.approx(expected.wait + 3 * 0.03 + 300 * 0.001)
    assert expected.whole == pytest.approx(expected.first + 10 * 0.03)


def test_with_others_prompts_in_every_step_a_token_takes_as_long_as_late_steps() -> None:
    busy = Running(sequences=4, step=0.2)
    expected = forecast(NEED, 0, busy, SPEED)
    assert expected.whole - expected.first == pytest.approx(10 * 0.2)


def test_context_costs_each_chunk_what_it_attends_to() -> None:
    attending = Speed(coefficients=Coefficients(base=0.0, prompt=0.0, sequence=0.0, context=0.001), chunk=100)
    assert forecast(Need(prompt_tokens=300, max_tokens=1), 0, IDLE, attending).first == pytest.approx(
        (100 + 200 + 300) * 0.001
    )


def test_nothing_takes_time_before_anything_is_measured() -> None:
    busy = Running(sequences=4, prompt_left=50)
    assert forecast(NEED, 2000, busy, Speed()) == Forecast(0.0, 0.0, 0.0)
    assert least(NEED, Speed()) == Forecast(0.0, 0.0, 0.0)


def test_at_the_least_a_cached_prompt_takes_a_step_and_any_other_its_chunks() -> None:
    assert least(NEED, SPEED, least_outputs=3) == Forecast(0.0, 0.01, 0.03)
    assert least(NEED, SPEED, cached=False) == Forecast(0.0, 0.03, 0.03)


def test_a_prospect_is_now_and_alone_and_at_the_least() -> None:
    busy = Running(sequences=4, free=False, residual=0.5)
    found = prospect(NEED, 2000, busy, SPEED, cached=False)
    assert found.expected == forecast(NEED, 2000, busy, SPEED)
    assert found.alone == forecast(NEED, 0, IDLE, SPEED)
    assert found.least == least(NEED, SPEED, cached=False)


def test_room_comes_free_with_the_first_seat_whose_pages_do() -> None:
    running = [(3.0, 10), (1.0, 2), (2.0, 4)]
    assert residual(running, pages=0) == residual(running, pages=2) == 1.0
    assert residual(running, pages=5) == 2.0
    assert residual(running, pages=100) == 3.0
    assert residual([], pages=5) == 0.0


def test_batches_of_fixed_time_take_that_and_their_wait() -> None:
    found = fixed(wait=99, compute=100)
    assert found.expected == Forecast(99, 199, 199)
    assert found.alone == found.least == Forecast(0, 100, 100)

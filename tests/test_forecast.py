"""forecast.py: waiting, prefill and decode in seconds."""

import pytest

from fairstep.admission.forecast import IDLE, Forecast, Running, Speed, fixed, forecast, least
from fairstep.admission.limits import Need
from fairstep.door import Coefficients

STEP = Coefficients(base=0.02, prompt=0.001, sequence=0.002, context=0.0)
SPEED = Speed(coefficients=STEP, chunk=100, least_step=0.01)
NEED = Need(prompt_tokens=250, max_tokens=11)


def test_an_idle_server_takes_steps_for_the_prompt_and_one_for_each_further_token() -> None:
    expected = forecast(NEED, 0.0, IDLE, SPEED)
    assert expected.wait == 0.0
    assert expected.first == pytest.approx(3 * 0.022 + 250 * 0.001)
    assert expected.whole == pytest.approx(expected.first + 10 * 0.022) and expected.answer == pytest.approx(0.22)


def test_prompts_that_run_are_computed_before_it() -> None:
    expected = forecast(NEED, 2.5, Running(sequences=4, prompt_left=50), SPEED)
    assert expected.wait == 2.5
    assert expected.first == pytest.approx(2.5 + 3 * 0.03 + 300 * 0.001)
    assert expected.whole == pytest.approx(expected.first + 10 * 0.03)


def test_beside_decodes_a_step_has_less_room_for_prompts() -> None:
    slow = Speed(coefficients=STEP, chunk=100, beside=25.0)
    assert forecast(NEED, 0.0, IDLE, slow).first == forecast(NEED, 0.0, IDLE, SPEED).first
    assert forecast(NEED, 0.0, Running(sequences=4), slow).first == pytest.approx(10 * 0.03 + 0.25)


def test_a_token_takes_as_long_as_late_steps_and_a_newcomer_joins_in_the_middle_of_one() -> None:
    busy = Running(sequences=4, step=0.2)
    expected = forecast(NEED, 0.0, busy, SPEED)
    assert expected.whole - expected.first == pytest.approx(10 * 0.2)
    assert expected.first == pytest.approx(0.1 + 3 * 0.03 + 0.25)


def test_context_costs_each_chunk_what_it_attends_to() -> None:
    attending = Speed(coefficients=Coefficients(base=0.0, prompt=0.0, sequence=0.0, context=0.001), chunk=100)
    assert forecast(Need(prompt_tokens=300, max_tokens=1), 0.0, IDLE, attending).first == pytest.approx(
        (100 + 200 + 300) * 0.001
    )


def test_nothing_takes_time_before_anything_is_measured() -> None:
    assert forecast(NEED, 0.0, Running(sequences=4, prompt_left=50), Speed()) == Forecast(0.0, 0.0, 0.0)
    assert least(NEED, Speed()) == Forecast(0.0, 0.0, 0.0)


def test_at_the_least_a_cached_prompt_takes_a_step_and_any_other_its_chunks() -> None:
    long = Need(prompt_tokens=250, max_tokens=11, least=3)
    assert least(long, SPEED) == Forecast(0.0, 0.01, 0.03)
    assert least(NEED, SPEED, cached=False) == Forecast(0.0, 0.03, 0.03)


def test_batches_of_fixed_time_take_that_and_their_wait() -> None:
    found = fixed(wait=99, compute=100)
    assert found.expected == Forecast(99, 199, 199)
    assert found.alone == found.least == Forecast(0, 100, 100)

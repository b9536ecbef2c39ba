"""playing.py, machines.py: the rules' timelines on a machine of round step times, and that nothing is lost."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairstep.benchmarking.course import Course
from fairstep.benchmarking.machines import LARGE_GPU, VirtualMachine
from fairstep.benchmarking.playing import prompt_ids
from fairstep.benchmarking.rules import CONTINUOUS, NAIVE, RULES, STATIC
from fairstep.door import Coefficients
from fairstep.simulation.step_cost import StepCost
from fairstep.simulation.trace import Arrival, Trace

A_STEP = Coefficients(base=1.0, prompt=0.0, sequence=0.0, context=0.0)
ROOM = {"step_tokens": 64, "kv_tokens": 4096, "context": 1024}


def play(rule: str, *asked: tuple[float, int, int], seats: int = 2, cost: Coefficients = A_STEP) -> Course:
    """Requests by instant, prompt and answer; every step takes a second."""
    machine = VirtualMachine(StepCost(cost), seats=seats, **ROOM)
    arrivals = (Arrival(at=at, prompt_tokens=prompt, outputs=outputs) for at, prompt, outputs in asked)
    return machine.play(Trace.of("t", arrivals), RULES[rule])


def told(course: Course) -> list[list[float]]:
    return [list(answer.told) for answer in course.answers]


LONG_SHORT_LATE = ((0.0, 8, 4), (0.0, 4, 2), (1.5, 4, 1))


@pytest.mark.parametrize("rule", [NAIVE, STATIC])
def test_nobody_joins_a_static_batch(rule: str) -> None:
    assert told(play(rule, *LONG_SHORT_LATE)) == [[1, 2, 3, 4], [1, 2], [5]]


def test_who_comes_takes_the_seat_of_who_has_left_under_continuous_batching() -> None:
    assert told(play(CONTINUOUS, *LONG_SHORT_LATE)) == [[1, 2, 3, 4], [1, 2], [3]]


@pytest.mark.parametrize(("rule", "wait"), [(NAIVE, 0.05), (STATIC, 0.02), (CONTINUOUS, 0.0)])
def test_half_a_batch_waits_as_long_as_its_rule_says(rule: str, wait: float) -> None:
    assert told(play(rule, (3.0, 4, 1)))[0] == pytest.approx([4.0 + wait])


@pytest.mark.parametrize(("rule", "padding"), [(NAIVE, [4, 0, 1, 1]), (STATIC, [0] * 4), (CONTINUOUS, [0] * 4)])
def test_naive_batches_fill_prompts_up_and_compute_ended_rows(rule: str, padding: list[int]) -> None:
    course = play(rule, *LONG_SHORT_LATE[:2])
    assert [beat.padding for beat in course.beats] == padding
    assert [beat.held for beat in course.beats] == [2, 2, 1, 1]
    assert [(beat.computing, beat.tokens) for beat in course.beats] == [(2, 12), (2, 2), (1, 1), (1, 1)]


def test_every_rule_serves_the_same_prompts() -> None:
    assert prompt_ids(7, 5, 49152) == prompt_ids(7, 5, 49152) != prompt_ids(8, 5, 49152)
    assert all(0 <= token < 320 for token in prompt_ids(1, 200, 320))


request = st.tuples(st.floats(0, 20), st.integers(1, 90), st.integers(1, 6))


@given(st.lists(request, min_size=1, max_size=8), st.sampled_from(list(RULES)), st.integers(1, 4))
@settings(max_examples=25, deadline=None)
def test_all_are_answered_in_full_after_they_came(asked: list[Any], rule: str, seats: int) -> None:
    course = play(rule, *asked, seats=seats, cost=LARGE_GPU)
    assert all(answer.is_whole and answer.ttft > 0 for answer in course.answers)
    assert all(0 < beat.held <= seats and beat.computing <= beat.held for beat in course.beats)
    assert all(gap >= 0 for answer in course.answers for gap in answer.gaps)
    prompts = sum(answer.arrival.prompt_tokens for answer in course.answers)
    drawn = sum(len(answer.told) - 1 for answer in course.answers)
    assert sum(beat.tokens for beat in course.beats) == prompts + drawn

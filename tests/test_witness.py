"""witness.py: batches leave as naive ones do, and each row keeps its own answer's tokens alone."""

from collections.abc import Callable, Sequence

import pytest

from fairstep.benchmarking.course import Course
from fairstep.benchmarking.witness import play_batches
from fairstep.simulation.trace import Arrival, Trace
from fairstep.simulation.virtual_clock import VirtualClock


class SecondAToken:
    """Takes a second for each token of the batch."""

    vocabulary = 1000

    def __init__(self, clock: VirtualClock) -> None:
        self.asked: list[tuple[list[int], int]] = []
        self._clock = clock

    def answer(self, prompts: Sequence[Sequence[int]], outputs: int, on_token: Callable[[], None]) -> None:
        self.asked.append(([len(prompt) for prompt in prompts], outputs))
        for _ in range(outputs):
            self._clock.spend(1.0)
            on_token()


def play(*asked: tuple[float, int, int]) -> tuple[Course, SecondAToken]:
    clock = VirtualClock()
    model = SecondAToken(clock)
    arrivals = (Arrival(at=at, prompt_tokens=prompt, outputs=outputs) for at, prompt, outputs in asked)
    return play_batches(Trace.of("t", arrivals), model, clock, seats=2, delay=0.05), model


def test_a_full_batch_leaves_at_once_and_runs_to_its_longest_answer() -> None:
    course, model = play((0.0, 8, 4), (0.0, 4, 2), (1.5, 3, 1))
    assert model.asked == [([8, 4], 4), ([3], 1)]
    assert [list(answer.told) for answer in course.answers] == [[1, 2, 3, 4], [1, 2], [5]]


def test_half_a_batch_waits_the_delay() -> None:
    course, _ = play((3.0, 4, 1))
    assert list(course.answers[0].told) == pytest.approx([4.05])


def test_filled_up_prompts_and_ended_rows_are_padding() -> None:
    course, _ = play((0.0, 8, 4), (0.0, 4, 2))
    assert [(beat.held, beat.tokens, beat.padding) for beat in course.beats] == [
        (2, 12, 4),
        (2, 2, 0),
        *[(1, 1, 1)] * 2,
    ]

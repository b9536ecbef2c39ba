"""Courses made by hand, for tests of what is read from them."""

from array import array

from fairstep.benchmarking.course import Answer, Beat, Course
from fairstep.simulation.trace import Arrival


def answer(at: float, *told: float) -> Answer:
    """A whole answer whose tokens came at these instants."""
    return Answer(Arrival(at=at, prompt_tokens=4, outputs=len(told)), array("d", told))


def two_seats() -> Course:
    """Three answers of two seats: the first step has one held, the second and third both, the last one again."""
    answers = [answer(0.0, 1.0, 2.0, 3.0), answer(1.0, 2.0, 2.5), answer(1.0, 3.0, 5.0)]
    beats = [
        Beat(0.0, 1.0, held=1, computing=1, tokens=4, padding=0),
        Beat(1.0, 2.0, held=2, computing=2, tokens=5, padding=3),
        Beat(2.0, 3.0, held=2, computing=1, tokens=1, padding=1),
        Beat(4.0, 5.0, held=1, computing=1, tokens=1, padding=5),
    ]
    return Course(2, answers, beats)

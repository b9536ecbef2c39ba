"""A run in numbers: rates, latencies, goodput, and how full its seats were."""

from dataclasses import dataclass

from ..simulation.summary import Percentiles
from .course import Answer, Course


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a good answer keeps to: seconds to its first token, and from token to token in the mean."""

    ttft: float
    pace: float

    def hold(self, answer: Answer) -> bool:
        return answer.ttft <= self.ttft and answer.pace <= self.pace


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """seconds: from the first arrival to the last token; rates are over these. ttft, e2e: from arrival to the first
    and to the last token; itl: from token to token. good: part of the answers within the limits; goodput: those, a
    second.

    seats: part of all seats held by a request, by time. ideal: the same from the first step in which all were held
    until the last answer began, where more comes than can be served: all should be held then; None: elsewhere, or they
    never were.
    wasted: part of all slots of all steps in which no token of a request was computed. padding: part of all tokens
    computed for nothing.
    """

    requests: int
    seconds: float
    requests_per_second: float
    tokens_per_second: float
    ttft: Percentiles
    itl: Percentiles
    e2e: Percentiles
    good: float
    goodput: float
    seats: float
    ideal: float | None
    wasted: float
    padding: float


def figures_of(course: Course, limits: Limits, *, overload: bool = False) -> Figures:
    """What a run comes to. overload: more came than could be served."""
    answers, beats = course.answers, course.beats
    first = min(answer.arrival.at for answer in answers)
    seconds = course.ended_at - first
    good = sum(limits.hold(answer) for answer in answers)
    full_at, last = course.full_at if overload else None, course.last_begun
    tokens, padding = sum(beat.tokens for beat in beats), sum(beat.padding for beat in beats)
    return Figures(
        requests=len(answers),
        seconds=seconds,
        requests_per_second=len(answers) / seconds,
        tokens_per_second=sum(len(answer.told) for answer in answers) / seconds,
        ttft=Percentiles.of(answer.ttft for answer in answers),
        itl=Percentiles.of(gap for answer in answers for gap in answer.gaps),
        e2e=Percentiles.of(answer.seconds for answer in answers),
        good=good / len(answers),
        goodput=good / seconds,
        seats=course.held(first, course.ended_at),
        ideal=course.held(full_at, last) if full_at is not None and full_at < last else None,
        wasted=1 - sum(beat.computing for beat in beats) / (course.seats * len(beats)),
        padding=padding / (tokens + padding),
    )

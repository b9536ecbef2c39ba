"""Plays a trace through a front and a worker in one thread: who has come by now enters before and after each step."""

from math import inf
from random import Random
from typing import Protocol

from ..clock import Clock
from ..door import Report
from ..front import Front
from ..request import Request, SamplingParams
from ..simulation.trace import Arrival, Trace
from ..worker import Worker
from .course import Answer, Beat, Course

FIRST_ID = 256  # below it are special tokens
MOST_IDS = 32_768


class Leaping(Clock, Protocol):
    """A clock that can go on to an instant at once."""

    def reach(self, instant: float) -> None: ...


def prompt_ids(number: int, length: int, vocabulary: int) -> tuple[int, ...]:
    """Request `number`'s prompt: the same in every run, and like no other's."""
    last = min(vocabulary, MOST_IDS)
    return tuple(Random(number).choices(range(min(FIRST_ID, last - 1), last), k=length))


class Play:
    """One run. Answers have the lengths that the trace says, whatever the model would like."""

    def __init__(self, trace: Trace, front: Front, worker: Worker, clock: Leaping) -> None:
        self._front = front
        self._worker = worker
        self._clock = clock
        self._course = Course(front.info.seats, [Answer(arrival) for arrival in trace.arrivals])
        self._requests = [_request(arrival, front.info.vocab_size) for arrival in trace.arrivals]
        self._come = 0

    def run(self) -> Course:
        """To the last answer's end."""
        while True:
            self._let_in()
            if self._worker.has_work:
                self._step()
                continue
            wake = min(self._next_arrival, inf if self._front.next_wake is None else self._front.next_wake)
            if wake == inf:
                break
            self._clock.reach(wake)
        assert not self._front.has_requests, "requests wait, and nothing will ever happen"
        assert all(answer.is_whole for answer in self._course.answers), "an answer was cut"
        return self._course

    @property
    def _next_arrival(self) -> float:
        return self._requests[self._come].arrival if self._come < len(self._requests) else inf

    def _let_in(self) -> None:
        now = self._clock.now()
        while (at := self._next_arrival) <= now:
            self._front.submit(self._requests[self._come], now=at)
            self._come += 1
        orders = self._front.orders(now)
        if orders is not None:
            self._worker.apply(orders)

    def _step(self) -> None:
        """Compute a step and tell its tokens."""
        began = self._clock.now()
        report = self._worker.step(self._let_in)
        self._note(report, began, self._clock.now())
        deltas = self._front.receive(report, self._clock.now())
        now = self._clock.now()
        for delta in deltas:
            assert delta.error is None, delta.error
            self._course.answers[int(delta.request_id)].told.extend([now] * len(delta.token_ids))

    def _note(self, report: Report, began: float, ended: float) -> None:
        step = report.step
        if step is None:
            return
        over = sum(result.outcome in ("stop", "length") for result in report.results)
        held = report.gauges.running + over
        tokens = step.prompt_tokens + step.decode_tokens
        self._course.beats.append(Beat(began, ended, held, len(step.slices), tokens, step.padding))


def _request(arrival: Arrival, vocabulary: int) -> Request:
    return Request(
        id=str(arrival.number),
        prompt_ids=prompt_ids(arrival.number, arrival.prompt_tokens, vocabulary),
        params=SamplingParams(max_tokens=arrival.outputs, temperature=0.0, ignore_eos=True),
        arrival=arrival.at,
    )

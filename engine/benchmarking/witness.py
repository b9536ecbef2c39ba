"""The outside witness: static batches as naive ones leave, computed by transformers' own generate, row beside row.

A token counts as told when generate has drawn it; what a row gets after its own answer is dropped.
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import Protocol

from ..simulation.trace import Trace
from ..stepping.batch_gate import BatchGate, Release
from .course import Answer, Beat, Course
from .playing import Leaping, prompt_ids


class Generates(Protocol):
    """A model that answers whole batches. on_token: called after each row has got a token."""

    @property
    def vocabulary(self) -> int: ...

    def answer(self, prompts: Sequence[Sequence[int]], outputs: int, on_token: Callable[[], None]) -> object: ...


def play_batches(trace: Trace, model: Generates, clock: Leaping, seats: int, delay: float) -> Course:
    """One run, its batches of at most `seats` requests, which wait at most `delay` seconds by choice."""
    course = Course(seats, [Answer(arrival) for arrival in trace.arrivals])
    gate = BatchGate(size=seats, delay=delay, compute=0.0)
    begun = 0
    while begun < len(trace.arrivals):
        now = clock.now()
        waiting = [each.at for each in trace.arrivals[begun:] if each.at <= now]
        decision = gate.decide(waiting, (), idle=1, now=now)
        if isinstance(decision, Release):
            _compute(model, course, course.answers[begun : begun + decision.count], clock)
            begun += decision.count
        else:
            come = begun + len(waiting)
            clock.reach(min(decision.at, trace.arrivals[come].at if come < len(trace.arrivals) else inf))
    return course


def _compute(model: Generates, course: Course, batch: Sequence[Answer], clock: Leaping) -> None:
    arrivals = [answer.arrival for answer in batch]
    prompts = [prompt_ids(each.number, each.prompt_tokens, model.vocabulary) for each in arrivals]
    began = clock.now()

    def on_token() -> None:
        nonlocal began
        now = clock.now()
        course.beats.append(_beat(batch, began, now))
        for answer in batch:
            if not answer.is_whole:
                answer.told.append(now)
        began = now

    model.answer(prompts, max(each.outputs for each in arrivals), on_token)


def _beat(batch: Sequence[Answer], began: float, ended: float) -> Beat:
    """A step of the rectangle: at first its prompts, then a token a row."""
    live = [answer for answer in batch if not answer.is_whole]
    if batch[0].told:
        return Beat(began, ended, len(live), len(live), len(live), len(batch) - len(live))
    lengths = [answer.arrival.prompt_tokens for answer in batch]
    padding = len(batch) * max(lengths) - sum(lengths)
    return Beat(began, ended, len(live), len(live), sum(lengths), padding)

"""What happened in a simulation, as it happens: each request's instants, and each tenant's service over time."""

from array import array
from bisect import bisect_right
from dataclasses import dataclass, field

from ..door import Report, StepRecord
from ..request import Delta
from ..step_shares import micros_of
from .trace import Arrival, Trace

PROMPT, CACHED, OUTPUT = 1.0, 0.1, 2.0  # what a token of each kind counts for as service
DONE = ("stop", "length")
LOST = ("refused", "pushed_out", "expired", "error")


@dataclass(slots=True)
class Story:
    """One request. Instants are None until they come. end: "stop" or "length" for a whole answer, "cancelled" by its
    client, "refused" at the door, "pushed_out" of the queue for another tenant's, "expired", "error", or "" while it is
    under way. why: a refusal's code, an error's message.
    """

    arrival: Arrival
    sent_at: float | None = None
    first_at: float | None = None
    last_at: float | None = None
    ended_at: float | None = None
    outputs: int = 0
    end: str = ""
    why: str = ""

    @property
    def is_done(self) -> bool:
        return self.end in DONE

    @property
    def is_good(self) -> bool:
        """Whether the whole answer came, in time."""
        if not self.is_done or self.first_at is None or self.ended_at is None:
            return False
        at, deadline, ttft_deadline = self.arrival.at, self.arrival.deadline, self.arrival.ttft_deadline
        whole = deadline is None or self.ended_at <= at + deadline
        return whole and (ttft_deadline is None or self.first_at <= at + ttft_deadline)


@dataclass(slots=True)
class Curve:
    """A sum that rises with time. `sums[i]` is reached at `times[i]`."""

    times: "array[float]" = field(default_factory=lambda: array("d"))
    sums: "array[float]" = field(default_factory=lambda: array("d"))

    @property
    def total(self) -> float:
        return self.sums[-1] if self.sums else 0.0

    def add(self, at: float, amount: float) -> None:
        if self.times and self.times[-1] == at:
            self.sums[-1] += amount
            return
        self.sums.append(self.total + amount)
        self.times.append(at)

    def at(self, instant: float) -> float:
        """The sum reached by `instant`, what comes at it included."""
        place = bisect_right(self.times, instant)
        return self.sums[place - 1] if place else 0.0

    def inside(self, begin: float, end: float) -> "array[float]":
        """The instants in (begin, end] at which it rises."""
        return self.times[bisect_right(self.times, begin) : bisect_right(self.times, end)]

    def between(self, begin: float, end: float) -> float:
        """What was added in (begin, end]."""
        return self.at(end) - self.at(begin)


@dataclass(slots=True)
class Book:
    """One tenant's. service: what was computed for it, weighted; demand: what its arrivals ask for, in the same unit.
    gaps: seconds from token to token. machine: seconds of steps, its slices' part of each.
    """

    service: Curve = field(default_factory=Curve)
    demand: Curve = field(default_factory=Curve)
    gaps: "array[float]" = field(default_factory=lambda: array("d"))
    machine: Curve = field(default_factory=Curve)


class Logbook:
    """Owner of stories and books. waiting: who has been accepted and is not with the worker, by number."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.stories = [Story(arrival) for arrival in trace.arrivals]
        self.books = {name: Book() for name in trace.names}
        self.waiting: dict[int, Story] = {}
        self.steps = 0
        self.busy = 0.0  # seconds that steps took
        self.tokens = 0  # drawn
        self.recomputed = 0
        self.late_results = 0
        self.ended_at = 0.0
        self._story_of: dict[int, Story] = {}  # by sequence number

    def arrived(self, story: Story) -> None:
        each = story.arrival
        self.books[each.tenant].demand.add(each.at, PROMPT * each.prompt_tokens + OUTPUT * each.answer)

    def accepted(self, story: Story, seq: int) -> None:
        self._story_of[seq] = self.waiting[story.arrival.number] = story

    def refused(self, story: Story, code: str, now: float) -> None:
        story.end, story.why, story.ended_at = "refused", code, now

    def sent(self, seq: int, now: float) -> None:
        story = self.waiting.pop(self._story_of[seq].arrival.number)
        if story.sent_at is None:
            story.sent_at = now

    def told(self, story: Story, delta: Delta, now: float) -> None:
        """Enter what a client gets."""
        for _ in delta.token_ids:
            if story.last_at is None:
                story.first_at = now
            else:
                self.books[story.arrival.tenant].gaps.append(now - story.last_at)
            story.last_at = now
        story.outputs += len(delta.token_ids)
        if delta.finish_reason is not None:
            story.end, story.why, story.ended_at = delta.finish_reason, delta.error or "", now
            self.waiting.pop(story.arrival.number, None)

    def reported(self, report: Report, now: float) -> None:
        """Enter what a step computed, for whom, before the clients are told. What is computed again serves nobody."""
        for result in report.results:
            story = self._story_of[result.seq]
            if story.end:
                self.late_results += 1
            elif result.outcome in ("yielded", "preempted"):
                self.waiting[story.arrival.number] = story
        if report.step is None:
            return
        self.steps += 1
        self.busy += report.step.run_seconds
        self._occupy(report.step, now)
        recomputed = {result.seq: result.recomputed for result in report.results}
        for piece in report.step.slices:
            if not piece.decode:
                self._serve(piece.seq, now, PROMPT * (piece.length - recomputed.get(piece.seq, 0)))
        for result in report.results:
            self.tokens += len(result.tokens)
            self.recomputed += result.recomputed
            self._serve(result.seq, now, CACHED * result.cached + OUTPUT * len(result.tokens))

    def _occupy(self, step: StepRecord, now: float) -> None:
        """Part a step's time among its slices, by what the step model says of them."""
        micros = micros_of(step)
        whole = sum(micros.values())
        for (seq, _), part in micros.items():
            if whole:
                self.books[self._story_of[seq].arrival.tenant].machine.add(now, step.run_seconds * part / whole)

    def _serve(self, seq: int, now: float, units: float) -> None:
        if units:
            self.books[self._story_of[seq].arrival.tenant].service.add(now, units)

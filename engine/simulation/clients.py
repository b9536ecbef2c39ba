"""The clients of a simulation: they ask at their instants, go away, and give up at their deadlines. Knows no worker.

They pass the same door as over HTTP: a visit for each, which takes of its tenant's limits and of the queue.
"""

from collections.abc import Callable, Iterable
from functools import partial
from math import inf

from ..admission.admission import Admission
from ..admission.deadlines import Deadlines
from ..admission.fit import answer_room
from ..errors import DeadlineExceeded, FairstepError
from ..front import Front
from ..reception import Foresee, Reception, Visit
from ..request import Delta, Request, SamplingParams
from .agenda import Agenda, Kind
from .batching import Batching
from .logbook import DONE, Logbook, Story
from .speech import prompt_of
from .trace import Arrival

ENDPOINT, MODEL = "/v1/chat/completions", "simulated"  # what patterns of limits are held against
BYTES_A_TOKEN = 4


class Clients:
    """Everybody at the front's other side. on_accepted(seq, arrival) is called for each request that is let in.

    admission: the door. foresee: what deadlines are judged by there; None: nobody is refused for one. batching: who
    waits for a batch when it is too late for it expires then.
    """

    def __init__(
        self,
        front: Front,
        log: Logbook,
        on_accepted: Callable[[int, Arrival], None],
        admission: Admission,
        foresee: Foresee | None = None,
        batching: Batching | None = None,
    ) -> None:
        self._front = front
        self._log = log
        self._on_accepted = on_accepted
        self._batching = batching
        self._now = 0.0
        self._agenda = Agenda()
        self._reception = Reception(admission, lambda: MODEL, lambda: self._now, lambda: self._now, foresee)
        self._visits: dict[int, Visit] = {}
        self._tenants = {name: number for number, name in enumerate(log.trace.names)}
        for arrival in log.trace.arrivals:
            self._agenda.enter(arrival.at, Kind.ARRIVAL, arrival)

    @property
    def next_at(self) -> float:
        """When the next thing is due; inf if there is none."""
        expiry = self._front.next_expiry
        return max(self._now, min(self._agenda.next_at, inf if expiry is None else expiry))

    def act(self, now: float, last: Kind) -> None:
        """Everything that is due exactly now, of kinds up to `last`."""
        self._now = now
        while self._agenda.is_due(now, last):
            kind, arrival = self._agenda.pop()
            if kind is Kind.ARRIVAL:
                self._ask(arrival)
            elif kind is Kind.CANCEL:
                self._leave(arrival, "cancelled")
            elif self._cannot_start(arrival):
                self._leave(arrival, "expired")
        if last is Kind.EXPIRY:
            self.hear(self._front.expire(now), now)

    def hear(self, deltas: Iterable[Delta], now: float) -> None:
        """Take what the front tells."""
        self._now = now
        for delta in deltas:
            number = int(delta.request_id)
            story, visit = self._log.stories[number], self._visits[number]
            self._log.told(story, delta, now)
            if delta.code == DeadlineExceeded.code:
                story.end = "expired"
            if delta.token_ids:
                visit.begin(0)
            if delta.finish_reason is not None:
                end = delta.finish_reason
                visit.leave(story.outputs, answered=end in DONE, cut=end == "cancelled")
                del self._visits[number]

    def check(self) -> None:
        """Assert that every place at the door is somebody's who is there."""
        self._reception.check()

    def _ask(self, arrival: Arrival) -> None:
        story = self._log.stories[arrival.number]
        self._log.arrived(story)
        try:
            self._enter(arrival, story)
        except FairstepError as error:
            self._log.refused(story, error.code, self._now)

    def _enter(self, arrival: Arrival, story: Story) -> None:
        """Through the door, to the front. Raises as both do."""
        terms = self._front.tenants.of(arrival.tenant)
        visit = self._reception.arrive(terms, ENDPOINT, BYTES_A_TOKEN * arrival.prompt_tokens)
        visit.deadlines = _deadlines_of(arrival)
        visit.give_up = partial(self._push_out, visit, arrival)
        try:
            request = self._request(arrival, visit.deadlines)
            most = answer_room(arrival.prompt_tokens, request.params.max_tokens, self._front.info.context)
            visit.count(prompt_tokens=arrival.prompt_tokens, max_tokens=most, sequences=1)
            self._front.submit(request, now=self._now)
        except FairstepError:
            visit.leave(0, answered=False)
            raise
        self._visits[arrival.number] = visit
        seq = self._front.seq_of(request.id)
        assert seq is not None, "a request ended before it began"
        self._log.accepted(story, seq)
        self._on_accepted(seq, arrival)
        self._plan_to_leave(arrival)

    def _request(self, arrival: Arrival, deadlines: Deadlines) -> Request:
        return Request(
            id=str(arrival.number),
            prompt_ids=prompt_of(arrival.number, arrival.prompt_tokens, arrival.shared, self._tenants[arrival.tenant]),
            params=SamplingParams(max_tokens=arrival.max_tokens or arrival.outputs, temperature=0.0),
            tenant=arrival.tenant,
            priority=arrival.priority,
            deadline=deadlines.whole,
            ttft_deadline=deadlines.first,
            arrival=arrival.at,
        )

    def _plan_to_leave(self, arrival: Arrival) -> None:
        if arrival.cancel is not None:
            self._agenda.enter(arrival.at + arrival.cancel, Kind.CANCEL, arrival)
        if self._batching and arrival.deadline is not None:
            last_start = self._batching.last_start(arrival.at + arrival.deadline)
            self._agenda.enter(max(arrival.at, last_start), Kind.EXPIRY, arrival)

    def _cannot_start(self, arrival: Arrival) -> bool:
        """Whether it waits for a batch, and the last that would be in time should have left."""
        return arrival.number in self._log.waiting

    def _push_out(self, visit: Visit, arrival: Arrival) -> None:
        """Its place was given to another."""
        assert visit.place.pushed_out is not None
        self._leave(arrival, "pushed_out")
        self._log.stories[arrival.number].why = visit.place.pushed_out.code

    def _leave(self, arrival: Arrival, end: str) -> None:
        delta = self._front.cancel(str(arrival.number), self._now)
        if delta is not None:
            self.hear([delta], self._now)
            self._log.stories[arrival.number].end = end


def _deadlines_of(arrival: Arrival) -> Deadlines:
    """A trace's seconds as instants."""
    first, whole = arrival.ttft_deadline, arrival.deadline
    return Deadlines(None if first is None else arrival.at + first, None if whole is None else arrival.at + whole)

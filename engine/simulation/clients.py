"""The clients of a simulation: they ask at their instants, go away, and give up at their deadlines. Knows no worker."""

from collections.abc import Callable, Iterable

from ..errors import DeadlineExceeded, FairstepError
from ..front import Front
from ..request import Delta, Request, SamplingParams
from .agenda import Agenda, Kind
from .batching import Batching
from .logbook import Logbook
from .speech import prompt_of
from .trace import Arrival


class Clients:
    """Everybody at the front's other side. on_accepted(seq, arrival) is called for each request that is let in.

    batching: refuses on arrival what can't meet its deadline, if `refuses`; who waits when it is too late expires then.
    """

    def __init__(
        self,
        front: Front,
        log: Logbook,
        on_accepted: Callable[[int, Arrival], None],
        batching: Batching | None = None,
        *,
        refuses: bool = False,
    ) -> None:
        self.agenda = Agenda()
        self._front = front
        self._log = log
        self._on_accepted = on_accepted
        self._batching = batching
        self._refuses = refuses
        self._tenants = {name: number for number, name in enumerate(log.trace.names)}
        for arrival in log.trace.arrivals:
            self.agenda.enter(arrival.at, Kind.ARRIVAL, arrival)

    def act(self, now: float, last: Kind) -> None:
        """Everything that is due exactly now, of kinds up to `last`."""
        while self.agenda.is_due(now, last):
            kind, arrival = self.agenda.pop()
            if kind is Kind.ARRIVAL:
                self._ask(arrival, now)
            elif kind is Kind.CANCEL:
                self._leave(arrival, "cancelled", now)
            else:
                self._expire(arrival, now)

    def hear(self, deltas: Iterable[Delta], now: float) -> None:
        """Take what the front tells."""
        for delta in deltas:
            story = self._log.stories[int(delta.request_id)]
            self._log.told(story, delta, now)
            if delta.code == DeadlineExceeded.code:
                story.end = "expired"

    def _ask(self, arrival: Arrival, now: float) -> None:
        story = self._log.stories[arrival.number]
        self._log.arrived(story)
        if self._refuses and self._batching and not self._batching.can_meet(arrival, len(self._log.waiting), now):
            self._log.refused(story, "deadline_unattainable", now)
            return
        try:
            ended = self._front.submit(self._request(arrival), now=now)
        except FairstepError as error:
            self._log.refused(story, error.code, now)
            return
        seq = self._front.seq_of(str(arrival.number))
        if seq is not None:
            self._log.accepted(story, seq)
            self._on_accepted(seq, arrival)
            self._plan_to_leave(arrival)
        self.hear(ended, now)

    def _request(self, arrival: Arrival) -> Request:
        return Request(
            id=str(arrival.number),
            prompt_ids=prompt_of(arrival.number, arrival.prompt_tokens, arrival.shared, self._tenants[arrival.tenant]),
            params=SamplingParams(max_tokens=arrival.max_tokens or arrival.outputs, temperature=0.0),
            tenant=arrival.tenant,
            priority=arrival.priority,
            deadline=None if arrival.deadline is None else arrival.at + arrival.deadline,
            ttft_deadline=None if arrival.ttft_deadline is None else arrival.at + arrival.ttft_deadline,
            arrival=arrival.at,
        )

    def _plan_to_leave(self, arrival: Arrival) -> None:
        if arrival.cancel is not None:
            self.agenda.enter(arrival.at + arrival.cancel, Kind.CANCEL, arrival)
        if arrival.ttft_deadline is not None:
            self.agenda.enter(arrival.at + arrival.ttft_deadline, Kind.EXPIRY, arrival)
        if arrival.deadline is None:
            return
        deadline = arrival.at + arrival.deadline
        if self._batching:
            last_start = self._batching.last_start(deadline)
            self.agenda.enter(max(arrival.at, last_start), Kind.EXPIRY, arrival)
        self.agenda.enter(deadline, Kind.EXPIRY, arrival)

    def _expire(self, arrival: Arrival, now: float) -> None:
        """One of the instants after which a request may be too late: end it if it is."""
        self.hear(self._front.expire(now), now)
        if arrival.number in self._log.waiting and self._cannot_start(arrival, now):
            self._leave(arrival, "expired", now)

    def _cannot_start(self, arrival: Arrival, now: float) -> bool:
        if self._batching is None or arrival.deadline is None:
            return False
        return now >= self._batching.last_start(arrival.at + arrival.deadline)

    def _leave(self, arrival: Arrival, end: str, now: float) -> None:
        delta = self._front.cancel(str(arrival.number), now)
        if delta is not None:
            self.hear([delta], now)
            self._log.stories[arrival.number].end = end

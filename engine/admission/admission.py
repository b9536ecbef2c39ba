"""The door: a request passes its stages one by one, and what refuses it gives back all that it had taken before.

Arrival takes a place by count and bytes, before anything is computed for it; then come the tenant's limits and its
prompt tokens in the queue, then its deadline. Pure: it is handed instants (`now` of the engine's clock, `unix` in Unix
seconds for months), sizes and forecasts; who goes next is the waiting room's business.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from math import inf

from ..errors import (
    ConcurrencyLimited,
    DeadlineImpossible,
    DeadlineUnattainable,
    ServerOverloaded,
    TenantQueueFull,
)
from .bounded_queue import BoundedQueue, QueueBounds, Size
from .calibration import Calibration
from .deadlines import NO_ALLOWANCES, Allowances, Deadlines, LatencyTarget, tightest
from .forecast import Forecast, Prospect
from .limit_store import LimitStore
from .limits import Limit, Need, Quantities, applying
from .place import Place, Stage, Terms
from .rate_limits import RateFigure, RateLimits
from .retry import LEAST, MOST_TOLD, Pace
from .strictness import Strictness
from .waiting_time import IdleTime

NEARLY = 0.9  # of its time: who ends after that, and unfinished, ended for its deadline
MIN_SWEEP = 64  # below this many dead heap entries, sweeping is not worth it


class Admission:
    """Owner of all places. A request that is refused raises, and holds nothing.

    targets: asked for anew for each request, as the book that they stand in may be another one.
    """

    def __init__(
        self,
        bounds: QueueBounds,
        store: LimitStore,
        targets: Callable[[], Sequence[LatencyTarget]] = tuple,
        allowances: Allowances = NO_ALLOWANCES,
    ) -> None:
        self._targets = targets
        self.allowances = allowances
        self.calibration = Calibration()  # of seconds to a first token
        self.answer_calibration = Calibration()  # of seconds from there to the end
        self.strictness = Strictness()
        self.idle = IdleTime()
        self._queue = BoundedQueue(bounds)
        self._limits = RateLimits(store)
        self._pace = Pace()
        self._places: dict[int, Place] = {}  # that have not ended
        self._live: Counter[str] = Counter()  # places by tenant
        self._numbers = 0
        self._pushed: list[Place] = []
        self._due: list[tuple[float, int]] = []  # a heap; entries of another time than the place's are dead

    @property
    def targets(self) -> Sequence[LatencyTarget]:
        """What requests without a deadline are judged by."""
        return self._targets()

    # --- the stages

    def arrive(self, key: str, terms: Terms, *, endpoint: str, model: str, size: int, now: float) -> Place:
        """A place for a request of `size` bytes, known by no more than its tenant. May put others out: see pushed().

        Raises ConcurrencyLimited, RateLimited (what not even the smallest request may now), TenantQueueFull or
        ServerOverloaded.
        """
        if terms.max_concurrent is not None and self._live[terms.name] >= terms.max_concurrent:
            raise ConcurrencyLimited(
                f"{terms.max_concurrent} requests of yours are being served, the most at a time", LEAST
            )
        limits = applying(terms.limits, endpoint, model)
        self._limits.precheck(terms.name, limits, now)
        entry = Size(1, 0, size)
        self._make_room(terms, entry, now)
        self._numbers += 1
        place = Place(self, self._numbers, key, terms, endpoint, model, now, limits, self.idle.total(now))
        self._queue.enter(place.number, terms.name, terms.weight, entry)
        self._places[place.number] = place
        self._live[terms.name] += 1
        return place

    def address(self, place: Place, model: str, now: float) -> None:
        """The model that a place's request is for is known: limits of that model hold, too. Raises RateLimited."""
        if model == place.model:
            return
        place.model = model
        place.limits = applying(place.terms.limits, place.endpoint, model)
        try:
            self._limits.precheck(place.tenant, place.limits, now)
        except BaseException:
            self.release(place, now)
            raise

    def count(self, place: Place, need: Need, *, now: float, unix: float) -> None:
        """Its tokens are known: take of its tenant's limits, and of the tokens that may wait.

        Raises RateLimited, QuotaExhausted, StoreFailed, TenantQueueFull or ServerOverloaded.
        """
        self._enter(place, "arrived", "counted")
        place.need = need
        more = Size(need.sequences - 1, need.prompt_tokens, 0)
        try:
            place.reservation = self._limits.reserve(place.tenant, place.limits, need.quantities, now=now, unix=unix)
            self._make_room(place.terms, more, now, place.number)
        except BaseException:
            self.release(place, now)
            raise
        self._queue.grow(place.number, more)

    def judge(self, place: Place, deadlines: Deadlines, prospect: Prospect | None, now: float) -> None:
        """Let it wait, if what is foreseen lets it meet its deadlines, or the targets if it has none.

        prospect None: nothing can be foreseen. Raises DeadlineImpossible, DeadlineUnattainable or ServerOverloaded.
        """
        self._enter(place, "counted", "waiting")
        place.deadlines, place.judged = deadlines, now
        try:
            self._judge(place, prospect, now)
        except BaseException:
            self.release(place, now)
            raise
        least = Forecast(0.0, 0.0, 0.0) if prospect is None else prospect.least
        self._set_due(place, deadlines.last_start(least.first, least.whole))

    def begin(self, place: Place, now: float, sequences: int = 1) -> None:
        """So many of its sequences leave the queue for the worker."""
        assert place.stage in ("waiting", "running"), f"{place.key} begins while {place.stage}"
        if place.number in self._queue:
            self._pace.freed(self._queue.begin(place.number, sequences).entries, now)
        if place.stage == "running":
            return
        place.stage = "running"
        place.waited = self.idle.waited(place.arrived, place.idle_then, now)
        self._set_due(place, place.deadlines.due(told=False))

    def tell(self, place: Place, now: float) -> None:
        """Its first token has left the server."""
        assert place.stage == "running", f"{place.key} is told of while {place.stage}"
        if place.told is not None:
            return
        if place.foreseen is not None:
            self.calibration.observe(place.foreseen.first, now - place.judged)
        place.told = now
        self._set_due(place, place.deadlines.due(told=True))

    def settle(
        self, place: Place, outputs: int, now: float, *, prompt: int | None = None, natural: bool = False
    ) -> None:
        """See Place.settle."""
        reservation, need = place.reservation, place.need
        self._learn(place, now, natural=natural)
        if self._end(place) and reservation is not None and need is not None:
            tokens = need.prompt_tokens if prompt is None else prompt
            self._limits.settle(reservation, Quantities(1, tokens, outputs), now=now)

    def release(self, place: Place, now: float) -> None:
        """See Place.release."""
        self._learn(place, now)
        if self._end(place) and place.reservation is not None:
            self._limits.cancel(place.reservation, now=now)

    # --- what the caller must act on

    def pushed(self) -> list[Place]:
        """Places that were put out since this was last asked. They hold nothing any more; their requests must end."""
        pushed, self._pushed = self._pushed, []
        return pushed

    def overdue(self, now: float) -> list[Place]:
        """Places whose time is up, each named once: too late to begin, or running past their deadline.

        Ask after what happens at the same instant: who begins or ends just in time is in time. The caller ends them.
        """
        found = []
        while self._due and self._due[0][0] <= now:
            at, number = heappop(self._due)
            place = self._places.get(number)
            if place is not None and place.due == at:
                place.due = inf
                found.append(place)
        return found

    @property
    def next_due(self) -> float:
        """The instant at which overdue() may have something; inf if never."""
        while self._due and not self._is_live(self._due[0]):
            heappop(self._due)
        return self._due[0][0] if self._due else inf

    # --- what others see

    @property
    def waiting(self) -> Size:
        """What the queue holds."""
        return self._queue.used

    @property
    def live(self) -> int:
        """Places that have not ended."""
        return len(self._places)

    def live_of(self, tenant: str) -> int:
        """Those of a tenant."""
        return self._live[tenant]

    def pace(self, now: float) -> float:
        """Sequences a second that begin of late; while all seats are taken, 1 / pace is when the next comes free."""
        return self._pace.rate(now)

    def drained_in(self, now: float) -> float:
        """Seconds until all that waits has begun, if it goes on as of late."""
        rate = self._pace.rate(now)
        return min(self.waiting.entries / rate, MOST_TOLD) if rate else LEAST

    def figures(self, terms: Terms, *, endpoint: str, model: str, now: float) -> tuple[RateFigure, ...]:
        """What to tell a client of its limits a minute."""
        return self._limits.figures(terms.name, applying(terms.limits, endpoint, model), now)

    def owed(self, tenant: str, limit: Limit, now: float) -> float:
        """What a limit a minute has given and not got back."""
        return self._limits.owed(tenant, limit, now)

    def check(self) -> None:
        """Assert that every place is counted once wherever it should be, and nothing else is."""
        self._queue.check()
        self._limits.check()
        assert +self._live == Counter(place.tenant for place in self._places.values()), "places are miscounted"
        for number, place in self._places.items():
            assert place.number == number and place.stage != "ended", f"{place.key} has ended and holds a place"
            assert place.stage == "running" or number in self._queue, f"{place.key} waits outside the queue"
            assert (place.reservation is None) == (place.stage == "arrived"), f"{place.key} has the wrong limits"
            assert place.due == inf or (place.due, number) in self._due, f"{place.key} would never expire"

    # --- inside

    def _enter(self, place: Place, before: Stage, stage: Stage) -> None:
        if place.pushed_out is not None:
            raise place.pushed_out
        assert place.stage == before, f"{place.key} is {place.stage} already"
        place.stage = stage

    def _make_room(self, terms: Terms, more: Size, now: float, number: int | None = None) -> None:
        """Put out whom fairness asks for, or raise."""
        name, weight = terms.name, terms.weight
        if terms.queue_share is not None and not self._queue.keeps_to(terms.queue_share, name, more, number):
            raise TenantQueueFull("your part of the queue is full", self._promise(terms, now))
        victims = self._queue.victims(name, weight, more, number)
        if victims is None and self._queue.is_alone(name):
            raise ServerOverloaded("the queue is full", self._promise(terms, now))
        if victims is None:
            raise TenantQueueFull(
                "the queue is full, and as much of yours as of others waits", self._promise(terms, now)
            )
        for victim in victims:
            self._push_out(self._places[victim], now)

    def _push_out(self, place: Place, now: float) -> None:
        text = "the queue is full, and this request, of the tenant with most in it, left its place to another tenant's"
        place.pushed_out = ServerOverloaded(text, self._promise(place.terms, now))
        self.release(place, now)
        self._pushed.append(place)

    def _promise(self, terms: Terms, now: float) -> float:
        return self._pace.promise(terms.name, self._queue.share(terms.name, terms.weight), 1, now)

    def _judge(self, place: Place, prospect: Prospect | None, now: float) -> None:
        deadlines = place.deadlines
        if deadlines.excess(now, now) > 0.0:
            raise DeadlineImpossible("the deadline has passed", deadlines.param)
        if prospect is None:
            return
        alone, least = prospect.alone, prospect.least
        if (late := deadlines.excess(now + least.first, now + least.whole)) > 0.0:
            raise DeadlineImpossible(f"no server could answer until {late:.2f} s after the deadline", deadlines.param)
        if prospect.expected is None:
            return
        place.foreseen = prospect.expected
        if not (self.calibration.is_trusted and self.answer_calibration.is_trusted):
            return
        if (late := self._lateness(deadlines, prospect.expected, now)) > 0.0:
            if deadlines.excess(now + alone.first, now + alone.whole) > 0.0:
                raise DeadlineImpossible(f"an idle server would be {late:.2f} s late, as a rule", deadlines.param)
            raise DeadlineUnattainable(f"the answer would come {late:.2f} s after the deadline", late)
        if deadlines.sooner is None:
            span = tightest(self.targets, place.terms.tier, place.endpoint, place.model)
            target = span.deadlines(place.arrived, (alone.first, alone.whole))
            if (late := self._lateness(target, prospect.expected, now)) > 0.0:
                raise ServerOverloaded(f"so much waits that the answer would come {late:.2f} s too late", late)

    def _lateness(self, deadlines: Deadlines, foreseen: Forecast, now: float) -> float:
        """By how much an answer is to be expected late."""
        part = self.strictness.part
        first = now + self.calibration.at(part, foreseen.first)
        return deadlines.excess(first, first + self.answer_calibration.at(part, foreseen.answer))

    def _learn(self, place: Place, now: float, *, natural: bool = False) -> None:
        """A place ends, its answer whole or given up: what it took by then beside what was foreseen."""
        foreseen, told = place.foreseen, place.told
        if place.stage == "ended" or foreseen is None:
            return
        if told is None:
            self.calibration.observe_more_than(foreseen.first, now - place.judged)
        elif natural and foreseen.answer:
            self.answer_calibration.observe(foreseen.answer, now - told)
        elif foreseen.answer:
            self.answer_calibration.observe_more_than(foreseen.answer, now - told)
        if natural and told is not None and place.deadlines.sooner is not None:
            self.strictness.ended(place.deadlines.excess(told, now) <= 0.0)
        elif not natural and now - place.judged >= NEARLY * (place.due - place.judged):
            self.strictness.ended(False)

    def _set_due(self, place: Place, at: float) -> None:
        place.due = at
        if at < inf:
            heappush(self._due, (at, place.number))
        if len(self._due) > 2 * len(self._places) + MIN_SWEEP:
            self._due = [entry for entry in self._due if self._is_live(entry)]
            heapify(self._due)

    def _is_live(self, entry: tuple[float, int]) -> bool:
        place = self._places.get(entry[1])
        return place is not None and place.due == entry[0]

    def _end(self, place: Place) -> bool:
        """Take a place out of every book; False if it has ended before."""
        if place.stage == "ended":
            return False
        place.stage = "ended"
        place.due = inf
        del self._places[place.number]
        self._live[place.tenant] -= 1
        if not self._live[place.tenant]:
            del self._live[place.tenant]
        if place.number in self._queue:
            self._queue.leave(place.number)
        return True

"""What an engine counts, joined: requests, steps, tenants, tiers, and what is asked for. Knows no clock, torch or HTTP.

Two engines in one process count apart. What is true at the moment is not kept: whoever asks for stats hands it in.
docs/metrics.md says what each time begins and ends with.
"""

from collections.abc import Callable, Mapping, Sequence

from .admission.waiting_time import Waited
from .entry import Entry
from .errors import FairstepError, Overloaded, TenantQueueFull
from .exposition import check_prefix, text_of
from .fairness.fair_room import FairRoom
from .meters.failures import FailureMeter
from .meters.load import Load
from .meters.requests import RequestMeter
from .meters.rooms import NOTHING_WAITS, Price, Queue, RoomReader
from .meters.steps import StepMeter
from .meters.tenants import MOST_NAMES, TenantMeters
from .meters.tiers import TierMeters, Times
from .request import FinishReason
from .stats import LedgerStats, Live, Stats, TierStats
from .tenants import Tenants, TierTerms

Arrival = Callable[[int], float]


class Metrics:
    """The meters of one engine. most_tenants: that are named. Raises ConfigError on a prefix that is no name."""

    def __init__(
        self, model_name: str = "", prefix: str = "fairstep", most_tenants: int = MOST_NAMES, *, warns: bool = True
    ) -> None:
        check_prefix(prefix)
        self.prefix = prefix
        self.model_name = model_name
        self.requests = RequestMeter()
        self.steps = StepMeter()
        self.failures = FailureMeter()
        self.tenants = TenantMeters(most_tenants)
        self.tiers = TierMeters()
        self.load = Load(warns=warns)
        self._book: Sequence[TierTerms] = Tenants().tiers

    def use(self, book: Tenants) -> None:
        """Its tenants are named, and its tiers are shown from now on."""
        anonymous = [book.anonymous] if book.anonymous else []
        self.tenants.name(terms.name for terms in (*anonymous, *book.tenants))
        self._book = book.tiers

    # --- a request's life

    def accepted(self, entry: Entry, units: int, now: float) -> None:
        """A request waits from now on, and is expected to cost so many units."""
        entry.meter.accepted()
        self.requests.accepted(len(entry.request.prompt_ids), entry.sampling.max_tokens)
        self.load.ask(entry.ticket.tier, units, now)

    def refused(self, tenant: str, tier: int, error: FairstepError, units: int | None, now: float) -> None:
        """A request was refused. units: what it would have cost; None: nobody knows yet."""
        self.tenants.of(tenant).refused(error.code)
        if isinstance(error, Overloaded | TenantQueueFull):  # with more to serve it, it would have been served
            self.load.ask(tier, units, now)

    def began(self, entry: Entry, idle: float, now: float) -> None:
        """A request is admitted for the first time. idle: seconds that the worker has been idle, over all time."""
        self.requests.queued(now - entry.request.arrival)
        by_choice = idle - entry.idle_then
        entry.meter.began(Waited(by_choice, max(0.0, now - entry.entered - by_choice)))

    def found(self, entry: Entry, looked_up: int) -> None:
        """Of so many tokens of its prompt, the prefix cache had what the entry says."""
        self.steps.cached(entry.cached, looked_up)
        entry.meter.found(entry.cached)

    def ended(self, entry: Entry, reason: FinishReason, code: str | None, now: float) -> None:
        """A request ended. code: of the error, if it has one."""
        usage = entry.usage
        seconds, first = now - entry.request.arrival, None
        decoding = per_token = None
        if entry.first_at is not None and entry.last_at is not None:
            first, decoding = entry.first_at - entry.request.arrival, entry.last_at - entry.first_at
            per_token = decoding / (usage.completion_tokens - 1) if usage.completion_tokens > 1 else None
        self.requests.ended(
            reason,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            seconds=seconds,
            decode_seconds=decoding or 0.0,
        )
        self.tiers.ended(self.tier(entry.ticket.tier), reason, Times(first, per_token, seconds))
        if reason == "error":
            entry.meter.refused(code or FairstepError.code)

    # --- all of it

    def tier(self, number: int) -> TierTerms:
        """What is promised in a tier; nothing in one that is not in the book."""
        return next((each for each in self._book if each.number == number), TierTerms(number, str(number)))

    def stats(
        self,
        live: Live | None = None,
        room: FairRoom | None = None,
        *,
        arrival: Arrival = lambda seq: 0.0,
        price: Price = lambda standing: standing.queued,
        capacity: float | None = None,
        retries_left: int = 0,
        now: float = 0.0,
    ) -> Stats:
        """As it is now. arrival: when a waiting sequence came. price: see RoomReader.

        capacity: units served a second; None: not known yet.
        """
        queues: Mapping[int, Queue] = {}
        if room is not None:
            reader = RoomReader(room, self.tenants.name_of, lambda number: self.tier(number).name, price)
            queues = reader.queues(capacity, now)
        numbers = sorted({*queues, *(each.number for each in self._book)})
        self.load.look(capacity, now)
        return Stats(
            model_name=self.model_name,
            live=live or Live(),
            requests=self.requests.stats(self.tenants),
            steps=self.steps.stats(),
            failures=self.failures.stats(retries_left),
            ledger=self._ledger(room, numbers, capacity, now),
            tiers=tuple(self._tier(number, queues.get(number, NOTHING_WAITS), arrival, now) for number in numbers),
            tenants=tuple(meter.stats() for meter in self.tenants),
            accounts=tuple(account for queue in queues.values() for account in queue.accounts),
        )

    def render(self, stats: Stats) -> bytes:
        """Stats as Prometheus text."""
        return text_of([stats], self.prefix)

    def _ledger(self, room: FairRoom | None, numbers: Sequence[int], capacity: float | None, now: float) -> LedgerStats:
        offered = sum(self.load.asked(number, now) for number in numbers)
        if room is None:
            return LedgerStats(offered=offered, capacity=capacity)
        billing = room.billing
        return LedgerStats(
            quantum=room.quantum,
            largest_quantum=room.largest_quantum,
            cost=billing.cost,
            recomputed=billing.recomputed,
            system_units=billing.system_units,
            offered=offered,
            capacity=capacity,
        )

    def _tier(self, number: int, queue: Queue, arrival: Arrival, now: float) -> TierStats:
        ended, good = self.tiers.counts(number)
        return TierStats(
            number=number,
            name=self.tier(number).name,
            ended=ended,
            good=good,
            waiting=queue.waiting,
            oldest_age=0.0 if queue.oldest is None else now - arrival(queue.oldest),
            queued=queue.queued,
            offered=self.load.asked(number, now),
            bound=queue.bound,
            predicted_wait=queue.predicted_wait,
            pressure=queue.pressure,
            saturated=self.load.is_saturated(number),
        )

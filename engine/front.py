"""The front: the request table and what joins it to the workers' doors. It decides who goes next, never how.

Pure: it is handed instants and Reports and gives Orders and Deltas; no torch, HTTP, asyncio or clock. Each request
ends exactly once. Results of an attempt that is no longer current are dropped and counted.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf

from .admission.deadlines import Deadlines
from .admission.forecast import Prospect
from .admission.limits import Need
from .batches import Batches
from .door import Orders, Ready, Report, Result, StepRecord
from .entry import Entry
from .errors import DeadlineExceeded, FairstepError, InvalidRequest, RequestIsolated, RequestQuarantined
from .fairness.fair_room import FairRoom
from .fairness.ticket import Ticket
from .intake import Intake, Speech
from .metrics import Metrics
from .outlook import Outlook
from .recovery import ATTEMPTS
from .request import Delta, FinishReason, Request
from .scaling import Pressure, wanted
from .siblings import Siblings
from .stations import Station
from .stats import OTHER, Live, Stats
from .step_shares import micros_of
from .tenants import Tenants, TenantTerms
from .text.stream import Piece
from .time_limits import TimeLimits, why_late
from .workforce import FIRST, Workforce

STEPS_KEPT = 1024
NOTHING = Piece("", ())


class Front:
    """Request table, waiting room and the books of the workers, of which there is one to begin with.

    info: of that one, and what requests are measured by. attempts: see Recovery. tenants: the terms of requests that
    bring none; see use(). shared: tenants keep to their shares while they run, and yield for each other. batches: what
    waits leaves by these alone.
    """

    def __init__(
        self,
        info: Ready,
        tokenizer: Speech,
        room: FairRoom,
        metrics: Metrics,
        draw_seed: Callable[[], int],
        *,
        tenants: Tenants | None = None,
        shared: bool = False,
        batches: Batches | None = None,
        attempts: int = ATTEMPTS,
    ) -> None:
        self.info = info
        self.steps: deque[StepRecord] = deque(maxlen=STEPS_KEPT)
        self._metrics = metrics
        self.tenants = tenants or Tenants()
        self._intake = Intake(info, tokenizer, draw_seed)
        self._siblings = Siblings()
        self._batches = batches
        self._entries: dict[int, Entry] = {}  # by sequence number
        self._workers = Workforce(
            room,
            info,
            self._entries,
            self._pages,
            self._may,
            shared=shared,
            static=batches is not None,
            attempts=attempts,
        )
        self._seats = self._workers.seats
        self._measures = room.billing.cost.kind == "adaptive"
        self._outlook = Outlook(room, info, shared=shared)
        self._limits = TimeLimits(self._entries, self._outlook, batches)
        self._sent_of: Counter[str] = Counter()  # sequences in the worker, by tenant
        self._seq_of: dict[str, int] = {}  # by request id
        self._running = 0  # entries that have started
        self._spare = 0  # workers that are loaded and take no part

    @property
    def tenants(self) -> Tenants:
        """The terms of requests that bring none."""
        return self._tenants

    @tenants.setter
    def tenants(self, tenants: Tenants) -> None:
        self._tenants = tenants
        self._metrics.use(tenants)

    # --- what callers do

    def use(self, tenants: Tenants, least: Mapping[int, int]) -> None:
        """Take a new book, for requests to come. least: minimum shares of its tiers, from the next admission on."""
        self.tenants = tenants
        self._seats.room.set_least(least)

    def submit(self, *requests: Request, now: float) -> list[Delta]:
        """Let requests wait, all or none of them; the Deltas of those that have ended by now (max_tokens 0)
        or go on with what was drawn before.

        A request with a leader waits for that one's first token. Raises InvalidRequest or ContextTooLong if one can
        never be served as asked, RequestQuarantined if its like has just brought down what computed it.
        """
        self._intake.check(requests)
        self._check_quarantine(requests, now)
        entries = [self._entry(request) for request in requests]
        ended = [self._enter(entry, now) for entry in entries]
        return [delta for delta in ended if delta is not None]

    def refused(self, terms: TenantTerms | None, error: FairstepError, need: Need | None, now: float) -> None:
        """A request was turned away before it came here; None: nobody knows whose it was, or what it takes."""
        tenant, tier = (OTHER, 0) if terms is None else (terms.name, terms.tier)
        units = None
        if need is not None:
            billing = self._seats.room.billing
            outputs = need.sequences * billing.expected(tenant, need.max_tokens)
            prices = billing.cost.prices()
            units = prices.cost(uncached=need.prompt_tokens, cached=0, outputs=outputs)
        self._metrics.refused(tenant, tier, error, units, now)

    def cancel(self, request_id: str, now: float) -> Delta | None:
        """End a request wherever it is; its last Delta, or None if it has ended already."""
        entry = self._entries.get(self._seq_of.get(request_id, 0))
        if entry is None:
            return None
        return self._end(entry, "cancelled", now, entry.text.finish())

    def fail_all(self, message: str, now: float) -> list[Delta]:
        """End every request with an error: nobody computes any more."""
        self._workers.stations.forget_gauges()
        return [self._end(entry, "error", now, error=message) for entry in list(self._entries.values())]

    def expire(self, now: float) -> list[Delta]:
        """End what runs past its deadline, and what waits and can't meet it any more, however soon it began.

        To be called before orders() of the same instant.
        """
        return [self._expire(entry, now) for entry in self._limits.due(now)]

    @property
    def next_expiry(self) -> float | None:
        """When expire() has something to do next; None: never, as things are."""
        return self._limits.next_at

    @property
    def next_wake(self) -> float | None:
        """When expire() or orders() has something to do next, whatever happens until then; None: never."""
        batch = inf if self._batches is None else self._batches.wake
        wake = min(batch, inf if self.next_expiry is None else self.next_expiry)
        return None if wake == inf else wake

    # --- the door

    def join(self, worker: int, info: Ready) -> None:
        """A worker is ready. Its number is new: a dead one's is never used again."""
        self._workers.join(worker, info)
        self._outlook.resize(self._workers.stations.whole)

    def lose(self, worker: int, reason: str, now: float) -> list[Delta]:
        """A worker is gone. What it held is computed anew with its old place; the last Deltas of those that are not."""
        held = [entry for entry in self._entries.values() if entry.worker == worker]
        refused = self._workers.lose(worker, reason)
        if refused is None:
            return []
        if self._batches is not None:
            self._batches.lose(now)
        self._outlook.resize(self._workers.stations.whole)
        for entry in held:
            self._running -= entry.started
            entry.started = False
        self._metrics.failures.retried(len(held) - len(refused))
        return [self._give_up(entry, refusal.code, refusal.error, now) for entry, refusal in refused]

    def expect(self, coming: Sequence[float], spare: int = 0) -> None:
        """Workers are being started, expected to be ready at these instants. spare: those that wait for a place."""
        self._workers.trials.coming = len(coming)
        self._outlook.coming = tuple(coming)
        self._spare = spare

    def pressure(self, now: float) -> Pressure:
        """What there is to do, in one worker's terms. Takes time with what waits."""
        queued, due = self._outlook.demand(max(1, len(self._workers.stations)), now)
        return Pressure(self._sent_of.total(), self.info.seats, queued, due)

    def resize(self, count: int) -> int:
        """So many workers are to stay: those that were about to go may, or one is let go. How many are missing."""
        stations = self._workers.stations
        while len(stations.staying) < count and stations.reopen():
            pass
        if len(stations.staying) > count:
            stations.retire()
        return count - len(stations.staying)

    def vacated(self) -> list[int]:
        """Workers that were to go, and hold nothing any more: they are in no book now."""
        gone = self._workers.vacated()
        if gone:
            self._outlook.resize(self._workers.stations.whole)
        return gone

    def orders(self, now: float, most: int | None = None) -> Orders | None:
        """What the first worker should do next, or None if nothing new.

        most: admit no more than so many (another's batch gate).
        """
        return self.dispatch(now, most).get(FIRST)

    def dispatch(self, now: float, most: int | None = None) -> dict[int, Orders]:
        """What each worker should do next; nothing for those that have nothing new to do."""
        if self._batches is not None:
            waiting = (entry.request for entry in self._entries.values() if not entry.sent)
            most = self._batches.release(waiting, now)
        suspects = self._workers.suspects()
        for entry, station in suspects:
            self._send(entry, station, now)
        admitted = len(suspects) + self._admit_waiting(now, most)
        for seq in self._seats.give_back():
            self._workers.call_back(seq)
        orders = self._workers.orders()
        if self._batches is not None and orders:
            self._batches.send(admitted, now)
        return orders

    def receive(self, report: Report, now: float, worker: int = FIRST) -> list[Delta]:
        """Take a worker's Report; what it adds to each request, in its order.

        One that comes again, or from a worker that is gone, is dropped and its results are counted.
        """
        station = self._workers.stations.get(worker)
        if station is None or not station.is_new(report):
            self._metrics.steps.stale(len(report.results))
            return []
        station.report(report)
        self._outlook.report(report, now)
        if self._batches is not None:
            self._batches.report(report, station.ordered, now)
        if report.step is not None:
            self.steps.append(report.step)
            self._seats.stepped()
            self._metrics.steps.step(report.step)
            self._metrics.load.look(self._outlook.rate, now)
        micros = micros_of(report.step) if self._measures and report.step else {}
        deltas = []
        for result in report.results:
            entry = self._entries.get(result.seq)
            if entry is None or entry.worker != worker or entry.attempt != result.attempt:
                self._metrics.steps.stale(1)
            elif (delta := self._take(entry, result, now, micros.get((result.seq, result.attempt), 0))) is not None:
                deltas.append(delta)
        return deltas

    # --- what others see

    @property
    def has_requests(self) -> bool:
        return bool(self._entries)

    def prospect(
        self,
        need: Need,
        terms: TenantTerms,
        deadlines: Deadlines,
        now: float,
        *,
        priority: int = 0,
    ) -> Prospect | None:
        """What to expect of a request that comes now, in its tenant's turn; None where nothing was measured yet.

        Its outputs are those that its tenant's answers usually have, whatever `need` expects. Takes time with the
        number of tenants that wait and of sequences that run.
        """
        if self._batches is not None:
            waiting = len(self._entries) - self._sent_of.total()
            return self._batches.prospect(waiting, now)
        return self._outlook.prospect(need, terms, deadlines, now, priority=priority, free=self._workers.stations.free)

    def live(self) -> Live:
        """The state now, for gauges: read when asked, so that it cannot freeze."""
        stations = self._workers.stations
        pages = sum(station.gauges.pages_total for station in stations)
        return Live(
            running=self._running,
            waiting=len(self._entries) - self._running,
            kv_usage=sum(station.gauges.pages_used for station in stations) / max(1, pages),
            pages_total=pages,
            workers=len(stations),
            loading=self._workers.trials.coming,
            spare=self._spare,
        )

    def stats(self, now: float) -> Stats:
        """All that was counted, and what is going on."""
        arrival = lambda seq: self._entries[seq].request.arrival  # noqa: E731
        room, outlook = self._seats.room, self._outlook
        return self._metrics.stats(
            replace(self.live(), desired=wanted(self.pressure(now))),
            room,
            arrival=arrival,
            price=outlook.queued,
            capacity=outlook.rate,
            retries_left=self._workers.recovery.budget.left,
            now=now,
        )

    def seq_of(self, request_id: str) -> int | None:
        """The sequence number that plans name a live request by."""
        return self._seq_of.get(request_id)

    def check(self) -> None:
        """Assert that table, ids, waiting room and siblings agree."""
        sent = {seq for seq, entry in self._entries.items() if entry.sent}
        self._workers.check(sent)
        self._outlook.check(self._entries.keys() - sent, sent)
        assert Counter(self._entries[seq].request.tenant for seq in sent) == self._sent_of, "running is miscounted"
        assert {e.request.id: s for s, e in self._entries.items()} == self._seq_of
        self._siblings.check()
        assert sum(entry.started for entry in self._entries.values()) == self._running, "who runs is miscounted"
        outside = len(self._entries) - len(sent)
        assert len(self._seats.room) + len(self._siblings) == outside, "a request waits nowhere, or twice"
        for entry in self._entries.values():
            entry.check()

    # --- inside

    def _check_quarantine(self, requests: Sequence[Request], now: float) -> None:
        for request in requests:
            if left := self._workers.recovery.quarantine.left(request, now):
                raise RequestQuarantined("the same request failed alone a short while ago", left)

    def _entry(self, request: Request) -> Entry:
        """A new record, in no book yet."""
        if request.id in self._seq_of:
            raise InvalidRequest(f"request id {request.id!r} is in use", "request_id")
        terms = request.terms or self.tenants.of(request.tenant)
        follows = request.leader is not None and self._batches is None
        return self._intake.entry(request, terms, self._metrics.tenants.of(request.tenant), follows=follows)

    def _enter(self, entry: Entry, now: float) -> Delta | None:
        """Enter a record in every book; its last Delta if there is nothing to compute, or what was drawn before."""
        request, sampling, seq = entry.request, entry.sampling, entry.ticket.seq
        self._entries[seq] = entry
        self._seq_of[request.id] = seq
        entry.entered, entry.idle_then = now, self._idle_seconds(now)
        self._outlook.wait(entry.ticket, len(request.prompt_ids), now)
        self._limits.set(entry)
        self._metrics.accepted(entry, self._seats.room.billing.price(entry.ticket), now)
        leader = self._entries.get(self._seq_of.get(request.leader or "", 0))
        if leader is not None:
            entry.group = leader.group = leader.group or leader.ticket.seq
        if leader is not None and not leader.outputs and self._batches is None:  # a batch takes all of them along
            self._siblings.wait(seq, leader.ticket.seq)
        else:
            self._seats.add(entry.ticket)
        if sampling.max_tokens == 0 and sampling.prompt_logprobs < 0:
            return self._end(entry, "length", now)
        return entry.go_on() if request.drawn else None

    def _let_in(self, seqs: Sequence[int], *, leads: bool = False) -> None:
        """Siblings go into the waiting room, with their place by arrival: their leader's prompt is computed.

        leads: it is not, so this one computes it, and pays for it.
        """
        for seq in seqs:
            entry = self._entries[seq]
            if leads:
                entry.ticket = replace(entry.ticket, prompt_tokens=len(entry.request.prompt_ids))
            self._seats.add(entry.ticket)

    def _pages(self, seq: int) -> int:
        """Pages of all tokens known and one more."""
        return -(-(self._entries[seq].known + 1) // self.info.page_size)

    def _may(self, ticket: Ticket) -> bool:
        """Whether a tenant may have one more running."""
        most = self._entries[ticket.seq].terms.max_running
        return most is None or self._sent_of[ticket.tenant] < most

    def _admit_waiting(self, now: float, most: int | None) -> int:
        """Send whom the waiting room gives, as far as there is room; how many."""
        count = 0
        while count != most and (ticket := self._seats.next()) is not None:
            entry = self._entries[ticket.seq]
            leader = self._entries.get(entry.group)
            station = self._seats.take(ticket, leader.worker if leader else None)
            self._sent_of[ticket.tenant] += 1
            self._outlook.begin(ticket.seq, now)
            self._send(entry, station, now)
            count += 1
        return count

    def _send(self, entry: Entry, station: Station, now: float) -> None:
        if entry.attempt == 0:
            self._metrics.began(entry, self._idle_seconds(now), now)
        self._workers.send(entry, station)
        self._limits.set(entry)

    def _take(self, entry: Entry, result: Result, now: float, micros: int) -> Delta | None:
        self._count(entry, result, now)
        self._bill(result, micros)
        self._outlook.took(result)
        piece = entry.take(result)
        self._seats.grow(result.seq, ends=entry.ends_next)
        if result.tokens:
            self._limits.set(entry)
            self._let_in(self._siblings.computed(entry.ticket.seq))
        if result.tokens or result.outcome is not None:
            self._workers.recovery.suspects.prove(entry.ticket.seq)
        if piece.stopped is not None:
            return self._end(entry, "stop", now, piece, stop_reason=piece.stopped, held=result)
        if result.outcome == "yielded" or result.outcome == "preempted":  # mypy narrows this form
            self._wait_again(entry, preempted=result.outcome == "preempted")
        elif result.isolated:
            told = f"{result.error}; this request alone fails, and is refused for a while"
            return self._give_up(entry, RequestIsolated.code, told, now, held=result)
        elif result.outcome is not None:
            tail = entry.text.finish()
            whole = Piece(piece.text + tail.text, piece.token_ids + tail.token_ids)
            why = entry.stop_reason(result.stop_id)
            return self._end(entry, result.outcome, now, whole, stop_reason=why, error=result.error, held=result)
        return entry.tell(piece)

    def _count(self, entry: Entry, result: Result, now: float) -> None:
        if not entry.started:
            entry.started = True
            self._running += 1
        if not entry.computed and (result.cached or result.computed):
            entry.cached = result.cached
            self._metrics.found(entry, self._looked_up(entry))
        entry.computed += result.cached + result.computed
        entry.meter.served(uncached=result.computed if entry.first_at is None else 0, outputs=len(result.tokens))
        for _ in result.tokens:
            if entry.first_at is None or entry.last_at is None:
                entry.first_at = now
                entry.meter.first_token.observe(now - entry.request.arrival)
            else:
                entry.meter.gap.observe(now - entry.last_at)
            entry.last_at = now

    def _bill(self, result: Result, micros: int) -> None:
        """Enter in the ledger what was done for a sequence."""
        self._seats.room.spent(
            result.seq,
            cached=result.cached,
            computed=result.computed,
            recomputed=result.recomputed,
            outputs=len(result.tokens),
            micros=micros,
        )

    def _idle_seconds(self, now: float) -> float:
        """How long the worker has been kept idle by choice, over all time."""
        return 0.0 if self._batches is None else self._batches.idle.total(now)

    def _looked_up(self, entry: Entry) -> int:
        """Prompt tokens that the worker looks up in its prefix cache."""
        shares = (self.info.prefix_cache or entry.group != 0) and entry.sampling.prompt_logprobs < 0
        return len(entry.request.prompt_ids) if shares else 0

    def _wait_again(self, entry: Entry, *, preempted: bool) -> None:
        self._running -= entry.started
        entry.sent = entry.started = False
        self._leave_worker(entry)
        self._workers.recovery.wait_again(entry.ticket.seq)
        self._seats.back(entry.ticket)
        self._outlook.back(entry.ticket)
        self._limits.set(entry)
        if preempted:
            self._metrics.steps.preempted(1)
        elif entry.computed:
            entry.meter.yielded()

    def _give_up(self, entry: Entry, code: str, error: str, now: float, held: Result | None = None) -> Delta:
        """It is not tried again."""
        if code == RequestIsolated.code:
            self._workers.recovery.quarantine.put(entry.request, now)
            self._metrics.failures.isolated()
        return self._end(entry, "error", now, entry.text.finish(), error=error, code=code, held=held)

    def _leave_worker(self, entry: Entry, *, cancels: bool = False) -> None:
        self._workers.leave(entry, cancels=cancels)
        tenant = entry.request.tenant
        self._sent_of[tenant] -= 1
        if not self._sent_of[tenant]:
            del self._sent_of[tenant]

    def _expire(self, entry: Entry, now: float) -> Delta:
        late = why_late(entry, now)
        return self._end(entry, "error", now, entry.text.finish(), error=late, code=DeadlineExceeded.code)

    def _end(
        self,
        entry: Entry,
        reason: FinishReason,
        now: float,
        piece: Piece = NOTHING,
        *,
        stop_reason: str | int | None = None,
        error: str | None = None,
        code: str | None = None,
        held: Result | None = None,
    ) -> Delta:
        """Take a request out of every book; `held` is the Result that ended it, if one did."""
        seq, request = entry.ticket.seq, entry.request
        del self._entries[seq], self._seq_of[request.id]
        self._limits.drop(entry)
        natural = held is not None and reason in ("stop", "length")
        self._seats.end(seq, natural=natural)
        self._outlook.end(seq, natural=natural)
        if entry.sent:
            self._leave_worker(entry, cancels=held is None or held.outcome is None)
        self._workers.recovery.end(seq, completed=natural)
        self._let_in(self._siblings.ended(seq), leads=True)
        self._running -= entry.started
        self._metrics.ended(entry, reason, code, now)
        return entry.tell_end(piece, reason, stop_reason, error, code)

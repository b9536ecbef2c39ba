"""The front: the request table and what joins it to a worker's door. Decides who goes next, never how it is computed.

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
from .door import Admit, Gauges, Orders, Ready, Report, Result, StepRecord
from .entry import Entry
from .errors import DeadlineExceeded, FairstepError, InvalidRequest
from .expiries import Expiries
from .fairness.fair_room import FairRoom
from .fairness.ticket import Ticket
from .intake import Intake, Speech
from .metrics import Metrics
from .outlook import Outlook
from .request import Delta, FinishReason, Request
from .seats import Seats
from .siblings import Siblings
from .stats import OTHER, Live, Stats
from .step_shares import micros_of
from .tenants import Tenants, TenantTerms
from .text.stream import Piece

STEPS_KEPT = 1024
NOTHING = Piece("", ())


class Front:
    """Request table, waiting room and the books of one worker.

    tenants: the terms of requests that bring none; see use(). shared: tenants keep to their shares while they run, and
    yield for each other. batches: what waits leaves by these alone.
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
    ) -> None:
        self.info = info
        self.steps: deque[StepRecord] = deque(maxlen=STEPS_KEPT)
        self._metrics = metrics
        self.tenants = tenants or Tenants()
        self._intake = Intake(info, tokenizer, draw_seed)
        self._siblings = Siblings()
        self._batches = batches
        self._seats = Seats(room, info, self._pages, self._may, shared=shared, static=batches is not None)
        self._measures = room.billing.cost.kind == "adaptive"
        self._expiries = Expiries()
        self._outlook = Outlook(room, info, shared=shared)
        self._sent_of: Counter[str] = Counter()  # sequences in the worker, by tenant
        self._entries: dict[int, Entry] = {}  # by sequence number
        self._seq_of: dict[str, int] = {}  # by request id
        self._cancels: list[tuple[int, int]] = []
        self._running = 0  # entries that have started
        self._orders = 0
        self._gauges = Gauges(pages_total=info.pages)

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
        """Let requests wait, all or none of them; the Deltas of those that have ended by now (max_tokens 0).

        A request with a leader waits for that one's first token. Raises InvalidRequest or ContextTooLong if one can
        never be served as asked.
        """
        self._intake.check(requests)
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
        """End every request with an error: the worker is gone."""
        self._gauges = Gauges(pages_total=self.info.pages)
        return [self._end(entry, "error", now, error=message) for entry in list(self._entries.values())]

    def expire(self, now: float) -> list[Delta]:
        """End what runs past its deadline, and what waits and can't meet it any more, however soon it began.

        To be called before orders() of the same instant.
        """
        due = [self._entries[seq] for seq in self._expiries.due(now)]
        for entry in due:
            self._set_expiry(entry)  # steps that were shorter meanwhile may leave it some time
        return [self._expire(entry, now) for entry in due if (at := self._expires_at(entry)) is not None and at <= now]

    @property
    def next_expiry(self) -> float | None:
        """When expire() has something to do next; None: never, as things are."""
        return self._expiries.next_at

    @property
    def next_wake(self) -> float | None:
        """When expire() or orders() has something to do next, whatever happens until then; None: never."""
        batch = inf if self._batches is None else self._batches.wake
        wake = min(batch, inf if self.next_expiry is None else self.next_expiry)
        return None if wake == inf else wake

    # --- the door

    def orders(self, now: float, most: int | None = None) -> Orders | None:
        """What the worker should do next, or None if nothing new.

        most: admit no more than so many (another's batch gate).
        """
        number = self._orders + 1
        if self._batches is not None:
            waiting = (entry.request for entry in self._entries.values() if not entry.sent)
            most = self._batches.release(waiting, now)
        admits = self._admissions(number, now, most)
        returns = tuple((seq, self._entries[seq].attempt) for seq in self._seats.give_back())
        cancels = tuple(self._cancels)
        if not admits and not cancels and not returns:
            return None
        self._orders = number
        self._cancels.clear()
        if self._batches is not None:
            self._batches.send(len(admits), now)
        return Orders(number=number, cancel=cancels, give_back=returns, admit=tuple(admits))

    def receive(self, report: Report, now: float) -> list[Delta]:
        """Take a worker's Report; what it adds to each request, in its order."""
        self._seats.report(report)
        self._outlook.report(report, now)
        self._gauges = report.gauges
        if self._batches is not None:
            self._batches.report(report, self._orders, now)
        if report.step is not None:
            self.steps.append(report.step)
            self._metrics.steps.step(report.step)
            self._metrics.load.look(self._outlook.rate, now)
        micros = micros_of(report.step) if self._measures and report.step else {}
        deltas = []
        for result in report.results:
            entry = self._entries.get(result.seq)
            if entry is None or not entry.sent or entry.attempt != result.attempt:
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
        return self._outlook.prospect(need, terms, deadlines, now, priority=priority, free=self._seats.free)

    def live(self) -> Live:
        """The state now, for gauges: read when asked, so that it cannot freeze."""
        return Live(
            running=self._running,
            waiting=len(self._entries) - self._running,
            kv_usage=self._gauges.pages_used / max(1, self._gauges.pages_total),
            pages_total=self._gauges.pages_total,
        )

    def stats(self, now: float) -> Stats:
        """All that was counted, and what is going on."""
        arrival = lambda seq: self._entries[seq].request.arrival  # noqa: E731
        room, outlook = self._seats.room, self._outlook
        return self._metrics.stats(
            self.live(), room, arrival=arrival, price=outlook.queued, capacity=outlook.rate, now=now
        )

    def seq_of(self, request_id: str) -> int | None:
        """The sequence number that plans name a live request by."""
        return self._seq_of.get(request_id)

    def check(self) -> None:
        """Assert that table, ids, waiting room and siblings agree."""
        sent = {seq for seq, entry in self._entries.items() if entry.sent}
        self._seats.check(sent)
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

    def _entry(self, request: Request) -> Entry:
        """A new record, in no book yet."""
        if request.id in self._seq_of:
            raise InvalidRequest(f"request id {request.id!r} is in use", "request_id")
        terms = request.terms or self.tenants.of(request.tenant)
        follows = request.leader is not None and self._batches is None
        return self._intake.entry(request, terms, self._metrics.tenants.of(request.tenant), follows=follows)

    def _enter(self, entry: Entry, now: float) -> Delta | None:
        """Enter a record in every book; its last Delta if there is nothing to compute."""
        request, sampling, seq = entry.request, entry.sampling, entry.ticket.seq
        self._entries[seq] = entry
        self._seq_of[request.id] = seq
        entry.entered, entry.idle_then = now, self._idle_seconds(now)
        self._outlook.wait(entry.ticket, len(request.prompt_ids), now)
        self._set_expiry(entry)
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
        return None

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

    def _admissions(self, number: int, now: float, most: int | None) -> list[Admit]:
        admits: list[Admit] = []
        while len(admits) != most and (ticket := self._seats.next()) is not None:
            self._seats.take(ticket, number)
            self._sent_of[ticket.tenant] += 1
            self._outlook.begin(ticket.seq, now)
            admits.append(self._admit(self._entries[ticket.seq], now))
        return admits

    def _admit(self, entry: Entry, now: float) -> Admit:
        if entry.attempt == 0:
            self._metrics.began(entry, self._idle_seconds(now), now)
        admit = entry.admit()
        self._set_expiry(entry)
        return admit

    def _take(self, entry: Entry, result: Result, now: float, micros: int) -> Delta | None:
        self._count(entry, result, now)
        self._bill(result, micros)
        self._outlook.took(result)
        piece = entry.take(result)
        self._seats.grow(result.seq, ends=entry.ends_next)
        if result.tokens:
            self._set_expiry(entry)
            self._let_in(self._siblings.computed(entry.ticket.seq))
        if piece.stopped is not None:
            return self._end(entry, "stop", now, piece, stop_reason=piece.stopped, held=result)
        if result.outcome == "yielded" or result.outcome == "preempted":  # mypy narrows this form
            self._wait_again(entry, preempted=result.outcome == "preempted")
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
        self._seats.back(entry.ticket)
        self._outlook.back(entry.ticket)
        self._set_expiry(entry)
        if preempted:
            self._metrics.steps.preempted(1)
        elif entry.computed:
            entry.meter.yielded()

    def _leave_worker(self, entry: Entry) -> None:
        tenant = entry.request.tenant
        self._sent_of[tenant] -= 1
        if not self._sent_of[tenant]:
            del self._sent_of[tenant]

    def _expires_at(self, entry: Entry) -> float | None:
        """When its time is up: where it waits, the last instant at which it could begin and be in time."""
        if entry.expires_at is None or entry.sent:
            return entry.expires_at
        if self._batches is not None and self._batches.least:
            return self._batches.last_start(entry.expires_at)
        least = self._outlook.least(entry.known, entry.least_outputs)
        return entry.last_start(least.first, least.whole)

    def _set_expiry(self, entry: Entry) -> None:
        self._expiries.set(entry.ticket.seq, self._expires_at(entry))

    def _expire(self, entry: Entry, now: float) -> Delta:
        at = entry.expires_at
        after = f"{now - entry.request.arrival:.3f} s after the request"
        if at is not None and now < at:
            error = f"too little time was left {after} for an answer that had not begun"
        else:
            late = entry.request.deadline is not None and now >= entry.request.deadline
            error = f"the deadline passed before {'the whole answer' if late else 'a first token'} had come, {after}"
        return self._end(entry, "error", now, entry.text.finish(), error=error, code=DeadlineExceeded.code)

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
        self._expiries.set(seq, None)
        natural = held is not None and reason in ("stop", "length")
        self._seats.end(seq, natural=natural)
        self._outlook.end(seq, natural=natural)
        if entry.sent:
            self._leave_worker(entry)
            if held is None or held.outcome is None:
                self._cancels.append((seq, entry.attempt))
        self._let_in(self._siblings.ended(seq), leads=True)
        self._running -= entry.started
        self._metrics.ended(entry, reason, code, now)
        return entry.tell_end(piece, reason, stop_reason, error, code)

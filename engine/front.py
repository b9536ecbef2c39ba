"""The front: the request table and what joins it to a worker's door. Decides who goes next, never how it is computed.

Pure: it is handed instants and Reports and gives Orders and Deltas; no torch, HTTP, asyncio or clock. Each request
ends exactly once. Results of an attempt that is no longer current are dropped and counted.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Protocol

from .admission.fit import check_ids
from .door import Admit, Gauges, Orders, Ready, Report, Result, StepRecord
from .entry import Entry
from .errors import DeadlineExceeded, InvalidRequest
from .expiries import Expiries
from .fairness.fair_room import FairRoom
from .fairness.ticket import Ticket
from .metrics import Live, Metrics
from .request import Delta, FinishReason, Request
from .sampling_terms import SamplingTerms, Vocabulary
from .seats import Seats
from .siblings import Siblings
from .step_shares import micros_of
from .tenants import Tenants
from .text.detokenizer import Detokenizer
from .text.stream import Piece, TextStream

STEPS_KEPT = 1024
NOTHING = Piece("", ())


class Speech(Vocabulary, Protocol):
    """What the front needs of a tokenizer."""

    def detokenizer(self, prompt_ids: Sequence[int], *, skip_special: bool) -> Detokenizer: ...


class Front:
    """Request table, waiting room and the books of one worker.

    tenants: the terms of requests that bring none; may be replaced at any time, for requests to come. shared: tenants
    keep to their shares while they run, and yield for each other.
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
    ) -> None:
        self.info = info
        self.tenants = tenants or Tenants()
        self.steps: deque[StepRecord] = deque(maxlen=STEPS_KEPT)
        self._tokenizer = tokenizer
        self._metrics = metrics
        self._terms = SamplingTerms(info, tokenizer, draw_seed)
        self._siblings = Siblings()
        self._seats = Seats(room, info, self._pages, self._may, shared=shared)
        self._measures = room.billing.cost.kind == "adaptive"
        self._expiries = Expiries()
        self._sent_of: Counter[str] = Counter()  # sequences in the worker, by tenant
        self._entries: dict[int, Entry] = {}  # by sequence number
        self._seq_of: dict[str, int] = {}  # by request id
        self._cancels: list[tuple[int, int]] = []
        self._seqs = 0
        self._orders = 0
        self._gauges = Gauges(pages_total=info.pages)

    # --- what callers do

    def submit(self, *requests: Request, now: float) -> list[Delta]:
        """Let requests wait, all or none of them; the Deltas of those that have ended by now (max_tokens 0).

        A request with a leader waits for that one's first token. Raises InvalidRequest or ContextTooLong if one can
        never be served as asked.
        """
        for prompt_ids in {id(request.prompt_ids): request.prompt_ids for request in requests}.values():
            check_ids(prompt_ids, self.info.vocab_size)  # once for siblings
        entries = [self._entry(request) for request in requests]
        ended = [self._enter(entry, now) for entry in entries]
        return [delta for delta in ended if delta is not None]

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
        """End what is past its deadline, waiting or running: to be called before orders() of the same instant."""
        return [self._expire(self._entries[seq], now) for seq in self._expiries.due(now)]

    @property
    def next_expiry(self) -> float | None:
        """When expire() has something to do next; None: never, as things are."""
        return self._expiries.next_at

    # --- the door

    def orders(self, now: float, most: int | None = None) -> Orders | None:
        """What the worker should do next, or None if nothing new. most: admit no more than so many (a batch gate)."""
        number = self._orders + 1
        admits = self._admissions(number, now, most)
        returns = tuple((seq, self._entries[seq].attempt) for seq in self._seats.give_back())
        cancels = tuple(self._cancels)
        if not admits and not cancels and not returns:
            return None
        self._orders = number
        self._cancels.clear()
        return Orders(number=number, cancel=cancels, give_back=returns, admit=tuple(admits))

    def receive(self, report: Report, now: float) -> list[Delta]:
        """Take a worker's Report; what it adds to each request, in its order."""
        self._seats.report(report)
        self._gauges = report.gauges
        if report.step is not None:
            self.steps.append(report.step)
            self._metrics.step(report.step)
        micros = micros_of(report.step) if self._measures and report.step else {}
        deltas = []
        for result in report.results:
            entry = self._entries.get(result.seq)
            if entry is None or not entry.sent or entry.attempt != result.attempt:
                self._metrics.stale(1)
            elif (delta := self._take(entry, result, now, micros.get((result.seq, result.attempt), 0))) is not None:
                deltas.append(delta)
        return deltas

    # --- what others see

    @property
    def has_requests(self) -> bool:
        return bool(self._entries)

    def live(self) -> Live:
        """The state now, for gauges: read when asked, so that it cannot freeze."""
        running = sum(entry.started for entry in self._entries.values())
        return Live(
            running=running,
            waiting=len(self._entries) - running,
            kv_usage=self._gauges.pages_used / max(1, self._gauges.pages_total),
            pages_total=self._gauges.pages_total,
        )

    def seq_of(self, request_id: str) -> int | None:
        """The sequence number that plans name a live request by."""
        return self._seq_of.get(request_id)

    def check(self) -> None:
        """Assert that table, ids, waiting room and siblings agree."""
        sent = {seq for seq, entry in self._entries.items() if entry.sent}
        self._seats.check(sent)
        assert Counter(self._entries[seq].request.tenant for seq in sent) == self._sent_of, "running is miscounted"
        assert {e.request.id: s for s, e in self._entries.items()} == self._seq_of
        self._siblings.check()
        outside = len(self._entries) - len(sent)
        assert len(self._seats.room) + len(self._siblings) == outside, "a request waits nowhere, or twice"
        for entry in self._entries.values():
            entry.check()

    # --- inside

    def _entry(self, request: Request) -> Entry:
        """A new record, in no book yet."""
        if request.id in self._seq_of:
            raise InvalidRequest(f"request id {request.id!r} is in use", "request_id")
        params = request.params
        sampling, special_stops = self._terms.sampling(request), self._terms.special_stops(params)
        text = TextStream(
            self._tokenizer.detokenizer(request.prompt_ids, skip_special=params.skip_special_tokens),
            tuple(params.stop),
            params.min_tokens,
            include_stop=params.include_stop,
            special_stops=special_stops,
        )
        self._seqs += 1
        terms = request.terms or self.tenants.of(request.tenant)
        deadlines = [at for at in (request.deadline, request.ttft_deadline) if at is not None]
        ticket = Ticket(
            self._seqs,
            self._seqs,
            request.tenant,
            request.priority,
            min(deadlines, default=None),
            tier=terms.tier,
            weight=terms.weight,
            # siblings read their leader's prompt: one token stands for that
            prompt_tokens=len(request.prompt_ids) if request.leader is None else 1,
            max_tokens=sampling.max_tokens,
        )
        return Entry(request, terms, ticket, sampling, text, special_stops)

    def _enter(self, entry: Entry, now: float) -> Delta | None:
        """Enter a record in every book; its last Delta if there is nothing to compute."""
        request, sampling, seq = entry.request, entry.sampling, entry.ticket.seq
        self._entries[seq] = entry
        self._seq_of[request.id] = seq
        self._expiries.set(seq, entry.expires_at)
        self._metrics.accepted(len(request.prompt_ids), sampling.max_tokens)
        leader = self._entries.get(self._seq_of.get(request.leader or "", 0))
        if leader is not None:
            entry.group = leader.group = leader.group or leader.ticket.seq
        if leader is not None and not leader.outputs:
            self._siblings.wait(seq, leader.ticket.seq)
        else:
            self._seats.add(entry.ticket)
        if sampling.max_tokens == 0 and sampling.prompt_logprobs < 0:
            return self._end(entry, "length", now)
        return None

    def _let_in(self, seqs: Sequence[int]) -> None:
        """Siblings whose leader's prompt is computed go into the waiting room, with their place by arrival."""
        for seq in seqs:
            self._seats.add(self._entries[seq].ticket)

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
            admits.append(self._admit(self._entries[ticket.seq], now))
        return admits

    def _admit(self, entry: Entry, now: float) -> Admit:
        if entry.attempt == 0:
            self._metrics.queued(now - entry.request.arrival)
        return entry.admit()

    def _take(self, entry: Entry, result: Result, now: float, micros: int) -> Delta | None:
        self._count(entry, result, now)
        self._bill(result, micros)
        piece = entry.take(result)
        self._seats.grow(result.seq)
        if result.tokens:
            self._expiries.set(result.seq, entry.expires_at)
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
            if entry.attempt == 1:
                entry.cached = result.cached
                self._metrics.cached(result.cached, self._looked_up(entry))
        for _ in result.tokens:
            if entry.first_at is None or entry.last_at is None:
                entry.first_at = now
                self._metrics.first_token(now - entry.request.arrival)
            else:
                self._metrics.gap(now - entry.last_at)
            entry.last_at = now
        self._metrics.tokens(len(result.tokens))

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

    def _looked_up(self, entry: Entry) -> int:
        """Prompt tokens that the worker looks up in its prefix cache."""
        shares = (self.info.prefix_cache or entry.group != 0) and entry.sampling.prompt_logprobs < 0
        return len(entry.request.prompt_ids) if shares else 0

    def _wait_again(self, entry: Entry, *, preempted: bool) -> None:
        entry.sent = entry.started = False
        self._leave_worker(entry)
        self._seats.back(entry.ticket)
        if preempted:
            self._metrics.preempted(1)

    def _leave_worker(self, entry: Entry) -> None:
        tenant = entry.request.tenant
        self._sent_of[tenant] -= 1
        if not self._sent_of[tenant]:
            del self._sent_of[tenant]

    def _expire(self, entry: Entry, now: float) -> Delta:
        late = entry.request.deadline is not None and now >= entry.request.deadline
        what = "the whole answer" if late else "a first token"
        error = f"the deadline passed before {what} had come, {now - entry.request.arrival:.3f} s after the request"
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
        self._seats.end(seq, natural=held is not None and reason in ("stop", "length"))
        if entry.sent:
            self._leave_worker(entry)
            if held is None or held.outcome is None:
                self._cancels.append((seq, entry.attempt))
        self._let_in(self._siblings.ended(seq))
        usage = entry.usage
        self._metrics.finished(
            reason,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            seconds=now - request.arrival,
            decode_seconds=(entry.last_at or 0.0) - (entry.first_at or 0.0),
        )
        return entry.tell_end(piece, reason, stop_reason, error, code)

"""The front: the request table and what joins it to a worker's door. Decides who goes next, never how it is computed.

Pure: it is handed instants and Reports and gives Orders and Deltas; no torch, HTTP, asyncio or clock. Each request
ends exactly once. Results of an attempt that is no longer current are dropped and counted.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from .admission.fit import answer_room, check_ids
from .door import Admit, Gauges, Orders, Ready, Report, Result, Sampling, StepRecord
from .errors import InvalidRequest
from .fairness.waiting_room import Ticket, WaitingRoom
from .headroom import RoomLeft
from .metrics import Live, Metrics
from .request import SEED_BITS, Delta, FinishReason, Request, SamplingParams, Usage
from .text.detokenizer import Detokenizer
from .text.stream import TextStream

STEPS_KEPT = 1024


class Detokenizing(Protocol):
    """What the front needs of a tokenizer."""

    def detokenizer(self, prompt_ids: Sequence[int]) -> Detokenizer: ...

    def special_id(self, text: str) -> int | None: ...


@dataclass(slots=True)
class _Entry:
    """A request's progress as the front sees it. `attempt` 0: never sent; `sent`: the worker holds it now.

    special_stops: stop strings that are special tokens, by id; those never show in text, so the worker ends on the id.
    """

    request: Request
    ticket: Ticket
    sampling: Sampling
    text: TextStream
    special_stops: dict[int, str]
    attempt: int = 0
    sent: bool = False
    started: bool = False
    outputs: list[int] = field(default_factory=list)
    cached: int = 0
    first_at: float | None = None
    last_at: float | None = None

    @property
    def known(self) -> int:
        return len(self.request.prompt_ids) + len(self.outputs)


class Front:
    """Request table, waiting room and the books of one worker."""

    def __init__(
        self,
        info: Ready,
        tokenizer: Detokenizing,
        room: WaitingRoom,
        metrics: Metrics,
        draw_seed: Callable[[], int],
    ) -> None:
        self.info = info
        self.steps: deque[StepRecord] = deque(maxlen=STEPS_KEPT)
        self._tokenizer = tokenizer
        self._room = room
        self._metrics = metrics
        self._draw_seed = draw_seed
        self._room_left = RoomLeft(info.seats, info.pages)
        self._entries: dict[int, _Entry] = {}  # by sequence number
        self._seq_of: dict[str, int] = {}  # by request id
        self._cancels: list[tuple[int, int]] = []
        self._seqs = 0
        self._orders = 0
        self._gauges = Gauges(pages_total=info.pages)

    # --- what callers do

    def submit(self, request: Request) -> None:
        """Let a request wait. Raises InvalidRequest or ContextTooLong if it can never be served as asked."""
        if request.id in self._seq_of:
            raise InvalidRequest(f"request id {request.id!r} is in use", "request_id")
        check_ids(request.prompt_ids, self.info.vocab_size)
        check_stop_ids(request.params, self.info.vocab_size)
        special_stops = self._special_stops(request.params)
        sampling = self._sampling(request, tuple(special_stops))
        text = TextStream(
            self._tokenizer.detokenizer(request.prompt_ids), tuple(request.params.stop), request.params.min_tokens
        )
        self._seqs += 1
        ticket = Ticket(self._seqs, self._seqs, request.tenant, request.priority, request.deadline)
        self._entries[ticket.seq] = _Entry(request, ticket, sampling, text, special_stops)
        self._seq_of[request.id] = ticket.seq
        self._room.add(ticket)
        self._metrics.accepted(len(request.prompt_ids), sampling.max_tokens)

    def cancel(self, request_id: str, now: float) -> Delta | None:
        """End a request wherever it is; its last Delta, or None if it has ended already."""
        entry = self._entries.get(self._seq_of.get(request_id, 0))
        if entry is None:
            return None
        tail = entry.text.finish()
        return self._end(entry, "cancelled", now, text=tail.text, token_ids=tail.token_ids)

    def fail_all(self, message: str, now: float) -> list[Delta]:
        """End every request with an error: the worker is gone."""
        self._gauges = Gauges(pages_total=self.info.pages)
        return [self._end(entry, "error", now, error=message) for entry in list(self._entries.values())]

    # --- the door

    def orders(self, now: float) -> Orders | None:
        """What the worker should do next, or None if nothing new."""
        number = self._orders + 1
        admits = self._admissions(number, now)
        cancels = tuple(self._cancels)
        if not admits and not cancels:
            return None
        self._orders = number
        self._cancels.clear()
        return Orders(number=number, cancel=cancels, admit=tuple(admits))

    def receive(self, report: Report, now: float) -> list[Delta]:
        """Take a worker's Report; what it adds to each request, in its order."""
        self._room_left.report(report.orders, report.headroom)
        self._gauges = report.gauges
        if report.step is not None:
            self.steps.append(report.step)
            self._metrics.step(report.step)
        deltas = []
        for result in report.results:
            entry = self._entries.get(result.seq)
            if entry is None or not entry.sent or entry.attempt != result.attempt:
                self._metrics.stale(1)
            elif (delta := self._take(entry, result, now)) is not None:
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
        """Assert that table, ids and waiting room agree."""
        self._room.check()
        assert {e.request.id: s for s, e in self._entries.items()} == self._seq_of
        assert len(self._room) == sum(not entry.sent for entry in self._entries.values())

    # --- inside

    def _special_stops(self, params: SamplingParams) -> dict[int, str]:
        ids = {text: self._tokenizer.special_id(text) for text in params.stop}
        return {token: text for text, token in ids.items() if token is not None}

    def _sampling(self, request: Request, special_stops: tuple[int, ...]) -> Sampling:
        params = request.params.resolved(self.info.defaults)
        assert params.temperature is not None and params.top_k is not None
        assert params.top_p is not None and params.min_p is not None
        room = answer_room(len(request.prompt_ids), params.max_tokens, self.info.context)
        eos = () if params.ignore_eos else self.info.eos_ids
        seed = self._draw_seed() if params.seed is None else params.seed
        return Sampling(
            temperature=float(params.temperature),
            top_k=max(0, int(params.top_k)),
            top_p=float(params.top_p),
            min_p=float(params.min_p),
            seed=seed % 2**SEED_BITS,
            max_tokens=room,
            min_tokens=params.min_tokens,
            stop_ids=tuple(dict.fromkeys((*eos, *params.stop_token_ids, *special_stops))),
        )

    def _admissions(self, number: int, now: float) -> list[Admit]:
        admits: list[Admit] = []
        while (ticket := self._room.head()) is not None:
            entry = self._entries[ticket.seq]
            pages = -(-(entry.known + 1) // self.info.page_size)
            if not self._room_left.can_send(pages):
                break
            self._room.take()
            self._room_left.send(number, pages)
            admits.append(self._admit(entry, now))
        return admits

    def _admit(self, entry: _Entry, now: float) -> Admit:
        if entry.attempt == 0:
            self._metrics.queued(now - entry.request.arrival)
        entry.attempt += 1
        entry.sent = True
        request = entry.request
        return Admit(
            seq=entry.ticket.seq,
            attempt=entry.attempt,
            tokens=request.prompt_ids + tuple(entry.outputs),
            prompt_len=len(request.prompt_ids),
            sampling=entry.sampling,
            order=entry.ticket.order,
            tenant=request.tenant,
            priority=request.priority,
            salt=request.tenant,
        )

    def _take(self, entry: _Entry, result: Result, now: float) -> Delta | None:
        self._count(entry, result, now)
        entry.outputs.extend(result.tokens)
        piece = entry.text.push(result.tokens, result.stop_id)
        if piece.stopped is not None:
            return self._end(entry, "stop", now, piece.text, piece.token_ids, stop_reason=piece.stopped, held=result)
        if result.outcome == "yielded" or result.outcome == "preempted":  # mypy narrows this form
            self._wait_again(entry, preempted=result.outcome == "preempted")
        elif result.outcome is not None:
            tail = entry.text.finish()
            text, ids = piece.text + tail.text, piece.token_ids + tail.token_ids
            why = self._stop_reason(entry, result)
            return self._end(entry, result.outcome, now, text, ids, stop_reason=why, error=result.error, held=result)
        if not piece.text and not piece.token_ids:
            return None
        return Delta(entry.request.id, piece.text, piece.token_ids)

    def _stop_reason(self, entry: _Entry, result: Result) -> str | int | None:
        """A stop that the caller named is a reason worth telling; the model's own end is not (as in vLLM)."""
        if result.stop_id in entry.special_stops:
            return entry.special_stops[result.stop_id]
        return result.stop_id if result.stop_id in entry.request.params.stop_token_ids else None

    def _count(self, entry: _Entry, result: Result, now: float) -> None:
        if not entry.started:
            entry.started = True
            if entry.attempt == 1:
                entry.cached = result.cached
                self._metrics.cached(result.cached, len(entry.request.prompt_ids) if self.info.prefix_cache else 0)
        for _ in result.tokens:
            if entry.first_at is None or entry.last_at is None:
                entry.first_at = now
                self._metrics.first_token(now - entry.request.arrival)
            else:
                self._metrics.gap(now - entry.last_at)
            entry.last_at = now
        self._metrics.tokens(len(result.tokens))

    def _wait_again(self, entry: _Entry, *, preempted: bool) -> None:
        entry.sent = entry.started = False
        self._room.add(entry.ticket)
        if preempted:
            self._metrics.preempted(1)

    def _end(
        self,
        entry: _Entry,
        reason: FinishReason,
        now: float,
        text: str = "",
        token_ids: tuple[int, ...] = (),
        *,
        stop_reason: str | int | None = None,
        error: str | None = None,
        held: Result | None = None,
    ) -> Delta:
        """Take a request out of every book; `held` is the Result that ended it, if one did."""
        seq, request = entry.ticket.seq, entry.request
        del self._entries[seq], self._seq_of[request.id]
        if not entry.sent:
            self._room.remove(seq)
        elif held is None or held.outcome is None:
            self._cancels.append((seq, entry.attempt))
        usage = Usage(len(request.prompt_ids), entry.text.count, entry.cached)
        self._metrics.finished(
            reason,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            seconds=now - request.arrival,
            decode_seconds=(entry.last_at or 0.0) - (entry.first_at or 0.0),
        )
        return Delta(request.id, text, token_ids, reason, stop_reason, usage, error)


def check_stop_ids(params: SamplingParams, vocab_size: int) -> None:
    """Refuse stop ids outside the vocabulary: they would never be drawn."""
    for token in params.stop_token_ids:
        if token >= vocab_size:
            raise InvalidRequest(f"stop_token_ids holds {token}; ids go from 0 to {vocab_size - 1}", "stop_token_ids")

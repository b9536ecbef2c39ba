"""The front's record of one request: what was sent, what came back, and what of that has been told. Knows no policy.

Ids, text and log probabilities leave together: an id waits with its text, and its log probabilities with it.
"""

from collections import deque
from dataclasses import dataclass, field

from msgspec.structs import replace

from .door import Admit, Result, Sampling, TokenLogprobs
from .fairness.ticket import Ticket
from .meters.tenants import TenantMeter
from .request import Delta, FinishReason, Request, Usage
from .tenants import TenantTerms
from .text.stream import Piece, TextStream


@dataclass(slots=True)
class Entry:
    """A request's progress as the front sees it. `attempt` 0: never sent; `sent`: it has a seat, or was sent for one.

    worker: the number of the worker that holds it; None: none does, also where its worker died and it is to be tried
    again, and keeps its seat in the books.
    special_stops: stop strings that are special tokens, by id. group: the leader's sequence number, for siblings and
    the leader alike; 0: no siblings. started: this attempt's first tokens are computed.
    meter: where its tenant is counted. entered: when it began to wait, and idle_then: how long the worker had been idle
    by then, over all time. computed: tokens that were found or computed for the first time.
    logprobs: those of tokens not told yet. prompt_logprobs: those that have come, the first of which is None.
    """

    request: Request
    terms: TenantTerms
    ticket: Ticket
    sampling: Sampling
    text: TextStream
    special_stops: dict[int, str]
    meter: TenantMeter
    group: int = 0
    attempt: int = 0
    sent: bool = False
    worker: int | None = None
    started: bool = False
    outputs: list[int] = field(default_factory=list)
    cached: int = 0
    computed: int = 0
    entered: float = 0.0
    idle_then: float = 0.0
    first_at: float | None = None
    last_at: float | None = None
    logprobs: deque[TokenLogprobs] = field(default_factory=deque)
    prompt_logprobs: list[TokenLogprobs | None] = field(default_factory=lambda: [None])
    prompt_told: bool = False

    @property
    def known(self) -> int:
        """Tokens of prompt and outputs."""
        return len(self.request.prompt_ids) + len(self.outputs)

    @property
    def expires_at(self) -> float | None:
        """The next instant at which its time is up."""
        if self.request.deadline is None and self.request.ttft_deadline is None:  # as for most, with every token
            return None
        silent = self.request.ttft_deadline if self.first_at is None else None
        return min((at for at in (self.request.deadline, silent) if at is not None), default=None)

    @property
    def ends_next(self) -> bool:
        """Whether its next token is its last for certain."""
        return len(self.outputs) + 1 >= self.sampling.max_tokens

    @property
    def least_outputs(self) -> int:
        """Tokens that are still to be drawn before it can end, one at least."""
        return max(1, self.request.params.least_tokens(self.sampling.max_tokens) - len(self.outputs))

    def last_start(self, to_first: float, to_whole: float) -> float | None:
        """The last instant at which it can begin and be in time, if it takes so many seconds from then on."""
        silent = self.request.ttft_deadline if self.first_at is None else None
        pairs = ((silent, to_first), (self.request.deadline, to_whole))
        return min((at - seconds for at, seconds in pairs if at is not None), default=None)

    @property
    def usage(self) -> Usage:
        return Usage(len(self.request.prompt_ids), self.text.count, self.cached)

    def admit(self, worker: int) -> Admit:
        """The next attempt, in a worker. It asks for the prompt's log probabilities only while some are missing."""
        self.attempt += 1
        self.sent, self.worker = True, worker
        request = self.request
        return Admit(
            seq=self.ticket.seq,
            attempt=self.attempt,
            tokens=request.prompt_ids + tuple(self.outputs),
            prompt_len=len(request.prompt_ids),
            sampling=replace(self.sampling, prompt_logprobs=-1) if self._prompt_is_complete else self.sampling,
            order=self.ticket.order,
            tenant=request.tenant,
            tier=self.ticket.tier,
            weight=self.ticket.weight,
            priority=request.priority,
            salt=self.terms.salt,
            group=self.group,
        )

    def go_on(self) -> Delta | None:
        """What was drawn before is told again."""
        self.outputs.extend(self.request.drawn)
        return self.tell(self.text.push(self.request.drawn))

    def take(self, result: Result) -> Piece:
        """Enter what a Result brings; the text that can be shown by now."""
        self.outputs.extend(result.tokens)
        self.logprobs.extend(result.logprobs)
        if result.prompt_logprobs:
            again = len(self.prompt_logprobs) - result.prompt_from  # a later attempt tells some again
            assert again >= 0, f"{self.request.id}: log probabilities of prompt tokens were left out"
            self.prompt_logprobs.extend(result.prompt_logprobs[again:])
        return self.text.push(result.tokens, result.stop_id)

    def tell(self, piece: Piece) -> Delta | None:
        """A piece as a Delta, or None if there is nothing to tell."""
        prompt = self._prompt_to_tell()
        if not piece.text and not piece.token_ids and not prompt:
            return None
        return Delta(self.request.id, piece.text, piece.token_ids, logprobs=self._leave(piece), prompt_logprobs=prompt)

    def tell_end(
        self,
        piece: Piece,
        reason: FinishReason,
        stop_reason: str | int | None = None,
        error: str | None = None,
        code: str | None = None,
    ) -> Delta:
        """The last Delta."""
        return Delta(
            self.request.id,
            piece.text,
            piece.token_ids,
            reason,
            stop_reason,
            self.usage,
            error,
            self._leave(piece),
            self._prompt_to_tell(),
            code,
        )

    def stop_reason(self, stop_id: int | None) -> str | int | None:
        """A stop that the caller named is a reason worth telling; the model's own end is not (as in vLLM)."""
        if stop_id in self.special_stops:
            return self.special_stops[stop_id]
        return stop_id if stop_id in self.request.params.stop_token_ids else None

    def check(self) -> None:
        """Assert that what was asked for has come, for each token."""
        if self.sampling.logprobs >= 0:
            assert len(self.logprobs) == self.text.held, f"{self.request.id}: not one log probability for each token"
        assert len(self.prompt_logprobs) <= len(self.request.prompt_ids), f"{self.request.id}: more than the prompt"

    @property
    def _prompt_is_complete(self) -> bool:
        """Whether all log probabilities of the prompt have come."""
        return len(self.prompt_logprobs) == len(self.request.prompt_ids)

    def _prompt_to_tell(self) -> tuple[TokenLogprobs | None, ...]:
        """The prompt's log probabilities, once, when all have come."""
        if self.prompt_told or self.sampling.prompt_logprobs < 0 or not self._prompt_is_complete:
            return ()
        self.prompt_told = True
        return tuple(self.prompt_logprobs)

    def _leave(self, piece: Piece) -> tuple[TokenLogprobs, ...]:
        """The log probabilities of the tokens that leave now."""
        if self.sampling.logprobs < 0:
            return ()
        return tuple(self.logprobs.popleft() for _ in piece.token_ids)

"""From a Request to the front's record of it: ids checked, params read for this model, a ticket for the waiting room.

Pure. Enters nothing in any book.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from .admission.fit import check_ids
from .door import Ready
from .entry import Entry
from .errors import InvalidRequest
from .fairness.ticket import Ticket
from .meters.tenants import TenantMeter
from .request import Request
from .sampling_terms import SamplingTerms, Vocabulary
from .tenants import TenantTerms
from .text.detokenizer import Detokenizer
from .text.stream import TextStream


class Speech(Vocabulary, Protocol):
    """What the front needs of a tokenizer."""

    def detokenizer(self, prompt_ids: Sequence[int], *, skip_special: bool) -> Detokenizer: ...


class Intake:
    """Owner of sequence numbers."""

    def __init__(self, info: Ready, tokenizer: Speech, draw_seed: Callable[[], int]) -> None:
        self._info = info
        self._tokenizer = tokenizer
        self._sampling = SamplingTerms(info, tokenizer, draw_seed)
        self._seqs = 0

    def check(self, requests: Sequence[Request]) -> None:
        """Raise InvalidRequest if a prompt's ids are not this model's. Siblings' prompt is looked at once."""
        for prompt_ids in {id(request.prompt_ids): request.prompt_ids for request in requests}.values():
            check_ids(prompt_ids, self._info.vocab_size)

    def entry(self, request: Request, terms: TenantTerms, meter: TenantMeter, *, follows: bool) -> Entry:
        """A new record. follows: it reads its leader's prompt. Raises InvalidRequest or ContextTooLong."""
        params = request.params
        if request.drawn and (params.logprobs is not None or params.prompt_logprobs is not None):
            raise InvalidRequest("an answer that goes on has no log probabilities", "logprobs")
        sampling, special_stops = self._sampling.sampling(request), self._sampling.special_stops(params)
        text = TextStream(
            self._tokenizer.detokenizer(request.prompt_ids, skip_special=params.skip_special_tokens),
            tuple(params.stop),
            params.min_tokens,
            include_stop=params.include_stop,
            special_stops=special_stops,
        )
        ticket = self._ticket(request, terms, sampling.max_tokens, follows=follows)
        return Entry(request, terms, ticket, sampling, text, special_stops, meter)

    def _ticket(self, request: Request, terms: TenantTerms, max_tokens: int, *, follows: bool) -> Ticket:
        self._seqs += 1
        deadlines = [at for at in (request.deadline, request.ttft_deadline) if at is not None]
        return Ticket(
            self._seqs,
            self._seqs,
            request.tenant,
            request.priority,
            min(deadlines, default=None),
            tier=terms.tier,
            weight=terms.weight,
            # one token stands for the leader's
            prompt_tokens=1 if follows else len(request.prompt_ids) + len(request.drawn),
            max_tokens=max_tokens - len(request.drawn),
        )

"""What a caller asks and what it gets back, as frozen values. Knows no torch, HTTP, tokenizer or clock.

A Request never changes after submit; progress lives in the front's table and in the worker's Sequence.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypedDict
from uuid import uuid4

import msgspec

from . import checks
from .door import TokenLogprobs
from .errors import InvalidParameter
from .tenants import ANONYMOUS, TenantTerms

FinishReason = Literal["stop", "length", "cancelled", "error"]

SEED_BITS = 64
SEED_STEP = 0x9E3779B97F4A7C15  # between siblings' seeds
MAX_STOPS = 16
MAX_STOP_CHARS = 1024
MAX_BIASES = 1024
MAX_BAD_WORDS = 128
MAX_BAD_WORD_CHARS = 128
MAX_LOGPROBS = 20
MAX_SIBLINGS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How tokens are drawn and when a sequence ends.

    A field left None takes the model's own default (generation_config.json), then the neutral value
    (temperature 1, top_k 0, top_p 1, min_p 0, repetition_penalty 1). Raises InvalidParameter naming the field.

    temperature: 0 is greedy, whatever top_k, top_p, min_p and seed say; from 0 to 100.
    top_k: keep the k likeliest tokens; 0 or -1 keeps all.
    top_p: keep the smallest set with at least this probability, in (0, 1].
    min_p: drop tokens below min_p times the likeliest one's probability, in [0, 1].
    seed: the same request with the same seed gives the same tokens; None draws a fresh seed.
    max_tokens: most output tokens; None means up to the end of the context.
    min_tokens: end-of-sequence and stop ids cannot be drawn, nor stop strings match, before this many.
    stop: texts (or one text) that end the answer; without include_stop they are never shown, nor is any part of them.
    At most 16 of at most 1,024 characters. Kept as a tuple.
    stop_token_ids: ids that end the answer. Kept as a tuple.
    ignore_eos: the model's end-of-sequence ids do not end the answer.
    repetition_penalty: above 1 makes tokens of prompt and answer less likely; from 0.01 to 100, 1 is off.
    presence_penalty, frequency_penalty: taken off the logits of tokens that the answer holds, once and for each time;
    from -2 to 2.
    logit_bias: what to add to the logits of some ids, at most 1,024, from -100 to 100 each. Kept as a tuple of pairs.
    allowed_token_ids: nothing but these is drawn; None: anything. Kept as a tuple.
    bad_words: texts that are not written; each is a word or a few, as the tokenizer splits it. At most 128 of at most
    128 characters. Kept as a tuple.
    logprobs: how many of the likeliest tokens, at most 20, to report beside each token, with their log probabilities
    (of the model's own distribution, before all of the above); 0 the token's alone; None nothing. prompt_logprobs: the
    same for the prompt's tokens.
    skip_special_tokens: special tokens have no text.
    include_stop: the stop string or stop token that ended the answer stays in its text.
    max_tokens 0 draws nothing: with prompt_logprobs the prompt alone is computed.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    min_tokens: int = 0
    stop: Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    repetition_penalty: float | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | Iterable[tuple[int, float]] = ()
    allowed_token_ids: Sequence[int] | None = None
    bad_words: Sequence[str] = ()
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    skip_special_tokens: bool = True
    include_stop: bool = False

    def __post_init__(self) -> None:
        self._check_drawing()
        self._check_ending()
        self._check_telling()

    def _check_drawing(self) -> None:
        checks.number("temperature", self.temperature, 0.0, 100.0)
        checks.number("top_p", self.top_p, 0.0, 1.0, above_low=True)
        checks.number("min_p", self.min_p, 0.0, 1.0)
        checks.integer("top_k", self.top_k, -1, checks.LARGEST)
        checks.integer("seed", self.seed, -(2 ** (SEED_BITS - 1)), 2**SEED_BITS - 1)
        checks.number("repetition_penalty", self.repetition_penalty, 0.01, 100.0)
        checks.number("presence_penalty", self.presence_penalty, -2.0, 2.0)
        checks.number("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        self._keep("logit_bias", checks.biases("logit_bias", self.logit_bias, most=MAX_BIASES, largest=100.0))
        words = checks.texts("bad_words", self.bad_words, most=MAX_BAD_WORDS, longest=MAX_BAD_WORD_CHARS)
        self._keep("bad_words", words)
        if self.allowed_token_ids is not None:
            self._keep("allowed_token_ids", checks.ids("allowed_token_ids", self.allowed_token_ids))
            if not self.allowed_token_ids:
                raise InvalidParameter("allowed_token_ids must hold at least one id", "allowed_token_ids")

    def _check_ending(self) -> None:
        checks.integer("max_tokens", self.max_tokens, 0, None)
        checks.integer("min_tokens", self.min_tokens, 0, checks.LARGEST)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidParameter(
                f"min_tokens ({self.min_tokens}) must not exceed max_tokens ({self.max_tokens})", "min_tokens"
            )
        self._keep("stop", checks.texts("stop", self.stop, most=MAX_STOPS, longest=MAX_STOP_CHARS))
        self._keep("stop_token_ids", checks.ids("stop_token_ids", self.stop_token_ids))
        checks.flag("ignore_eos", self.ignore_eos)

    def _check_telling(self) -> None:
        checks.integer("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        checks.integer("prompt_logprobs", self.prompt_logprobs, 0, MAX_LOGPROBS)
        checks.flag("skip_special_tokens", self.skip_special_tokens)
        checks.flag("include_stop", self.include_stop)

    def _keep(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def least_tokens(self, most: int) -> int:
        """The fewest output tokens of an answer that may have `most`, one at least."""
        ends = not self.ignore_eos or self.stop_token_ids or self.stop
        return max(1, min(most, self.min_tokens) if ends else most)

    @property
    def biases(self) -> tuple[tuple[int, float], ...]:
        """logit_bias as it is kept."""
        assert isinstance(self.logit_bias, tuple)
        return self.logit_bias

    def resolved(self, defaults: Mapping[str, float]) -> "SamplingParams":
        """Fill temperature, top_k, top_p, min_p and repetition_penalty where None: `defaults`, then neutral values."""
        neutral = {"temperature": 1.0, "top_k": 0.0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
        values = {**neutral, **{name: defaults[name] for name in neutral if name in defaults}}
        return replace(
            self,
            temperature=values["temperature"] if self.temperature is None else self.temperature,
            top_k=int(values["top_k"]) if self.top_k is None else self.top_k,
            top_p=values["top_p"] if self.top_p is None else self.top_p,
            min_p=values["min_p"] if self.min_p is None else self.min_p,
            repetition_penalty=(
                values["repetition_penalty"] if self.repetition_penalty is None else self.repetition_penalty
            ),
        )


class Place(TypedDict, total=False):
    """How a request stands among others; each part may be left out.

    tenant: on whose behalf. terms: that tenant's; by default what the engine's book says of the name. priority: lower
    is sooner. deadline, ttft_deadline: instants of the engine's clock at which the request ends with an error unless
    all of its answer, or its first token, has come. arrival: another such instant, the call's by default. request_id: a
    fresh one by default. drawn: see Request.
    """

    tenant: str
    priority: int
    deadline: float | None
    ttft_deadline: float | None
    terms: TenantTerms | None
    arrival: float | None
    request_id: str | None
    drawn: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request as admitted at the front. `arrival` and both deadlines are instants of the engine's clock.

    deadline, ttft_deadline: when all of the answer, or its first token, must have come; later the request has expired.
    terms: its tenant's; None: what the front's book says of the name. drawn: the answer's first tokens, if an earlier
    request has drawn them already: they are told again and not drawn anew, and no log probabilities are told.

    leader: the id of a live request for the same prompt (a sibling), whose pages this one shares; it starts once the
    leader's first token, or its end, has come.

    Raises InvalidParameter for a priority that is no integer of 32 bits, and an id or tenant that is no clean text.
    """

    id: str
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    tenant: str = ANONYMOUS
    priority: int = 0  # lower is sooner, as in vLLM
    deadline: float | None = None
    ttft_deadline: float | None = None
    arrival: float = 0.0
    leader: str | None = None
    terms: TenantTerms | None = None
    drawn: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        checks.integer("priority", self.priority, -checks.LARGEST, checks.LARGEST)
        for name in ("id", "tenant"):
            checks.printable(name, getattr(self, name))

    @classmethod
    def at(cls, prompt_ids: Iterable[int], params: SamplingParams | None, now: float, place: Place) -> "Request":
        """A request that is made `now`."""
        arrival, terms = place.get("arrival"), place.get("terms")
        return cls(
            id=place.get("request_id") or uuid4().hex,
            prompt_ids=tuple(prompt_ids),
            params=params or SamplingParams(),
            tenant=place.get("tenant", terms.name if terms else ANONYMOUS),
            priority=place.get("priority", 0),
            deadline=place.get("deadline"),
            ttft_deadline=place.get("ttft_deadline"),
            terms=terms,
            arrival=now if arrival is None else arrival,
            drawn=place.get("drawn", ()),
        )

    def siblings(self, n: int) -> "list[Request]":
        """This request and n - 1 more for the same prompt, which follow it.

        Their ids are its own with .1, .2, ...; a seed rises by SEED_STEP from one to the next (modulo 2**64). The
        prompt's log probabilities are told with the first alone. Raises InvalidParameter.
        """
        checks.integer("n", n, 1, MAX_SIBLINGS)
        return [self, *(self._sibling(number) for number in range(1, n))]

    def _sibling(self, number: int) -> "Request":
        seed = self.params.seed
        own = None if seed is None else (seed + number * SEED_STEP) % 2**SEED_BITS
        params = replace(self.params, seed=own, prompt_logprobs=None)
        return replace(self, id=f"{self.id}.{number}", params=params, leader=self.id)


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of a request. `cached_tokens` is the part of the prompt found in the prefix cache."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


class Delta(msgspec.Struct, frozen=True, gc=False):  # made for every token, for which a dataclass takes too long
    """What one step added to one request. Joined over a request, `text` is the whole answer.

    token_ids belong to `text`, but for text still held back: ids wait with their text.
    finish_reason is set on the last Delta of a request and only there; `usage` comes with it.
    stop_reason is the stop string or the stop id that ended it. `error` explains finish_reason "error"; `code` is the
    stable code of the error (errors.py) where there is one.
    logprobs: one for each of token_ids, if asked for. prompt_logprobs: one for each token of the prompt (None for the
    first), all with one delta, the first one or the last.
    """

    request_id: str
    text: str = ""
    token_ids: tuple[int, ...] = ()
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    usage: Usage | None = None
    error: str | None = None
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs | None, ...] = ()
    code: str | None = None

    @classmethod
    def merge(cls, deltas: Sequence["Delta"]) -> "Delta":
        """Consecutive deltas of one request as one; there must be at least one."""
        last = deltas[-1]
        if len(deltas) == 1:
            return last
        return msgspec.structs.replace(
            last,
            text="".join(delta.text for delta in deltas),
            token_ids=tuple(token for delta in deltas for token in delta.token_ids),
            logprobs=tuple(item for delta in deltas for item in delta.logprobs),
            prompt_logprobs=tuple(item for delta in deltas for item in delta.prompt_logprobs),
        )


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole answer: the deltas of one request joined."""

    request_id: str
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    stop_reason: str | int | None
    usage: Usage
    error: str | None = None
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs | None, ...] = ()
    code: str | None = None

    @classmethod
    def join(cls, deltas: Iterable[Delta]) -> "Completion":
        """Join the deltas of one finished request, in order."""
        whole = Delta.merge(list(deltas))
        assert whole.finish_reason is not None and whole.usage is not None, "the request has not ended"
        return cls(
            request_id=whole.request_id,
            text=whole.text,
            token_ids=whole.token_ids,
            finish_reason=whole.finish_reason,
            stop_reason=whole.stop_reason,
            usage=whole.usage,
            error=whole.error,
            logprobs=whole.logprobs,
            prompt_logprobs=whole.prompt_logprobs,
            code=whole.code,
        )

"""What a caller asks and what it gets back, as frozen values. Knows no torch, HTTP, tokenizer or clock.

A Request never changes after submit; progress lives in the front's table and in the worker's Sequence.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from .door import TokenLogprobs
from .errors import InvalidParameter

FinishReason = Literal["stop", "length", "cancelled", "error"]

SEED_BITS = 64
LARGEST = 2**31 - 1  # of integers that are counts, ids or priorities
MAX_STOPS = 16
MAX_STOP_CHARS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How tokens are drawn and when a sequence ends.

    A field left None takes the model's own default (generation_config.json), then the neutral value
    (temperature 1, top_k 0, top_p 1, min_p 0). Raises InvalidParameter naming the field.

    temperature: 0 is greedy and ignores the other sampling fields; from 0 to 100.
    top_k: keep the k likeliest tokens; 0 or -1 keeps all.
    top_p: keep the smallest set with at least this probability, in (0, 1].
    min_p: drop tokens below min_p times the likeliest one's probability, in [0, 1].
    seed: the same request with the same seed gives the same tokens; None draws a fresh seed.
    max_tokens: most output tokens; None means up to the end of the context.
    min_tokens: end-of-sequence and stop ids cannot be drawn, nor stop strings match, before this many.
    stop: texts (or one text) that end the answer; they are never shown, nor is any part of them. Kept as a tuple.
    stop_token_ids: ids that end the answer. Kept as a tuple.
    ignore_eos: the model's end-of-sequence ids do not end the answer.
    repetition_penalty: above 1 makes tokens of prompt and answer less likely; from 0.01 to 100, 1 is off.
    presence_penalty, frequency_penalty: taken off the logits of tokens that the answer holds, once and for each time;
    from -2 to 2.
    logit_bias: what to add to the logits of some ids, from -100 to 100 each. Kept as a tuple of pairs.
    allowed_token_ids: nothing but these is drawn; None: anything. Kept as a tuple.
    bad_words: texts that are not written; each is a word or a few, as the tokenizer splits it. Kept as a tuple.
    logprobs: how many of the likeliest tokens to report beside each token, with their log probabilities (of the
    model's own distribution, before all of the above); 0 the token's alone; None nothing. prompt_logprobs: the same for
    the prompt's tokens.
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
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        object.__setattr__(self, "stop", stop)
        object.__setattr__(self, "stop_token_ids", tuple(self.stop_token_ids or ()))
        _number("temperature", self.temperature, 0.0, 100.0)
        _number("top_p", self.top_p, 0.0, 1.0, above_low=True)
        _number("min_p", self.min_p, 0.0, 1.0)
        _integer("top_k", self.top_k, -1, LARGEST)
        _integer("seed", self.seed, -(2 ** (SEED_BITS - 1)), 2**SEED_BITS - 1)
        _integer("max_tokens", self.max_tokens, 1, None)
        _integer("min_tokens", self.min_tokens, 0, LARGEST)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidParameter(
                f"min_tokens ({self.min_tokens}) must not exceed max_tokens ({self.max_tokens})", "min_tokens"
            )
        _stops(stop)
        for token in self.stop_token_ids:
            _integer("stop_token_ids", token, 0, LARGEST)

    def resolved(self, defaults: Mapping[str, float]) -> "SamplingParams":
        """Fill fields left None from `defaults` (temperature, top_k, top_p, min_p), then neutral values."""
        neutral = {"temperature": 1.0, "top_k": 0.0, "top_p": 1.0, "min_p": 0.0}
        values = {**neutral, **{name: defaults[name] for name in neutral if name in defaults}}
        return replace(
            self,
            temperature=values["temperature"] if self.temperature is None else self.temperature,
            top_k=int(values["top_k"]) if self.top_k is None else self.top_k,
            top_p=values["top_p"] if self.top_p is None else self.top_p,
            min_p=values["min_p"] if self.min_p is None else self.min_p,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request as admitted at the front. `arrival` and `deadline` are instants of the engine's clock.

    leader: the id of a live request for the same prompt (a sibling), whose pages this one shares; it starts once the
    leader's prompt is computed.

    Raises InvalidParameter for a priority that is no integer of 32 bits, and an id or tenant that is no clean text.
    """

    id: str
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    tenant: str = "anonymous"
    priority: int = 0  # lower is sooner, as in vLLM
    deadline: float | None = None
    arrival: float = 0.0
    leader: str | None = None

    def __post_init__(self) -> None:
        _integer("priority", self.priority, -LARGEST, LARGEST)
        for name in ("id", "tenant"):
            _name(name, getattr(self, name))


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of a request. `cached_tokens` is the part of the prompt found in the prefix cache."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Delta:
    """What one step added to one request. Joined over a request, `text` is the whole answer.

    token_ids belong to `text`, but for text still held back: ids wait with their text.
    finish_reason is set on the last Delta of a request and only there; `usage` comes with it.
    stop_reason is the stop string or the stop id that ended it. `error` explains finish_reason "error".
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

    @classmethod
    def merge(cls, deltas: Sequence["Delta"]) -> "Delta":
        """Consecutive deltas of one request as one; there must be at least one."""
        last = deltas[-1]
        return replace(
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
        )


def _number(name: str, value: object, low: float, high: float, *, above_low: bool = False) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidParameter(f"{name} must be a finite number, not {value!r}", name)
    if value > high or value < low or (above_low and value == low):
        bracket = "(" if above_low else "["
        raise InvalidParameter(f"{name} must be in {bracket}{low:g}, {high:g}], not {value!r}", name)


def _integer(name: str, value: object, low: int, high: int | None) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidParameter(f"{name} must be an integer, not {value!r}", name)
    if value < low or (high is not None and value > high):
        limit = f"at least {low}" if high is None else f"between {low} and {high}"
        raise InvalidParameter(f"{name} must be {limit}, not {value}", name)


def _name(field: str, value: object) -> None:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise InvalidParameter(f"{field} must be printable text, not {value!r}", field)


def _stops(stop: tuple[object, ...]) -> None:
    if len(stop) > MAX_STOPS:
        raise InvalidParameter(f"stop takes at most {MAX_STOPS} strings, not {len(stop)}", "stop")
    for text in stop:
        if not isinstance(text, str) or not text or len(text) > MAX_STOP_CHARS:
            raise InvalidParameter(f"stop must be non-empty strings of at most {MAX_STOP_CHARS} characters", "stop")

"""The request bodies of the OpenAI protocol, as far as they are supported. Unknown fields are accepted and ignored.

Strict: a boolean is no integer and "10" is no number. null means absent. Ranges of sampling fields are SamplingParams'.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ..errors import InvalidRequest
from ..request import MAX_LOGPROBS, SamplingParams

COMPLETION_MAX_TOKENS = 16  # OpenAI's default for completions
INT32 = 2**31
MAX_STOP_IDS = 1024
MAX_ALLOWED_IDS = 2**18  # more than most vocabularies have

Count = Annotated[int, Field(lt=INT32)]
Positive = Annotated[int, Field(ge=1, lt=INT32)]
Tops = Annotated[int, Field(ge=0, le=MAX_LOGPROBS)]
Strings = Annotated[list[str], Field(fail_fast=True)]
StopIds = Annotated[list[int], Field(fail_fast=True, max_length=MAX_STOP_IDS)]
AllowedIds = Annotated[list[int], Field(fail_fast=True, max_length=MAX_ALLOWED_IDS)]

BATCH_TIERS = ("flex", "batch")  # of service_tier
Milliseconds = Annotated[float, Field(allow_inf_nan=False)]

_ID = re.compile(r"0|[1-9][0-9]{0,9}")


class Body(BaseModel):
    """A JSON object of the protocol."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        """Validate. Raises InvalidRequest naming the first wrong field."""
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            raise _refusal(error) from None


class StreamOptions(Body):
    """include_usage: a last chunk with the token counts. continuous_usage_stats: the counts so far in every chunk."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class GenerationBody(Body):
    """What both kinds of completion share."""

    model: str | None = None
    n: Positive | None = None
    max_tokens: int | None = None
    min_tokens: Count | None = None
    temperature: float | None = None
    top_k: Count | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    allowed_token_ids: AllowedIds | None = None
    bad_words: Strings | None = None
    stop: str | Strings | None = None
    stop_token_ids: StopIds | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None  # there never are any that the tokenizer doesn't write
    prompt_logprobs: Tops | None = None
    truncate_prompt_tokens: Annotated[int, Field(ge=-1, lt=INT32)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None
    priority: Annotated[int, Field(ge=-INT32, lt=INT32)] | None = None
    deadline_ms: Milliseconds | None = None
    ttft_deadline_ms: Milliseconds | None = None
    service_tier: Literal["auto", "default", "flex", "batch"] | None = None

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise InvalidRequest("stream_options is only for stream: true", "stream_options")
        if self.prompt_logprobs is not None and self.stream:
            raise InvalidRequest("prompt_logprobs do not come in a stream", "prompt_logprobs")
        if self.truncate_prompt_tokens == 0:
            raise InvalidRequest("truncate_prompt_tokens must be positive, or -1", "truncate_prompt_tokens")
        return self

    def sampling(
        self, max_tokens: int | None, logprobs: int | None = None, prompt_logprobs: int | None = None
    ) -> SamplingParams:
        """The sampling fields; raises InvalidRequest naming the one out of range."""
        # an empty string is no absent stop: SamplingParams refuses it
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        return SamplingParams(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            seed=self.seed,
            max_tokens=max_tokens,
            min_tokens=self.min_tokens or 0,
            stop=stop,
            stop_token_ids=tuple(self.stop_token_ids or ()),
            ignore_eos=bool(self.ignore_eos),
            repetition_penalty=self.repetition_penalty,
            presence_penalty=self.presence_penalty or 0.0,
            frequency_penalty=self.frequency_penalty or 0.0,
            logit_bias=_biases(self.logit_bias or {}),
            allowed_token_ids=self.allowed_token_ids,
            bad_words=tuple(self.bad_words or ()),
            logprobs=logprobs,
            prompt_logprobs=prompt_logprobs,
            skip_special_tokens=self.skip_special_tokens is not False,
            include_stop=bool(self.include_stop_str_in_output),
        )


class RenderingBody(Body):
    """How a conversation becomes a prompt. add_generation_prompt is true unless the last message is continued."""

    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class ChatBody(GenerationBody, RenderingBody):
    """POST /v1/chat/completions. max_completion_tokens wins over max_tokens."""

    messages: list[Any]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: Tops | None = None

    @property
    def tops(self) -> int | None:
        """How many likeliest tokens to tell beside each token; None: no log probabilities."""
        if self.logprobs:
            return self.top_logprobs or 0
        if self.top_logprobs:
            raise InvalidRequest("top_logprobs is only for logprobs: true", "top_logprobs")
        return None


class CompletionBody(GenerationBody):
    """POST /v1/completions."""

    prompt: Any
    best_of: Positive | None = None
    echo: bool | None = None
    logprobs: Tops | None = None
    add_special_tokens: bool | None = None


class TokenizeBody(RenderingBody):
    """POST /tokenize: a prompt or messages."""

    model: str | None = None
    prompt: str | None = None
    messages: list[Any] | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class DetokenizeBody(Body):
    """POST /detokenize."""

    model: str | None = None
    tokens: Annotated[list[int], Field(fail_fast=True)]


def _biases(fields: Mapping[str, float]) -> dict[int, float]:
    """logit_bias by id; in JSON ids are keys, and so strings."""
    for key in fields:
        if not _ID.fullmatch(key):
            raise InvalidRequest(f"logit_bias: {key[:40]!r} is no token id, a whole number from 0", "logit_bias")
    return {int(key): bias for key, bias in fields.items()}


def _refusal(error: ValidationError) -> InvalidRequest:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    name = str(first["loc"][0]) if first["loc"] else None
    return InvalidRequest(f"{name}: {first['msg']}" if name else first["msg"], name)

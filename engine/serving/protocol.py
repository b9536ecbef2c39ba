"""The request bodies of the OpenAI protocol, as far as they are supported. Unknown fields are accepted and ignored.

Strict: a boolean is no integer and "10" is no number. null means absent. Ranges of sampling fields are SamplingParams'.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ..errors import InvalidRequest
from ..request import SamplingParams

COMPLETION_MAX_TOKENS = 16  # OpenAI's default for completions
INT32 = 2**31
MAX_STOP_IDS = 1024

Count = Annotated[int, Field(lt=INT32)]
Strings = Annotated[list[str], Field(fail_fast=True)]
Ids = Annotated[list[int], Field(fail_fast=True, max_length=MAX_STOP_IDS)]


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
    max_tokens: int | None = None
    min_tokens: Count | None = None
    temperature: float | None = None
    top_k: Count | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: str | Strings | None = None
    stop_token_ids: Ids | None = None
    ignore_eos: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None
    priority: Annotated[int, Field(ge=-INT32, lt=INT32)] | None = None

    @model_validator(mode="after")
    def _options_need_a_stream(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise InvalidRequest("stream_options is only for stream: true", "stream_options")
        return self

    def sampling(self, max_tokens: int | None) -> SamplingParams:
        """The sampling fields; raises InvalidParameter naming the one out of range."""
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
        )


class ChatBody(GenerationBody):
    """POST /v1/chat/completions. max_completion_tokens wins over max_tokens."""

    messages: list[Any]
    max_completion_tokens: int | None = None


class CompletionBody(GenerationBody):
    """POST /v1/completions."""

    prompt: Any


def _refusal(error: ValidationError) -> InvalidRequest:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    name = str(first["loc"][0]) if first["loc"] else None
    return InvalidRequest(f"{name}: {first['msg']}" if name else first["msg"], name)

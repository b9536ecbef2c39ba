"""A checked request body, as the exchange with the engine takes it: prompts not yet tokenized, and what to write."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import InvalidRequest
from ..request import SamplingParams
from .messages import Conversation, conversation
from .prompts import TextOrIds, prompts_of
from .protocol import COMPLETION_MAX_TOKENS, ChatBody, CompletionBody, GenerationBody
from .unsupported import refuse_unsupported

if TYPE_CHECKING:
    from ..async_engine import AsyncEngine

Prompt = TextOrIds | Conversation


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One body. `field_names` turns the engine's name of a field into the one that this client used.

    default_max_tokens: where the client sets no max_tokens, at most so many (and what the context leaves); None: all
    that the context leaves.
    """

    model: str | None
    prompts: tuple[Prompt, ...]
    params: SamplingParams
    default_max_tokens: int | None
    priority: int
    stream: bool
    include_usage: bool
    continuous_usage: bool
    return_token_ids: bool
    field_names: Mapping[str | None, str]


def chat_ask(fields: Mapping[str, Any]) -> Ask:
    """Check the body of a chat completion. Raises InvalidRequest."""
    body = ChatBody.of(fields)
    refuse_unsupported(fields, adds_special_tokens=False)
    names: dict[str | None, str] = {None: "messages", "prompt": "messages"}
    most = body.max_tokens
    if body.max_completion_tokens is not None:
        most, names["max_tokens"] = body.max_completion_tokens, "max_completion_tokens"
    return _ask(body, (conversation(body.messages),), most, None, names)


def completion_ask(fields: Mapping[str, Any], most_prompts: int) -> Ask:
    """Check the body of a completion with at most `most_prompts` prompts. Raises InvalidRequest."""
    body = CompletionBody.of(fields)
    refuse_unsupported(fields, adds_special_tokens=True)
    prompts = prompts_of(body.prompt, most_prompts)
    return _ask(body, prompts, body.max_tokens, COMPLETION_MAX_TOKENS, {})


@contextmanager
def named_as_sent(field_names: Mapping[str | None, str]) -> Iterator[None]:
    """Errors that pass through name the field as the client did."""
    try:
        yield
    except InvalidRequest as error:
        error.param = field_names.get(error.param, error.param)
        raise


async def token_ids(engine: "AsyncEngine", prompt: Prompt) -> tuple[int, ...]:
    """Tokenize off the event loop. Raises InvalidRequest or TemplateError."""
    if isinstance(prompt, Conversation):
        return await engine.encode_chat(prompt.messages)
    if isinstance(prompt, str):
        return await engine.encode(prompt)
    return prompt


def _ask(
    body: GenerationBody,
    prompts: tuple[Prompt, ...],
    max_tokens: int | None,
    default_max_tokens: int | None,
    names: Mapping[str | None, str],
) -> Ask:
    options = body.stream_options
    include_usage = options is not None and bool(options.include_usage)
    with named_as_sent(names):
        params = body.sampling(max_tokens)
    return Ask(
        model=body.model,
        prompts=prompts,
        params=params,
        default_max_tokens=default_max_tokens,
        priority=body.priority or 0,
        stream=bool(body.stream),
        include_usage=include_usage,
        continuous_usage=include_usage and options is not None and bool(options.continuous_usage_stats),
        return_token_ids=bool(body.return_token_ids),
        field_names=names,
    )

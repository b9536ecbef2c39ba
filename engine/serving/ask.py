"""A checked request body, as the exchange with the engine takes it: prompts not yet tokenized, and what to write."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import InvalidRequest
from ..request import SamplingParams
from .limits import Limits
from .messages import Conversation, conversation
from .prompts import TextOrIds, prompts_of
from .protocol import BATCH_TIERS, COMPLETION_MAX_TOKENS, ChatBody, CompletionBody, GenerationBody
from .unsupported import IN_CHATS, IN_COMPLETIONS, refuse_unsupported

if TYPE_CHECKING:
    from ..async_engine import AsyncEngine

Prompt = TextOrIds | Conversation
LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One body. `field_names` turns the engine's name of a field into the one that this client used.

    default_max_tokens: where the client sets no max_tokens, at most so many (and what the context leaves); None: all
    that the context leaves. choices: answers told for each prompt; samples: answers drawn for it, of which the best
    are told. tops: how many likeliest tokens to tell beside each token, None: no log probabilities; prompt_tops: the
    same beside the prompt's tokens. echo: answers begin with their prompt. truncate: how many of a prompt's last tokens
    to keep, -1: what fits. add_special: texts get the special tokens that the model's tokenizer adds. deadline_ms,
    ttft_deadline_ms: what the client gives for the whole answer and for its first token. batch: nobody waits for it.
    """

    model: str | None
    prompts: tuple[Prompt, ...]
    params: SamplingParams
    default_max_tokens: int | None = None
    priority: int = 0
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    return_token_ids: bool = False
    choices: int = 1
    samples: int = 1
    tops: int | None = None
    prompt_tops: int | None = None
    echo: bool = False
    truncate: int | None = None
    add_special: bool = True
    deadline_ms: float | None = None
    ttft_deadline_ms: float | None = None
    batch: bool = False
    field_names: Mapping[str | None, str] = field(default_factory=dict)


def chat_ask(fields: Mapping[str, Any], limits: Limits = LIMITS) -> Ask:
    """Check the body of a chat completion. Raises InvalidRequest."""
    body = ChatBody.of(fields)
    refuse_unsupported(fields, IN_CHATS)
    names: dict[str | None, str] = {None: "messages", "prompt": "messages"}
    most = body.max_tokens
    if body.max_completion_tokens is not None:
        most, names["max_tokens"] = body.max_completion_tokens, "max_completion_tokens"
    with named_as_sent(names):
        _check_max_tokens(most, echo=False)
        params = body.sampling(most, logprobs=body.tops, prompt_logprobs=body.prompt_logprobs)
    choices = body.n or 1
    _check_samples("n", choices, 1, limits)
    return Ask(
        **_shared(body),
        prompts=(conversation(body.messages, body),),
        params=params,
        choices=choices,
        samples=choices,
        tops=body.tops,
        field_names=names,
    )


def completion_ask(fields: Mapping[str, Any], limits: Limits = LIMITS) -> Ask:
    """Check the body of a completion. Raises InvalidRequest."""
    body = CompletionBody.of(fields)
    refuse_unsupported(fields, IN_COMPLETIONS)
    prompts = prompts_of(body.prompt, limits.prompts)
    choices = body.n or 1
    samples = body.best_of or choices
    _check_best_of(body, choices, samples)
    _check_samples("best_of" if body.best_of else "n", samples, len(prompts), limits)
    echo = bool(body.echo)
    _check_max_tokens(body.max_tokens, echo)
    beside_prompt = [tops for tops in (body.prompt_logprobs, body.logprobs if echo else None) if tops is not None]
    ranked = 0 if samples > choices else None  # the best are found by their tokens' log probabilities
    params = body.sampling(
        body.max_tokens,
        logprobs=ranked if body.logprobs is None else body.logprobs,
        prompt_logprobs=max(beside_prompt, default=None),
    )
    return Ask(
        **_shared(body),
        prompts=prompts,
        params=params,
        default_max_tokens=COMPLETION_MAX_TOKENS,
        choices=choices,
        samples=samples,
        tops=body.logprobs,
        echo=echo,
        add_special=body.add_special_tokens is not False,
    )


@contextmanager
def named_as_sent(field_names: Mapping[str | None, str]) -> Iterator[None]:
    """Errors that pass through name the field as the client did."""
    try:
        yield
    except InvalidRequest as error:
        error.param = field_names.get(error.param, error.param)
        raise


async def token_ids(
    engine: "AsyncEngine", prompt: Prompt, *, add_special: bool = True, any_length: bool = False
) -> tuple[int, ...]:
    """Tokenize off the event loop; any_length: also what cannot fit. Raises InvalidRequest or TemplateError."""
    if isinstance(prompt, Conversation):
        return await engine.encode_chat(
            prompt.messages,
            any_length=any_length,
            add_generation_prompt=prompt.add_generation_prompt,
            continue_final_message=prompt.continue_final_message,
            template_kwargs=prompt.template_kwargs,
        )
    if isinstance(prompt, str):
        return await engine.encode(prompt, add_special=add_special, any_length=any_length)
    return prompt


def _shared(body: GenerationBody) -> dict[str, Any]:
    """The fields of an Ask that come from both kinds of body in the same way."""
    options = body.stream_options
    include_usage = options is not None and bool(options.include_usage)
    return {
        "model": body.model,
        "priority": body.priority or 0,
        "stream": bool(body.stream),
        "include_usage": include_usage,
        "continuous_usage": include_usage and options is not None and bool(options.continuous_usage_stats),
        "return_token_ids": bool(body.return_token_ids),
        "prompt_tops": body.prompt_logprobs,
        "truncate": body.truncate_prompt_tokens,
        "deadline_ms": body.deadline_ms,
        "ttft_deadline_ms": body.ttft_deadline_ms,
        "batch": body.service_tier in BATCH_TIERS,
    }


def _check_max_tokens(max_tokens: int | None, echo: bool) -> None:
    if max_tokens == 0 and not echo:
        raise InvalidRequest("max_tokens must be at least 1; 0 is only for completions with echo", "max_tokens")


def _check_best_of(body: CompletionBody, choices: int, samples: int) -> None:
    if samples < choices:
        raise InvalidRequest(f"best_of ({samples}) must be at least n ({choices})", "best_of")
    if samples > choices and body.stream:
        raise InvalidRequest("best_of above n cannot be streamed: the best are known at the end only", "best_of")


def _check_samples(name: str, samples: int, prompts: int, limits: Limits) -> None:
    if samples > limits.samples:
        raise InvalidRequest(f"{name} may be at most {limits.samples}, not {samples}", name)
    if samples * prompts > limits.answers:
        raise InvalidRequest(
            f"{prompts} prompts with {samples} answers each are more than {limits.answers} answers in one body", name
        )

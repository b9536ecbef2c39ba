"""POST /tokenize and /detokenize, in vLLM's shapes: what a prompt or a conversation is in tokens, and back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..admission.fit import check_ids
from ..errors import InvalidRequest
from .ask import named_as_sent, token_ids
from .messages import Conversation, conversation
from .off_loop import off_loop_if
from .protocol import DetokenizeBody, TokenizeBody
from .unsupported import IN_CHATS, IN_COMPLETIONS, refuse_unsupported

if TYPE_CHECKING:
    from ..async_engine import AsyncEngine

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TokenizeAsk:
    """A checked body of /tokenize. strings: the text of each token is asked for too."""

    model: str | None
    prompt: str | Conversation
    add_special: bool
    strings: bool


def tokenize_ask(fields: Mapping[str, Any]) -> TokenizeAsk:
    """Check the body of /tokenize. Raises InvalidRequest."""
    body = TokenizeBody.of(fields)
    if (body.prompt is None) == (body.messages is None):
        raise InvalidRequest("either prompt or messages is needed, and not both", "prompt")
    refuse_unsupported(fields, IN_COMPLETIONS if body.messages is None else IN_CHATS)
    prompt = body.prompt if body.messages is None else conversation(body.messages, body)
    assert prompt is not None
    return TokenizeAsk(body.model, prompt, body.add_special_tokens is not False, bool(body.return_token_strs))


async def tokenize_reply(engine: "AsyncEngine", ask: TokenizeAsk) -> Json:
    """Token ids. Raises InvalidRequest, ContextTooLong or TemplateError."""
    prompt = ask.prompt
    names: dict[str | None, str] = {} if isinstance(prompt, str) else {None: "messages", "prompt": "messages"}
    with named_as_sent(names):
        ids = await token_ids(engine, prompt, add_special=ask.add_special)
    texts = map(engine.tokenizer.token_text, ids)
    strings = await off_loop_if(len(ids), lambda: list(texts)) if ask.strings else None
    return {"count": len(ids), "max_model_len": engine.info.context, "tokens": ids, "token_strs": strings}


async def detokenize_reply(engine: "AsyncEngine", body: DetokenizeBody) -> Json:
    """The text of token ids, special ones included. Raises InvalidRequest."""
    return await off_loop_if(len(body.tokens), lambda: {"prompt": _text(engine, body.tokens)})


def _text(engine: "AsyncEngine", tokens: Sequence[int]) -> str:
    most = engine.info.context * engine.tokenizer.longest_token  # as many as a text that /tokenize takes can give
    if len(tokens) > most:
        raise InvalidRequest(f"tokens may hold at most {most} ids, not {len(tokens)}", "tokens")
    if tokens:
        check_ids(tokens, engine.info.vocab_size, param="tokens")
    return engine.tokenizer.decode(tokens, skip_special=False)

"""The body of POST /v1/responses, as the Ask that a chat would be: its input is a conversation.

https://platform.openai.com/docs/api-reference/responses/create
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..errors import InvalidRequest
from .ask import Ask, chat_ask, named_as_sent
from .limits import Limits
from .protocol import Body
from .unsupported import Neutral, refuse_unsupported

OFF = (None, False)
IN_RESPONSES: Neutral = {
    "conversation": (None,),
    "include": (None, []),
    "max_tool_calls": (None,),
    "moderation": (None,),
    "n": (None, 1),
    "previous_response_id": (None,),
    "prompt": (None,),
    "reasoning": (None, {}, {"effort": None}, {"effort": None, "summary": None}),
    "text": (None, {}, {"format": {"type": "text"}}),
    "logprobs": OFF,
    "prompt_logprobs": (None,),
    "top_logprobs": (None, 0),
    "messages": (None,),  # of a chat: here it is input
    "max_tokens": (None,),  # here it is max_output_tokens
    "max_completion_tokens": (None,),
    "truncation": (None, "disabled"),
}
OWN = frozenset(
    {"input", "instructions", "max_output_tokens", "metadata", "store", "background", "user", *IN_RESPONSES}
)
TEXT_PARTS = ("input_text", "output_text", "text")
MOST_PAIRS, MOST_NAME, MOST_VALUE = 16, 64, 512  # of metadata


class ResponseBody(Body):
    """What stands in no chat's body. store: it can be asked for afterwards. background: nobody waits for it."""

    input: Any
    instructions: str | None = None
    max_output_tokens: int | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    background: bool | None = None

    @property
    def is_stored(self) -> bool:
        return self.store is not False


def response_ask(fields: Mapping[str, Any], limits: Limits) -> tuple[ResponseBody, Ask]:
    """Check a body. Raises InvalidRequest."""
    body = ResponseBody.of(fields)
    refuse_unsupported(fields, IN_RESPONSES)
    if body.background and not body.is_stored:
        raise InvalidRequest("background is only for responses that are stored", "background")
    check_metadata(body.metadata or {})
    chat = {name: value for name, value in fields.items() if name not in OWN}
    chat |= {"messages": _messages(body), "max_completion_tokens": body.max_output_tokens}
    names: dict[str | None, str] = {"messages": "input", "max_completion_tokens": "max_output_tokens"}
    with named_as_sent(names):
        ask = chat_ask(chat, limits)
    return body, _renamed(ask, names)


def _renamed(ask: Ask, names: Mapping[str | None, str]) -> Ask:
    return replace(ask, field_names={name: names.get(told, told) for name, told in ask.field_names.items()})


def _messages(body: ResponseBody) -> list[dict[str, Any]]:
    """The conversation: instructions first, then the input."""
    if isinstance(body.input, str):
        items: Sequence[Any] = [{"role": "user", "content": body.input}]
    elif isinstance(body.input, list) and body.input:
        items = body.input
    else:
        raise _wrong("input must be a string, or a list of messages that is not empty")
    first = [] if body.instructions is None else [{"role": "system", "content": body.instructions}]
    return [*first, *(_message(item, f"input[{place}]") for place, item in enumerate(items))]


def _message(item: object, where: str) -> dict[str, Any]:
    if not isinstance(item, dict) or item.get("type", "message") != "message":
        raise _wrong(f"{where} must be a message, an object with role and content")
    content = item.get("content")
    if isinstance(content, list):
        content = "".join(_part(part, f"{where}.content[{place}]") for place, part in enumerate(content))
    if not isinstance(content, str):
        raise _wrong(f"{where}.content must be a string or a list of text parts")
    return {"role": item.get("role"), "content": content}


def _part(part: object, where: str) -> str:
    if isinstance(part, dict) and part.get("type") in TEXT_PARTS and isinstance(part.get("text"), str):
        return str(part["text"])
    raise _wrong(f'{where} must be {{"type": "input_text", "text": "..."}}: only text is supported')


def check_metadata(metadata: Mapping[str, str]) -> None:
    """Raises InvalidRequest where a client keeps too much of its own here."""
    if len(metadata) > MOST_PAIRS:
        raise InvalidRequest(f"metadata may have at most {MOST_PAIRS} pairs, not {len(metadata)}", "metadata")
    if any(len(name) > MOST_NAME or len(value) > MOST_VALUE for name, value in metadata.items()):
        raise InvalidRequest(
            f"metadata has names of at most {MOST_NAME} and values of at most {MOST_VALUE} characters", "metadata"
        )


def _wrong(message: str) -> InvalidRequest:
    return InvalidRequest(message, "input")

"""The messages of a chat, as the chat templates of models take them. Knows no tokens."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import InvalidRequest
from .protocol import RenderingBody

ROLES = ("system", "developer", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages whose `content` is a string each; other keys a template may know are kept, nulls are not.

    add_generation_prompt: the prompt ends where an answer begins. continue_final_message: it ends inside the last
    message. template_kwargs: further names that the model's template may know.
    """

    messages: tuple[Mapping[str, Any], ...]
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)


def conversation(messages: list[Any], how: RenderingBody) -> Conversation:
    """Check a body's messages. Raises InvalidRequest that says which one is wrong."""
    if not messages:
        raise _wrong("messages must hold at least one message")
    if how.continue_final_message and how.add_generation_prompt:
        raise InvalidRequest(
            "continue_final_message and add_generation_prompt cannot both be true", "continue_final_message"
        )
    return Conversation(
        tuple(_message(message, f"messages[{place}]") for place, message in enumerate(messages)),
        add_generation_prompt=not how.continue_final_message and how.add_generation_prompt is not False,
        continue_final_message=bool(how.continue_final_message),
        template_kwargs=how.chat_template_kwargs or {},
    )


def _message(message: object, where: str) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise _wrong(f"{where} must be an object with role and content")
    role = message.get("role")
    if role not in ROLES:
        raise _wrong(f"{where}.role must be one of {', '.join(ROLES)}")
    given = {name: value for name, value in message.items() if value is not None}
    # few templates know "developer"; it means the same
    return {**given, "role": "system" if role == "developer" else role, "content": _content(message, where)}


def _content(message: Mapping[str, Any], where: str) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_part(part, f"{where}.content[{place}]") for place, part in enumerate(content))
    if content is None and message["role"] == "assistant":  # an assistant may have called a tool and said nothing
        return ""
    raise _wrong(f"{where}.content must be a string or a list of text parts")


def _part(part: object, where: str) -> str:
    if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    raise _wrong(f'{where} must be {{"type": "text", "text": "..."}}: only text is supported')


def _wrong(message: str) -> InvalidRequest:
    return InvalidRequest(message, "messages")

"""The messages of a chat, as the chat templates of models take them. Knows no tokens."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidRequest

ROLES = ("system", "developer", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages whose `content` is a string each; other keys a template may know are kept, nulls are not."""

    messages: tuple[Mapping[str, Any], ...]


def conversation(messages: list[Any]) -> Conversation:
    """Check a body's messages. Raises InvalidRequest with param "messages" that says which one is wrong."""
    if not messages:
        raise _wrong("messages must hold at least one message")
    return Conversation(tuple(_message(message, f"messages[{place}]") for place, message in enumerate(messages)))


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

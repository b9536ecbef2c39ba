"""The `prompt` of a completion: a text, texts, token ids, or lists of token ids. Knows no vocabulary."""

from typing import Any

from ..errors import InvalidRequest

TextOrIds = str | tuple[int, ...]


def prompts_of(prompt: Any, most: int) -> tuple[TextOrIds, ...]:
    """One entry a prompt, at most `most` of them. Raises InvalidRequest with param "prompt"."""
    if isinstance(prompt, str):
        return (_text(prompt),)
    if not isinstance(prompt, list) or not prompt:
        raise _wrong("prompt must be a non-empty string, or a non-empty list of strings or of token ids")
    if _is_id(prompt[0]):
        return (_ids(prompt),)
    if len(prompt) > most:
        raise _wrong(f"prompt may hold at most {most} prompts, not {len(prompt)}")
    if isinstance(prompt[0], str):
        return tuple(_text(item) for item in prompt)
    return tuple(_ids(item) for item in prompt)


def _text(item: Any) -> str:
    if not isinstance(item, str) or not item:
        raise _wrong("a prompt must be a non-empty string; strings and token ids do not mix")
    return item


def _ids(item: Any) -> tuple[int, ...]:
    if not isinstance(item, list) or not item or not all(_is_id(token) for token in item):
        raise _wrong("a prompt of token ids must be a non-empty list of whole numbers from 0")
    return tuple(item)


def _is_id(token: Any) -> bool:
    return isinstance(token, int) and not isinstance(token, bool)


def _wrong(message: str) -> InvalidRequest:
    return InvalidRequest(message, "prompt")

"""The lines of a batch's input: one request each, checked when the file comes, so that a batch never fails for them.

https://platform.openai.com/docs/guides/batch
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InvalidRequest
from .ask import chat_ask, completion_ask
from .body import parse_object
from .limits import Limits

CHATS, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
ENDPOINTS = (CHATS, COMPLETIONS)
MOST_LINES = 50_000
MOST_LINE_BYTES = 8 * 1024**2
MOST_ID = 256


@dataclass(frozen=True, slots=True)
class Line:
    """One request: custom_id is its client's name for it."""

    custom_id: str
    url: str
    body: Mapping[str, Any]


def line_of(raw: bytes, limits: Limits) -> Line:
    """Check a line. Raises InvalidRequest."""
    fields = parse_object(raw)
    custom_id, url, body = fields.get("custom_id"), fields.get("url"), fields.get("body")
    if not isinstance(custom_id, str) or not 0 < len(custom_id) <= MOST_ID:
        raise InvalidRequest(f"custom_id must be a text of 1 to {MOST_ID} characters", "custom_id")
    if fields.get("method") != "POST":
        raise InvalidRequest("method must be POST", "method")
    if url not in ENDPOINTS:
        raise InvalidRequest(f"url must be one of {', '.join(ENDPOINTS)}", "url")
    if not isinstance(body, dict):
        raise InvalidRequest("body must be an object", "body")
    ask = chat_ask(body, limits) if url == CHATS else completion_ask(body, limits)
    if ask.stream:
        raise InvalidRequest("a line of a batch is not streamed", "stream")
    return Line(custom_id, url, body)


def check_lines(path: Path, limits: Limits) -> int:
    """How many lines a file has. Raises InvalidRequest that says which line is wrong."""
    seen: set[str] = set()
    for number, raw in enumerate(_raw_lines(path), start=1):
        if number > MOST_LINES:
            raise InvalidRequest(f"the file has more than {MOST_LINES} lines", "file")
        try:
            line = line_of(raw, limits)
        except InvalidRequest as problem:
            told = str(problem).replace("the body", "the line", 1)
            raise InvalidRequest(f"line {number}: {told}", "file") from None
        if line.custom_id in seen:
            raise InvalidRequest(f"line {number}: the custom_id {line.custom_id[:100]!r} stands twice", "file")
        seen.add(line.custom_id)
    if not seen:
        raise InvalidRequest("the file has no line", "file")
    return len(seen)


def lines_in(path: Path, limits: Limits) -> Iterator[Line]:
    """The lines of a file that was checked, one by one."""
    return (line_of(raw, limits) for raw in _raw_lines(path))


def _raw_lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while raw := file.readline(MOST_LINE_BYTES + 1):
            if len(raw) > MOST_LINE_BYTES:
                raise InvalidRequest(f"a line has more than {MOST_LINE_BYTES} bytes", "file")
            if stripped := raw.strip():
                yield stripped

"""Server-sent events as clients of the OpenAI protocol read them: `data: ` and one line of JSON, ended by [DONE].

https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from typing import Any

import msgspec
from starlette.types import Send

DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"
HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx passes each event on at once
)
# JSON leaves these three as they are, and some clients take them for line ends
_LINE_ENDS = (("\u0085", rb"\u0085"), ("\u2028", rb"\u2028"), ("\u2029", rb"\u2029"))
_ESCAPES = tuple((mark.encode(), escape) for mark, escape in _LINE_ENDS)


def event(payload: Any) -> bytes:
    """One event."""
    return b"data: " + _one_line(msgspec.json.encode(payload)) + b"\n\n"


def named_event(kind: str, data: bytes, number: int | None) -> bytes:
    """One event with its name and, where clients may come back for what follows it, its number. data: JSON."""
    marked = b"" if number is None else b"id: %d\n" % number
    return b"event: %s\n%sdata: %s\n\n" % (kind.encode(), marked, _one_line(data))


def around(payload: Any, text: str) -> tuple[bytes, bytes]:
    """What comes before and after a text in the event of a payload that has it once."""
    before, after = event(payload).split(json_text(text))
    return before, after


def json_text(text: str) -> bytes:
    """A text as an event has it."""
    return _one_line(msgspec.json.encode(text))


def _one_line(data: bytes) -> bytes:
    for mark, escape in _ESCAPES:
        data = data.replace(mark, escape)
    return data


class EventStream:
    """A streaming reply: the 200 leaves with the first bytes, so that until then a refusal is still a plain 4xx."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False

    async def send(self, data: bytes) -> None:
        """Waits while the client reads slowly."""
        if not self.started:
            await self._start()
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def finish(self) -> None:
        """[DONE], and the end of the reply, in one message: whoever keeps the answer can hold both back."""
        if not self.started:
            await self._start()
        await self._send({"type": "http.response.body", "body": DONE, "more_body": False})

    async def _start(self) -> None:
        self.started = True
        await self._send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})

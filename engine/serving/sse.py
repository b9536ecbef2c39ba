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
    data = msgspec.json.encode(payload)
    for mark, escape in _ESCAPES:
        data = data.replace(mark, escape)
    return b"data: " + data + b"\n\n"


class EventStream:
    """A streaming reply: the 200 leaves with the first bytes, so that until then a refusal is still a plain 4xx."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False

    async def send(self, data: bytes) -> None:
        """Waits while the client reads slowly."""
        if not self.started:
            self.started = True
            await self._send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def finish(self) -> None:
        """[DONE], and the end of the reply."""
        await self.send(DONE)
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

"""A reply as it is written, kept so that any number of clients can read it from its beginning.

Knows only ASGI's `send`. Its last bytes are held back until it is sealed: whoever has read them has an answer that
was kept.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

from starlette.types import Message

Headers = Sequence[tuple[bytes, bytes]]


class AnswerLog:
    """Written through `take`, an ASGI `send`. status 0: nothing was written yet."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: Headers = ()
        self.parts: list[bytes] = []
        self._last = b""
        self._error: BaseException | None = None
        self._sealed = False
        self._changed = asyncio.Event()

    async def take(self, message: Message) -> None:
        """Write what a reply sends."""
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], message["headers"]
        elif message.get("more_body", False):
            self.parts.append(message["body"])
            self._wake()
        else:
            self._last = message.get("body", b"")

    @property
    def begun(self) -> bool:
        """Whether something can be read already, so that its status stands."""
        return bool(self.parts)

    @property
    def whole(self) -> list[bytes]:
        """All parts, also what is held back."""
        return [*self.parts, self._last]

    @property
    def size(self) -> int:
        return sum(map(len, self.parts)) + len(self._last)

    def seal(self, last: bytes | None = None) -> None:
        """Let its last bytes be read, or `last` in their place: nothing comes any more."""
        self.parts.append(self._last if last is None else last)
        self._last, self._sealed = b"", True
        self._wake()

    def fail(self, error: BaseException) -> None:
        """Nothing came of it; whoever reads it gets the error. Not after it has begun."""
        self._error = error
        self._wake()

    async def read(self) -> AsyncIterator[bytes]:
        """Its bytes, as they come. Raises what it failed with."""
        told = 0
        while True:
            if self._error is not None:
                raise self._error
            if told < len(self.parts):
                part, told = b"".join(self.parts[told:]), len(self.parts)
                yield part
            elif self._sealed:
                return
            else:
                await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

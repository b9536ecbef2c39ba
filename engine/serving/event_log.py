"""The events of one response as any number of clients read them, from whichever they want. Knows no event's meaning."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..errors import EngineClosed
from .disconnect import until_disconnect
from .replies import failure_of
from .sse import HEADERS, PING, event


class EventLog:
    """Event number n is events[n]. What is added can be read at once, so it must be where it will be found again."""

    def __init__(self, events: Sequence[bytes] = (), *, ended: bool = False) -> None:
        self.events = list(events)
        self.ended = ended
        self._broken: Exception | None = None
        self._changed = asyncio.Event()

    def add(self, events: Sequence[bytes], *, ended: bool = False) -> None:
        self.events += events
        self.ended = self.ended or ended
        self._wake()

    def break_off(self, error: Exception) -> None:
        """Nothing comes any more, here: whoever reads it gets the error after the events."""
        self._broken = error
        self._wake()

    async def read(self, after: int, silence: float | None = None) -> AsyncGenerator[bytes | None, None]:
        """Events with numbers above `after`, those that are there as one; None after `silence` seconds without one."""
        told = after + 1
        while True:
            changed = self._changed
            if told < len(self.events):
                part, told = b"".join(self.events[told:]), len(self.events)
                yield part
            elif self.ended:
                return
            elif self._broken is not None:
                raise self._broken
            else:
                try:
                    async with asyncio.timeout(silence):
                        await changed.wait()
                except TimeoutError:
                    yield None

    async def until_end(self) -> None:
        """Wait for the last event. Raises what it broke off with."""
        async for _ in self.read(len(self.events) - 1):
            pass

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class EventReply(Response):
    """A stream of a log's events, from the one after `after` on. A client that goes away ends nothing but this."""

    def __init__(self, log: EventLog, after: int, ping_seconds: float) -> None:
        super().__init__()
        self._log = log
        self._after = after
        self._ping_seconds = ping_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})
        try:
            await until_disconnect(receive, self._tell(send))
        except ClientDisconnect:
            pass
        except asyncio.CancelledError:  # the server ends and has waited long enough
            await send(_last(event(failure_of(EngineClosed("the server is shutting down")).body())))

    async def _tell(self, send: Send) -> None:
        """The last event goes out with the end of the reply, so that whoever keeps it can hold both back."""
        try:
            async for part in self._parts():
                if self._log.ended and part is not PING and self._is_last(part):
                    await send(_last(part))
                    return
                await send({"type": "http.response.body", "body": part, "more_body": True})
        except Exception as error:
            await send(_last(event(failure_of(error).body())))
            return
        await send(_last(b""))

    async def _parts(self) -> AsyncIterator[bytes]:
        async for part in self._log.read(self._after, self._ping_seconds):
            yield PING if part is None else part

    def _is_last(self, part: bytes) -> bool:
        return bool(self._log.events) and part.endswith(self._log.events[-1])


def _last(part: bytes) -> dict[str, object]:
    return {"type": "http.response.body", "body": part, "more_body": False}

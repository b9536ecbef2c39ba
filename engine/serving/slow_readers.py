"""Clients that stop reading: one to which nothing can be sent for so long has gone away, whatever its connection says.

ASGI middleware. Until then what it is sent waits in its own stream, merged; nobody else waits for it.
"""

import asyncio

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class SlowReaders:
    """seconds: the longest that one message may take to be sent."""

    def __init__(self, app: ASGIApp, seconds: float) -> None:
        self._app = app
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        watch = _Watch(self._seconds)

        async def send_in_time(message: Message) -> None:
            watch.begin()
            try:
                await send(message)
            except asyncio.CancelledError:
                if not watch.rang():
                    raise
                raise ClientDisconnect from None
            finally:
                watch.since = None

        try:
            await self._app(scope, receive, send_in_time)
        finally:
            watch.stop()


class _Watch:
    """Cancels the task in which a message takes longer than so many seconds to be sent.

    One timer, which is set anew when it goes off: one for each message would cost as much as the message.
    """

    def __init__(self, seconds: float) -> None:
        self.since: float | None = None  # when the message that is being sent was begun
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[object] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._cancelled = False

    def begin(self) -> None:
        """A message is sent by the running task."""
        self.since, self._task = self._loop.time(), asyncio.current_task()
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._look)

    def rang(self) -> bool:
        """Whether the running task was cancelled from here; asked once, it is over."""
        rang, self._cancelled = self._cancelled, False
        if rang and self._task is not None:
            self._task.uncancel()
        return rang

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        now = self._loop.time()
        late = self.since is not None and now - self.since >= self._seconds
        if late and self._task is not None and not self._cancelled:
            self._cancelled = True
            self._task.cancel()
        since = now if late or self.since is None else self.since
        self._timer = self._loop.call_at(since + self._seconds, self._look)

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

        async def send_in_time(message: Message) -> None:
            try:
                async with asyncio.timeout(self._seconds):
                    await send(message)
            except TimeoutError:
                raise ClientDisconnect from None

        await self._app(scope, receive, send_in_time)

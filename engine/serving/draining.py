"""The way out: once told to, new work is refused with Retry-After, and what is under way may go on for a while.

ASGI middleware around everything else. It knows which requests are work: what reads the state of things goes on.
"""

import asyncio
from typing import TYPE_CHECKING

from ..errors import EngineClosed

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

HEALTH = "/health"
AGAIN_SECONDS = 5.0  # by then, whatever takes this server's place may have


class Draining:
    """Owner of what is under way. seconds: how long it may go on after begin()."""

    def __init__(self, app: "ASGIApp", seconds: float) -> None:
        self.is_on = False
        self._app = app
        self._seconds = seconds
        self._under_way = 0
        self._nothing = asyncio.Event()
        self._nothing.set()

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] != "http" or not (_is_work(scope) or _is_health(scope)):
            await self._app(scope, receive, send)
        elif self.is_on:
            await _refuse(scope, receive, send)
        elif _is_health(scope):
            await self._app(scope, receive, send)
        else:
            await self._count(scope, receive, send)

    async def drain(self) -> None:
        """Refuse new work; returns when nothing is under way, or when the time is up."""
        self.is_on = True
        try:
            await asyncio.wait_for(self._nothing.wait(), self._seconds)
        except TimeoutError:
            return

    async def _count(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        self._under_way += 1
        self._nothing.clear()
        try:
            await self._app(scope, receive, send)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._nothing.set()


def _is_health(scope: "Scope") -> bool:
    path: str = scope["path"]
    return path.rstrip("/").endswith(HEALTH)


def _is_work(scope: "Scope") -> bool:
    """Whether something is asked for, other than that work should end."""
    path: str = scope["path"]
    return scope["method"] == "POST" and not path.endswith("/cancel")


async def _refuse(scope: "Scope", receive: "Receive", send: "Send") -> None:
    from .replies import failure_of  # with all of the HTTP side: not before it is needed

    await failure_of(EngineClosed("the server is shutting down", AGAIN_SECONDS)).reply()(scope, receive, send)

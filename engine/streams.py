"""A request's answer as it comes, for `async for`: leaving the loop, losing the object or ending the task cancels it.

Knows only how to say "cancel". Deltas that pile up while the reader is busy are merged into one.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from .request import Completion, Delta

MOST_WAITING = 64  # deltas that a slow reader's stream keeps apart


class Cancellable:
    """Ways to leave: cancel(), `async with` and contextlib.aclosing all end the request; harmless when it has ended."""

    def cancel(self) -> None:
        raise NotImplementedError

    async def aclose(self) -> None:
        self.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()


class Stream(Cancellable):
    """An async iterator of Deltas; the last one has finish_reason and usage. Belongs to one event loop."""

    def __init__(self, request_id: str, cancel: Callable[[str], None]) -> None:
        self.request_id = request_id
        self._cancel = cancel
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Delta] = deque()
        self._arrived = asyncio.Event()
        self.ended = False  # the last delta has come in
        self._told = False  # the last delta has been handed out

    def deliver(self, delta: Delta) -> None:
        """Called by the engine, on the loop."""
        self._waiting.append(delta)
        if len(self._waiting) > MOST_WAITING:
            merged = Delta.merge(self._waiting)
            self._waiting.clear()
            self._waiting.append(merged)
        self.ended = self.ended or delta.finish_reason is not None
        self._arrived.set()

    def cancel(self) -> None:
        """End the request now; harmless when it has ended."""
        if not self.ended:
            self._cancel(self.request_id)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delta:
        if self._told:
            raise StopAsyncIteration
        try:
            await self._arrived.wait()
        except asyncio.CancelledError:
            self.cancel()
            raise
        delta = self.take()
        assert delta is not None, "nothing has arrived"
        self._arrived.clear()
        return delta

    def announce(self, arrived: asyncio.Event) -> None:
        """From now on `arrived` is set when a delta comes, for a reader of several streams, which take()s them."""
        self._arrived = arrived
        if self._waiting:
            arrived.set()

    def take(self) -> Delta | None:
        """What has come and was not handed out yet, as one delta; None: nothing."""
        if not self._waiting:
            return None
        delta = Delta.merge(self._waiting)
        self._waiting.clear()
        self._told = delta.finish_reason is not None
        return delta

    async def completion(self) -> Completion:
        """The whole answer."""
        return Completion.join([delta async for delta in self])

    def __del__(self) -> None:
        # may run in any thread, whenever the collector does
        if not self.ended and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._cancel, self.request_id)


class PromptStream(Cancellable):
    """A Stream whose prompt is still to be tokenized: that happens, off the loop, when the first delta is asked for."""

    def __init__(self, open_stream: Callable[[], Awaitable[Stream]]) -> None:
        self._open = open_stream
        self._stream: Stream | None = None
        self._cancelled = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delta:
        if self._cancelled and self._stream is None:
            raise StopAsyncIteration
        if self._stream is None:
            self._stream = await self._open()
            if self._cancelled:
                self._stream.cancel()
        return await self._stream.__anext__()

    def cancel(self) -> None:
        """End the request now; one not yet asked for never starts."""
        self._cancelled = True
        if self._stream is not None:
            self._stream.cancel()

"""One request between a client and the engine: its answer is written as it comes, and given up when the client goes."""

import asyncio
import logging
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..errors import EngineClosed, FairstepError
from ..reception import Visit
from ..request import Completion, Delta
from .ask import Ask
from .disconnect import until_disconnect
from .fan_in import fan_in
from .generation import Generation
from .off_loop import off_loop_if
from .replies import JsonReply, failure_of
from .sse import PING, EventStream, event
from .writer import Writer

if TYPE_CHECKING:
    from ..async_engine import AsyncEngine

log = logging.getLogger(__name__)


class Exchange(Response):
    """A reply that does its work when it is sent, and leaves the visit when that has ended."""

    def __init__(
        self,
        engine: "AsyncEngine",
        model: str,
        ask: Ask,
        writer: type[Writer],
        *,
        visit: Visit,
        ping_seconds: float,
    ) -> None:
        super().__init__()
        self._ask = ask
        self._generation = Generation(engine, model, ask, writer, visit)
        self._ping_seconds = ping_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        events = EventStream(send)
        try:
            if self._ask.stream:
                await until_disconnect(receive, self._stream(events))
            else:
                reply = await until_disconnect(receive, self._whole())
                await reply(scope, receive, send)
        except ClientDisconnect:
            self._generation.leave(cut=True)
            if not events.started:  # else there is nobody left to answer
                raise
        except asyncio.CancelledError:  # the server ends and has waited long enough
            ended = EngineClosed("the server is shutting down")
            if not events.started:
                raise ended from None
            await events.send(event(failure_of(ended).body()))
            await events.finish()
        finally:
            self._generation.leave()

    @property
    def answered(self) -> bool:
        """Whether the engine has given all of the answer."""
        return self._generation.answered

    def drop(self) -> None:
        """It will not be called."""
        self._generation.leave()

    async def _whole(self) -> Response:
        """The whole answer as one reply."""
        async with self._generation.submitted() as (writer, streams):
            deltas: list[list[Delta]] = [[] for _ in streams]
            async with aclosing(fan_in(streams, None)) as items:
                async for item in items:
                    assert item is not None
                    index, delta = item
                    self._generation.check(index, delta)
                    writer.tally.add(index, delta)
                    deltas[index].append(delta)
            self._generation.answered = True
            answers = [Completion.join(parts) for parts in deltas]
            size = sum(len(answer.logprobs) + len(answer.prompt_logprobs) for answer in answers)
            return await off_loop_if(size, lambda: JsonReply(writer.whole(answers)))

    async def _stream(self, events: EventStream) -> None:
        """The answer as events. An error before the first byte is raised, a later one is an event."""
        try:
            await self._send_chunks(events)
        except Exception as error:
            if not events.started:
                raise
            if not isinstance(error, FairstepError):
                log.exception("a stream failed")
            await events.send(event(failure_of(error).body()))
        await events.finish()

    async def _send_chunks(self, events: EventStream) -> None:
        async with self._generation.submitted() as (writer, streams):
            async with aclosing(fan_in(streams, self._ping_seconds)) as items:
                async for item in items:
                    if item is None:
                        await events.send(PING)
                        continue
                    index, delta = item
                    self._generation.check(index, delta)
                    told = len(delta.prompt_logprobs)
                    write = partial(writer.events, index, delta)
                    if data := await off_loop_if(told, write) if told else write():
                        await events.send(data)
            self._generation.answered = True
            if self._ask.include_usage:
                await events.send(event(writer.usage_chunk()))

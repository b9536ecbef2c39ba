"""One request between a client and the engine: tokenize, submit, write the answer; given up when the client goes.

The only owner of the engine's streams here: however it ends, none of them goes on.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..admission.fit import answer_room
from ..errors import DeadlineExceeded, EngineClosed, FairstepError
from ..reception import Visit
from ..request import Completion, Delta, SamplingParams
from .ask import Ask, named_as_sent
from .disconnect import until_disconnect
from .fan_in import fan_in
from .off_loop import off_loop_if
from .prompt_tokens import PromptTokens, tokenize
from .replies import JsonReply, failure_of
from .sse import PING, EventStream, event
from .writer import Tally, Writer

if TYPE_CHECKING:
    from ..async_engine import AsyncEngine
    from ..streams import Stream

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
        self._engine = engine
        self._model = model
        self._ask = ask
        self._writer = writer
        self._visit = visit
        self._tally: Tally | None = None
        self._answered = False
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
            self._leave(cut=True)
            if not events.started:  # else there is nobody left to answer
                raise
        except asyncio.CancelledError:  # the server ends and has waited long enough
            ended = EngineClosed("the server is shutting down")
            if not events.started:
                raise ended from None
            await events.send(event(failure_of(ended).body()))
            await events.finish()
        finally:
            self._leave()

    def _leave(self, *, cut: bool = False) -> None:
        outputs = self._tally.outputs if self._tally else 0
        self._visit.leave(outputs, answered=self._answered, cut=cut)

    async def _whole(self) -> Response:
        """The whole answer as one reply."""
        async with self._submitted() as (writer, streams):
            deltas: list[list[Delta]] = [[] for _ in streams]
            async with aclosing(fan_in(streams, None)) as items:
                async for item in items:
                    assert item is not None
                    index, delta = item
                    self._check(index, delta)
                    writer.tally.add(index, delta)
                    deltas[index].append(delta)
            self._answered = True
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
        async with self._submitted() as (writer, streams):
            async with aclosing(fan_in(streams, self._ping_seconds)) as items:
                async for item in items:
                    if item is None:
                        await events.send(PING)
                        continue
                    index, delta = item
                    self._check(index, delta)
                    if data := await off_loop_if(len(delta.prompt_logprobs), partial(_events, writer, index, delta)):
                        await events.send(data)
            self._answered = True
            if self._ask.include_usage:
                await events.send(event(writer.usage_chunk()))

    @asynccontextmanager
    async def _submitted(self) -> AsyncIterator[tuple[Writer, Sequence["Stream"]]]:
        """All prompts in the engine's hands; on leaving, those that have not ended are cancelled, together."""
        streams: list[Stream] = []
        try:
            with named_as_sent(self._ask.field_names), self._visit.refusals():
                prompts = await tokenize(self._engine, self._ask)
                writer = self._writer(self._model, self._ask, prompts, self._engine.tokenizer)
                self._tally = writer.tally
                self._visit.give_up = lambda: _cancel(streams)
                self._count(prompts)
                for index, prompt in enumerate(prompts):
                    self._visit.check_place()
                    streams += self._submit(prompt.ids, f"{writer.id}-{index}" if index else writer.id)
                    await asyncio.sleep(0)
            yield writer, streams
        finally:
            _cancel(streams)

    def _count(self, prompts: Sequence[PromptTokens]) -> None:
        """Its tokens are known: let it wait, or refuse it."""
        lengths = [len(prompt.ids) for prompt in prompts]
        params = self._params(min(lengths))
        most = answer_room(min(lengths), params.max_tokens, self._engine.info.context)
        self._visit.count(
            prompt_tokens=sum(lengths),
            max_tokens=most,
            least=params.least_tokens(most),
            sequences=len(prompts) * self._ask.samples,
        )

    def _submit(self, prompt: tuple[int, ...], request_id: str) -> Sequence["Stream"]:
        """A stream for each sample."""
        return self._engine.submit_group(
            prompt,
            self._params(len(prompt)),
            self._ask.samples,
            tenant=self._visit.terms.name,
            terms=self._visit.terms,
            priority=self._ask.priority,
            request_id=request_id,
            arrival=self._visit.arrived,
            deadline=self._visit.deadlines.whole,
            ttft_deadline=self._visit.deadlines.first,
        )

    def _params(self, prompt_tokens: int) -> SamplingParams:
        params, most = self._ask.params, self._ask.default_max_tokens
        if params.max_tokens is not None or most is None:
            return params
        return replace(params, max_tokens=min(most, answer_room(prompt_tokens, None, self._engine.info.context)))

    def _check(self, index: int, delta: Delta) -> None:
        """Raise for an answer that ended other than by itself: its reason is no word of the protocol."""
        if delta.finish_reason in ("cancelled", "error") and self._tally is not None:
            self._tally.add(index, delta)  # nobody writes it, but it was computed
        if delta.code == DeadlineExceeded.code:
            raise self._visit.expired()
        if delta.token_ids:
            self._visit.begin(index)
        if delta.finish_reason == "cancelled":
            self._visit.check_place()
            raise EngineClosed("the server cancelled this request")
        if delta.finish_reason == "error":
            self._engine.check_alive()
            raise FairstepError(delta.error or "the request failed")


def _cancel(streams: Sequence["Stream"]) -> None:
    for stream in streams:
        stream.cancel()


def _events(writer: Writer, index: int, delta: Delta) -> bytes:
    return b"".join(map(event, writer.chunks(index, delta)))

"""One response in the making, over as many lives as it takes: from the engine to its record.

A life ends with the answer, or because the server is full, or its store fails; what runs in the background then waits
and goes on with the tokens that were told. When the process ends, the next one goes on in the same way.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ..errors import (
    DeadlineExceeded,
    EngineClosed,
    EngineDead,
    EngineRecovering,
    FairstepError,
    Overloaded,
    StoreFailed,
    TenantLimited,
    WorkerLost,
)
from ..meters.durable import Outcome
from ..reception import Visit
from ..request import Delta
from ..stores.aside import Aside
from ..stores.response_store import ResponseStore, StoredResponse
from ..text.tokenizer import Tokenizer
from .ask import Ask
from .event_log import EventLog
from .generation import Generation
from .models import Served
from .prompt_tokens import PromptTokens
from .response_body import ResponseBody
from .response_record import Deleted, ResponseRecord
from .response_writer import ResponseWriter
from .writer import Json, Tally

PAUSE_SECONDS = 1.0  # before a life that was refused is tried again, unless the refusal says when
LONGEST_PAUSE = 30.0
WINDOW_SECONDS = 24 * 3600.0  # in which what runs in the background is answered or fails
TRANSIENT = (Overloaded, TenantLimited, StoreFailed, EngineRecovering, WorkerLost)
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a run works with. unix: Unix seconds. arrive: gives a place in the server to what nobody brings one for."""

    store: ResponseStore
    aside: Aside
    unix: Callable[[], float]
    arrive: Callable[[StoredResponse], Visit]


class ResponseRun:
    """accepted: done when it is in the store and the engine's hands, or with what it was refused with.

    is_new: nothing of it is in the store yet. error: what it failed with.
    """

    def __init__(
        self,
        parts: Parts,
        served: Served,
        stored: StoredResponse,
        body: ResponseBody,
        ask: Ask,
        *,
        is_new: bool = True,
    ) -> None:
        self.served = served
        self.accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.error: Exception | None = None
        self._parts = parts
        self._body = body
        self._ask = ask
        self._record = ResponseRecord(
            parts.store, parts.aside, parts.unix, stored, is_kept=body.is_stored, is_new=is_new
        )
        self._unwanted = asyncio.Event()
        self._give_up: Callable[[], None] = _nothing

    @property
    def stored(self) -> StoredResponse:
        """As it is now."""
        return self._record.stored

    @property
    def log(self) -> EventLog:
        """Its events, as far as they may be heard."""
        return self._record.log

    @property
    def answered(self) -> bool:
        """Whether it has come to its end by itself."""
        return self.log.ended and self.error is None and not self._unwanted.is_set()

    @property
    def outcome(self) -> Outcome:
        """What has become of it, once its work is over."""
        if self.answered:
            return "completed"
        if self._unwanted.is_set():
            return "cancelled"
        return "failed" if self.stored.ended is not None or self._record.is_new else "left"

    async def until_accepted(self) -> None:
        """Wait until it is. Raises what it was refused with."""
        await asyncio.shield(self.accepted)

    def cancel(self) -> None:
        """End it, soon; harmless when it has ended."""
        if not self.log.ended:
            self._unwanted.set()
            self._give_up()

    async def work(self, visit: Visit | None) -> None:
        """To its end. visit None: it was accepted by an earlier process. Raises nothing but CancelledError."""
        while visit is not None or not self._unwanted.is_set():
            try:
                if not await self._record.catch_up():
                    await self._live(visit or self._arrive())
                return
            except Deleted:
                self.log.break_off(EngineClosed("the response was deleted"))
                return
            except TRANSIENT as refusal:
                if not self._goes_on:
                    await self._fail(refusal)
                    return
                visit = None
                await self._wait(refusal)
            except (EngineClosed, EngineDead) as error:
                if not self._goes_on or self._unwanted.is_set():
                    await self._fail(error)
                else:  # the next process goes on with it
                    self._break_off(error)
                return
            except asyncio.CancelledError:
                self._break_off(EngineClosed("the server is shutting down"))
                raise
            except Exception as error:
                if not isinstance(error, FairstepError):
                    log.exception("response %s failed", self.stored.id)
                await self._fail(error)
                return
        await self._fail(EngineClosed("it was cancelled"))

    async def give_up(self, error: Exception) -> None:
        """End what an earlier process began, with an error. Raises nothing."""
        try:
            if not await self._record.catch_up():
                await self._fail(error)
        except (StoreFailed, Deleted):
            self._break_off(error)

    @property
    def _goes_on(self) -> bool:
        """Whether more lives follow one that came to nothing."""
        return bool(self._body.background) and not self._record.is_new

    def _arrive(self) -> Visit:
        """A place of its own, as nobody brings it one."""
        stored, now = self.stored, self._parts.unix()
        if now >= min(stored.created + WINDOW_SECONDS, stored.deadline or now + 1.0):
            raise DeadlineExceeded("its time was up before it was answered")
        visit = self._parts.arrive(stored)
        self.served.take(visit)
        if self._ask.batch:
            visit.is_batch_work()
        return visit

    async def _live(self, visit: Visit) -> None:
        record, served = self._record, self.served
        generation = Generation(served.engine, served.name, self._ask, self._new_life, visit, record.told.drawn)
        try:
            async with generation.submitted() as (life, [stream]):
                self._give_up = stream.cancel
                if record.is_new:
                    await record.create(life.writer)
                if not self.accepted.done():
                    self.accepted.set_result(None)
                if self._unwanted.is_set():
                    stream.cancel()
                async for delta in stream:
                    if self._unwanted.is_set() and delta.finish_reason == "cancelled":
                        await record.tell(life.writer, life.writer.cancel())
                        return
                    generation.check(0, delta)
                    generation.answered = delta.finish_reason is not None
                    await record.tell(life.writer, life.add(delta), life.new_ids(delta))
        finally:
            self._give_up = _nothing
            generation.leave(cut=self._unwanted.is_set())

    def _new_life(self, model: str, ask: Ask, prompts: Sequence[PromptTokens], tokenizer: Tokenizer) -> "_Life":
        told = self._record.told
        return _Life(self._new_writer(), Tally(len(prompts[0].ids), 1), len(told.drawn))

    def _new_writer(self) -> ResponseWriter:
        stored, told = self.stored, self._record.told
        return ResponseWriter(stored.id, self.served.name, self._body, self._ask, int(stored.created), told)

    async def _fail(self, error: Exception) -> None:
        """Its end is that it failed, or was cancelled."""
        self.error = error
        if self._record.is_new:
            self._break_off(error)
            return
        writer = self._new_writer()
        try:
            await self._record.tell(writer, writer.cancel() if self._unwanted.is_set() else writer.fail(error))
        except (StoreFailed, Deleted):  # where it is unfinished in the store, the next process takes it up
            self._break_off(error)

    def _break_off(self, error: Exception) -> None:
        """Nothing more is heard of it in this process."""
        self.error = self.error or error
        if not self.accepted.done():
            self.accepted.set_exception(error)
            self.accepted.exception()  # seen, whether or not anybody still waits for it
        self.log.break_off(error)

    async def _wait(self, refusal: FairstepError) -> None:
        seconds = min(max(refusal.retry_after or 0.0, PAUSE_SECONDS), LONGEST_PAUSE)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._unwanted.wait()


class _Life:
    """What the engine's deltas are in one life. again: how many ids it tells again."""

    def __init__(self, writer: ResponseWriter, tally: Tally, again: int) -> None:
        self.id = writer.id
        self.tally = tally
        self.writer = writer
        self._again = again

    def add(self, delta: Delta) -> list[Json]:
        """The events of a delta."""
        self.tally.add(0, delta)
        events = self.writer.add(delta)
        return events + self.writer.end(delta.finish_reason, self.tally) if delta.finish_reason else events

    def new_ids(self, delta: Delta) -> tuple[int, ...]:
        """Those of its ids that were not told before."""
        new = delta.token_ids[self._again :]
        self._again -= len(delta.token_ids) - len(new)
        return new


def _nothing() -> None:
    pass

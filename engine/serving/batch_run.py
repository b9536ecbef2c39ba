"""One batch in the making: lines are answered many at once, and each result is appended before the next is taken.

Its files are what it knows of itself: a process that takes it up answers the lines that have no result there yet.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from uuid import uuid4

import msgspec

from ..errors import EngineClosed, EngineDead, StoreFailed
from ..meters.durable import DurableMeter, LineOutcome
from ..stores.appended_lines import AppendedLines
from ..stores.aside import Aside
from ..stores.batch_store import ENDS, Batch, BatchStore
from ..stores.file_store import FileStore, StoredFile
from .batch_lines import Line, lines_in
from .limits import Limits

PAUSE_SECONDS = 1.0  # before what failed for now is tried again
LONGEST_PAUSE = 30.0
OUTPUT, ERRORS = "output", "errors"
T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LineReply:
    """What a line got. retry_after: it was refused for now, and may try again in so many seconds; None: that is all."""

    status: int
    body: bytes
    request_id: str
    retry_after: float | None = None


class Answer(Protocol):
    """Answers a line within so many seconds; None once `gone` is set. Raises EngineClosed or EngineDead."""

    def __call__(self, line: Line, seconds: float, gone: asyncio.Event) -> Awaitable[LineReply | None]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """What batches are made with. unix: Unix seconds. at_once: how many lines of a batch may be in the server."""

    batches: BatchStore
    files: FileStore
    aside: Aside
    limits: Limits
    unix: Callable[[], float]
    at_once: Callable[[], int]
    meter: DurableMeter


class BatchRun:
    """`batch` is how far it is."""

    def __init__(self, shop: Workshop, batch: Batch, answer: Answer) -> None:
        self.batch = batch
        self._shop = shop
        self._answer = answer
        self._unwanted = asyncio.Event()
        self._is_late = False
        self._results: dict[str, AppendedLines] = {}
        self._opened = ExitStack()
        if batch.status == "cancelling":
            self._unwanted.set()

    async def cancel(self) -> None:
        """End it, soon. Raises StoreFailed."""
        if self.batch.status in ENDS or self.batch.status == "cancelling":
            return
        self._set(status="cancelling", cancelling=int(self._shop.unix()))
        await self._shop.aside.run(self._save)
        self._unwanted.set()

    async def work(self) -> None:
        """To its end, or until the engine has ended: then the next process goes on."""
        with self._opened:
            try:
                lines = await self._patiently(self._left)
                batch = self.batch
                self._shop.meter.batch_begun(batch.id, batch.total - batch.completed - batch.failed)
                async with asyncio.TaskGroup() as group:
                    for _ in range(self._shop.at_once()):
                        group.create_task(self._answer_all(lines))
                await self._end()
            except* (EngineClosed, EngineDead) as closed:
                log.warning("batch %s is left to the next server: %s", self.batch.id, closed.exceptions[0])
            except* Exception:
                log.exception("batch %s failed", self.batch.id)
                self._set(status="failed", ended=int(self._shop.unix()))
                with suppress(StoreFailed):
                    await self._shop.aside.run(self._save)
            finally:
                self._shop.meter.batch_ended(self.batch.id)

    def _left(self) -> Iterator[Line]:
        """The lines that have no result yet."""
        done = set()
        for kind in (OUTPUT, ERRORS):
            file_id = getattr(self.batch, kind)
            if file_id is None:
                continue
            results = self._results[kind] = self._results_in(file_id)
            found = set()
            for result in results:
                found.add(result["custom_id"])
                self._is_late = self._is_late or result["error"] is not None
            self._set(**{"completed" if kind == OUTPUT else "failed": len(found)})
            done |= found
        lines = lines_in(self._shop.files.path(self.batch.input), self._shop.limits)
        return (line for line in lines if line.custom_id not in done)

    async def _answer_all(self, lines: Iterator[Line]) -> None:
        """Line after line, beside others that do the same."""
        for line in lines:
            reply = await self._reply(line)
            if reply is None:
                return
            await self._write(line, reply)

    async def _reply(self, line: Line) -> LineReply | None:
        """A line's last word; None: nobody wants it any more."""
        while not self._unwanted.is_set():
            left = self.batch.expires - self._shop.unix()
            if left <= 0:
                self._is_late = True
                return LineReply(0, b"", "")
            reply = await self._answer(line, left, self._unwanted)
            if reply is None or reply.retry_after is None:
                return reply
            await self._pause(reply.retry_after)
        return None

    async def _write(self, line: Line, reply: LineReply) -> None:
        kind = OUTPUT if reply.status == 200 else ERRORS
        result = msgspec.json.encode(_result(line, reply))
        await self._patiently(lambda: self._results_of(kind).append(result))
        counted: LineOutcome = "completed" if kind == OUTPUT else "failed"
        self._shop.meter.line(self.batch.id, counted)
        self._set(**{counted: getattr(self.batch, counted) + 1})

    def _results_of(self, kind: str) -> AppendedLines:
        """The file for such results, which is there from the first of them on."""
        if kind in self._results:
            return self._results[kind]
        batch, files = self.batch, self._shop.files
        file = StoredFile(
            f"file-{uuid4().hex}", batch.tenant, int(self._shop.unix()), f"{batch.id}_{kind}.jsonl", "batch_output"
        )
        files.add(file)
        self._set(**{kind: file.id})
        self._save()
        self._results[kind] = self._results_in(file.id)
        return self._results[kind]

    def _results_in(self, file_id: str) -> AppendedLines:
        return self._opened.enter_context(AppendedLines(self._shop.files.path(file_id)))

    async def _end(self) -> None:
        status = "expired" if self._is_late else "completed"
        self._set(status="cancelled" if self._unwanted.is_set() else status, ended=int(self._shop.unix()))
        await self._patiently(self._save)

    async def _patiently(self, action: Callable[[], T]) -> T:
        """What must be done, as soon as the store can do it."""
        waits = False
        while True:
            try:
                return await self._shop.aside.run(action)
            except StoreFailed as problem:
                if not waits:
                    log.warning("batch %s waits: %s", self.batch.id, problem)
                waits = True
                await asyncio.sleep(PAUSE_SECONDS)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(min(max(seconds, PAUSE_SECONDS), LONGEST_PAUSE)):
                await self._unwanted.wait()

    def _save(self) -> None:
        self._shop.batches.save(self.batch)

    def _set(self, **changes: Any) -> None:
        self.batch = msgspec.structs.replace(self.batch, **changes)


def _result(line: Line, reply: LineReply) -> dict[str, Any]:
    made = {"id": f"batch_req_{uuid4().hex}", "custom_id": line.custom_id, "response": None, "error": None}
    if not reply.status:
        late = {"code": "batch_expired", "message": "the batch's time was up before this line was answered"}
        return {**made, "error": late}
    body = msgspec.Raw(reply.body)
    return {**made, "response": {"status_code": reply.status, "request_id": reply.request_id, "body": body}}

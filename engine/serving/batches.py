"""The routes of /v1/batches. Owner of those in the making; a server that starts goes on with those of earlier ones."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from uuid import uuid4

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Scope

from ..errors import Conflict, EngineClosed, EngineDead, FairstepError, InvalidRequest, TenantQueueFull
from ..stores.batch_store import ENDS, Batch
from ..tenants import TenantTerms
from .answer_log import AnswerLog
from .batch_lines import ENDPOINTS, Line, lines_in
from .batch_run import BatchRun, LineReply, Workshop
from .body import parse_object, read_body
from .deadline_fields import DEADLINE_HEADER
from .files import PURPOSE, Files
from .protocol import Body
from .replies import JsonReply, failure_of
from .response_body import check_metadata
from .tenant_book import TenantBook
from .tenant_check import TERMS, terms_of

MOST_UNFINISHED = 20  # of a tenant
HOUR = 3600
_WINDOW = re.compile(r"([1-9]|1[0-9]|2[0-4])h")

Route = Callable[[Request], Awaitable[Response]]


class BatchBody(Body):
    """POST /v1/batches."""

    input_file_id: str
    endpoint: str
    completion_window: str
    metadata: dict[str, str] | None = None


class Batches:
    """routes: what answers a line, by its url. Call it on the engine's loop."""

    def __init__(self, shop: Workshop, files: Files, book: TenantBook, routes: Mapping[str, Route]) -> None:
        self._shop = shop
        self._files = files
        self._book = book
        self._routes = routes
        self._runs: dict[str, BatchRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def create(self, request: Request) -> Response:
        """POST /v1/batches"""
        limits, tenant = self._shop.limits, terms_of(request.scope).name
        body = BatchBody.of(parse_object(await read_body(request, limits.body_bytes, limits.body_seconds)))
        window = _WINDOW.fullmatch(body.completion_window)
        if window is None:
            raise InvalidRequest("completion_window must be 24h, or fewer hours from 1h on", "completion_window")
        if body.endpoint not in ENDPOINTS:
            raise InvalidRequest(f"endpoint must be one of {', '.join(ENDPOINTS)}", "endpoint")
        check_metadata(body.metadata or {})
        file = await self._files.find(request, body.input_file_id)
        if file.purpose != PURPOSE:
            raise InvalidRequest(f"the file was not uploaded with purpose {PURPOSE}", "input_file_id")
        if sum(run.batch.tenant == tenant for run in self._runs.values()) >= MOST_UNFINISHED:
            raise TenantQueueFull(f"{MOST_UNFINISHED} batches of yours are unfinished, the most at a time")
        total = await asyncio.to_thread(self._counted, file.id, body.endpoint)
        now = int(self._shop.unix())
        batch = Batch(
            id=f"batch_{uuid4().hex}",
            tenant=tenant,
            endpoint=body.endpoint,
            input=file.id,
            created=now,
            expires=now + int(window[1]) * HOUR,
            total=total,
            window=body.completion_window,
            metadata=body.metadata or {},
        )
        await self._shop.aside.run(lambda: self._shop.batches.save(batch))
        self._start(batch)
        return JsonReply(told(batch))

    async def index(self, request: Request) -> Response:
        """GET /v1/batches: all of them, the newest first."""
        tenant = terms_of(request.scope).name
        batches = await self._shop.aside.run(lambda: self._shop.batches.of_tenant(tenant))
        return JsonReply({"object": "list", "data": [told(self._now(each)) for each in batches], "has_more": False})

    async def get(self, request: Request, batch_id: str) -> Response:
        """GET /v1/batches/{id}"""
        return JsonReply(told(self._now(await self._find(request, batch_id))))

    async def cancel(self, request: Request, batch_id: str) -> Response:
        """POST /v1/batches/{id}/cancel: of one that has ended nothing changes."""
        batch = await self._find(request, batch_id)
        if (run := self._runs.get(batch.id)) is not None:
            await run.cancel()
        return JsonReply(told(self._now(batch)))

    async def delete_file(self, request: Request, file_id: str) -> Response:
        """DELETE /v1/files/{id}, unless a batch in the making needs it."""
        if any(file_id in (each.batch.input, each.batch.output, each.batch.errors) for each in self._runs.values()):
            raise Conflict("a batch that has not ended needs this file")
        return await self._files.delete(request, file_id)

    async def resume(self) -> None:
        """Take up what earlier processes have left unfinished. Raises StoreFailed."""
        for batch in await self._shop.aside.run(self._shop.batches.unfinished):
            self._start(batch)

    def check(self) -> None:
        """Assert that what is in the making is being made."""
        assert all(batch_id == run.batch.id for batch_id, run in self._runs.items())
        assert len(self._runs) == len(self._tasks), "a batch in the making is not worked on"

    def _start(self, batch: Batch) -> None:
        async def answer(line: Line, seconds: float, gone: asyncio.Event) -> LineReply | None:
            return await answered(self._routes[line.url], line, self._book.current.of(batch.tenant), seconds, gone)

        run = self._runs[batch.id] = BatchRun(self._shop, batch, answer)
        task = asyncio.create_task(run.work())
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            del self._runs[batch.id]

        task.add_done_callback(ended)

    def _now(self, batch: Batch) -> Batch:
        """As far as it is by now."""
        run = self._runs.get(batch.id)
        return batch if run is None else run.batch

    async def _find(self, request: Request, batch_id: str) -> Batch:
        tenant = terms_of(request.scope).name
        batch = await self._shop.aside.run(lambda: self._shop.batches.find(batch_id, tenant))
        if batch is None:
            raise HTTPException(404, f"there is no batch {batch_id[:100]!r}")
        return batch

    def _counted(self, file_id: str, endpoint: str) -> int:
        total = 0
        for line in lines_in(self._shop.files.path(file_id), self._shop.limits):
            if line.url != endpoint:
                raise InvalidRequest(f"{line.custom_id[:100]!r} is for {line.url}, not for {endpoint}", "endpoint")
            total += 1
        return total


async def answered(
    route: Route, line: Line, terms: TenantTerms, seconds: float, gone: asyncio.Event
) -> LineReply | None:
    """The reply of a route to a line, as over HTTP; None once `gone` is set. Raises EngineClosed or EngineDead."""
    body = msgspec.json.encode({**line.body, "service_tier": "batch"})
    request_id, bodies = f"req_{uuid4().hex}", [body]

    async def receive() -> Message:
        if bodies:
            return {"type": "http.request", "body": bodies.pop(), "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    scope: Scope = {
        "type": "http",
        "method": "POST",
        "path": line.url,
        "query_string": b"",
        "headers": [
            (b"content-type", b"application/json"),
            (DEADLINE_HEADER.lower().encode(), b"%d" % max(1, int(seconds * 1000))),
        ],
        "state": {TERMS: terms},
    }
    reply = AnswerLog()
    try:
        await (await route(Request(scope, receive)))(scope, receive, reply.take)
    except ClientDisconnect:
        return None
    except (EngineClosed, EngineDead):
        raise
    except (FairstepError, HTTPException) as error:
        failure = failure_of(error)
        may_retry = failure.status in (429, 503) and failure.headers.get("x-should-retry") != "false"
        again = float(failure.headers["Retry-After"]) if may_retry else None
        return LineReply(failure.status, msgspec.json.encode(failure.body()), request_id, again)
    return LineReply(reply.status, b"".join(reply.whole), request_id)


def told(batch: Batch) -> dict[str, Any]:
    """A batch as the protocol tells it."""
    ended = {f"{status}_at": batch.ended if batch.status == status else None for status in ENDS}
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "errors": None,
        "input_file_id": batch.input,
        "completion_window": batch.window,
        "status": batch.status,
        "output_file_id": batch.output,
        "error_file_id": batch.errors,
        "created_at": batch.created,
        "in_progress_at": batch.created,
        "expires_at": batch.expires,
        "finalizing_at": batch.ended,
        **ended,
        "cancelling_at": batch.cancelling,
        "request_counts": {"total": batch.total, "completed": batch.completed, "failed": batch.failed},
        "metadata": batch.metadata,
    }

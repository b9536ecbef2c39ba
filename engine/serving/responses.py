"""The responses of /v1/responses: made, told, told again from any event on, cancelled, deleted, and gone on with.

Owner of those in the making. What is stored belongs to a tenant, and nobody else finds it.
"""

import asyncio
import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..admission.deadlines import Deadlines
from ..errors import Conflict, EngineClosed, FairstepError, InvalidRequest, UnknownModel
from ..meters.durable import DurableMeter
from ..reception import Reception, Visit
from ..stores.response_store import StoredEvent, StoredResponse
from ..stores.state import State
from .ask import Ask
from .disconnect import until_disconnect
from .event_log import EventLog, EventReply
from .limits import Limits
from .models import Models, Served
from .replies import JsonReply
from .response_body import ResponseBody, response_ask
from .response_run import Parts, ResponseRun
from .sse import named_event
from .tenant_book import TenantBook
from .tenant_check import terms_of

ROUTE = "/v1/responses"
SEED_BITS = 63
JSON = "application/json"
log = logging.getLogger(__name__)
MOST_ATTEMPTS = 5  # processes that may begin a response: one that ends them is not begun for ever


@dataclass(frozen=True, slots=True)
class ResponseAsk:
    """A checked body, with all that makes it again after a restart."""

    body: ResponseBody
    ask: Ask
    fields: Mapping[str, Any]


def asked_response(fields: Mapping[str, Any], limits: Limits) -> ResponseAsk:
    """Check a body. Raises InvalidRequest."""
    body, ask = response_ask(fields, limits)
    return ResponseAsk(body, ask, fields)


class Responses:
    """Call it on the engine's loop."""

    def __init__(
        self,
        models: Models,
        limits: Limits,
        reception: Reception,
        book: TenantBook,
        state: State,
        meter: DurableMeter,
    ) -> None:
        self._models = models
        self._meter = meter
        self._limits = limits
        self._reception = reception
        self._book = book
        self._store = state.responses
        self._aside = state.aside
        self._survives = state.folder is not None
        self._parts = Parts(
            store=state.responses,
            aside=state.aside,
            unix=reception.unix,
            arrive=self._arrive,
        )
        self._runs: dict[str, ResponseRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # --- made

    def reply(self, asked: ResponseAsk, visit: Visit, served: Served) -> "ResponseReply":
        """What makes a response and tells it. Raises InvalidRequest for a promise that could not be kept."""
        if asked.body.background and not self._survives:
            raise InvalidRequest("background responses need a server that was started with --state", "background")
        if asked.body.background:
            asked = self._seeded(asked)
        now, whole = self._reception.unix(), visit.deadlines.whole
        record = StoredResponse(
            id=f"resp_{uuid4().hex}",
            tenant=visit.terms.name,
            created=now,
            background=bool(asked.body.background),
            deadline=None if whole is None else now + whole - self._reception.now(),
            request=msgspec.json.encode(asked.fields),
            whole=b"",
        )
        run = ResponseRun(self._parts, served, record, asked.body, asked.ask)
        return ResponseReply(self, run, asked, visit, self._limits.ping_seconds)

    def _seeded(self, asked: ResponseAsk) -> ResponseAsk:
        """With a seed of its own, so that what goes on after a restart draws what it would have drawn."""
        if asked.fields.get("seed") is not None:
            return asked
        return asked_response({**asked.fields, "seed": secrets.randbits(SEED_BITS)}, self._limits)

    def start(self, run: ResponseRun, visit: Visit | None) -> None:
        """Let a run do its work beside everything else."""
        response_id = run.stored.id
        self._runs[response_id] = run
        run.served.enter()
        self._meter.response_begun()
        task = asyncio.create_task(run.work(visit))
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            del self._runs[response_id]
            run.served.leave()
            self._meter.response_ended(run.outcome)

        task.add_done_callback(ended)

    async def resume(self) -> None:
        """Take up what earlier processes have left unfinished. Raises StoreFailed."""
        left = await self._aside.run(self._store.unfinished)
        for record in left:
            try:
                asked = asked_response(msgspec.json.decode(record.request), self._limits)
                served = self._models.of(asked.ask.model)
            except (InvalidRequest, UnknownModel) as problem:  # under another version's rules, or other models
                log.warning("response %s is not gone on with: %s", record.id, problem)
                continue
            run = ResponseRun(self._parts, served, record, asked.body, asked.ask, is_new=False)
            if not record.background:
                await run.give_up(FairstepError("the server ended while it was being answered"))
            elif record.attempts >= MOST_ATTEMPTS:
                await run.give_up(FairstepError(f"{record.attempts} servers ended while it was being answered"))
            else:
                await self._aside.run(partial(self._store.begin_again, record.id))
                self.start(run, None)

    # --- told

    async def get(self, request: Request, response_id: str) -> Response:
        """GET /v1/responses/{id}, as an object or, with stream=true, as events."""
        record = await self._find(request, response_id)
        if request.query_params.get("stream", "false").lower() not in ("true", "1"):
            return Response(record.whole, media_type=JSON)
        after = _after(request)
        run = self._runs.get(response_id)
        if run is not None:
            return EventReply(run.log, after, self._limits.ping_seconds)
        events = await self._aside.run(lambda: self._store.events(response_id))
        if not events:
            raise HTTPException(410, "the events of this response are not kept any more; the response itself is")
        return EventReply(EventLog(_sse(events), ended=True), after, self._limits.ping_seconds)

    async def cancel(self, request: Request, response_id: str) -> Response:
        """POST /v1/responses/{id}/cancel: of one that has ended nothing changes."""
        record = await self._find(request, response_id)
        run = self._runs.get(response_id)
        if record.ended is None and not record.background:
            raise Conflict("only background responses are cancelled so: of others, close the connection")
        if run is None or record.ended is not None:
            return Response(record.whole, media_type=JSON)
        run.cancel()
        await run.log.until_end()
        return Response(run.stored.whole, media_type=JSON)

    async def delete(self, request: Request, response_id: str) -> Response:
        """DELETE /v1/responses/{id}: it ends, and nobody finds it any more."""
        tenant = terms_of(request.scope).name
        if not await self._aside.run(lambda: self._store.delete(response_id, tenant)):
            raise _unknown(response_id)
        run = self._runs.get(response_id)
        if run is not None:
            run.cancel()
        return JsonReply({"id": response_id, "object": "response", "deleted": True})

    async def _find(self, request: Request, response_id: str) -> StoredResponse:
        tenant = terms_of(request.scope).name
        record = await self._aside.run(lambda: self._store.find(response_id, tenant))
        if record is None:
            raise _unknown(response_id)
        return record

    # --- gone on with

    def _arrive(self, record: StoredResponse) -> Visit:
        """A place for what nobody waits for at the door. Raises TenantLimited or ServerOverloaded."""
        visit = self._reception.arrive(self._book.current.of(record.tenant), ROUTE, len(record.request))
        if record.deadline is not None:
            left = record.deadline - self._reception.unix()
            visit.deadlines = Deadlines(whole=self._reception.now() + left)
        return visit

    def check(self) -> None:
        """Assert that what is in the making is being made."""
        assert all(name == run.stored.id for name, run in self._runs.items())
        assert len(self._runs) == len(self._tasks), "a response in the making is not worked on"


class ResponseReply(Response):
    """Makes a response when it is sent, and tells it as it was asked for. See once.Work."""

    def __init__(
        self, responses: Responses, run: ResponseRun, asked: ResponseAsk, visit: Visit, ping_seconds: float
    ) -> None:
        super().__init__()
        self._responses = responses
        self._run = run
        self._asked = asked
        self._visit = visit
        self._ping_seconds = ping_seconds

    @property
    def answered(self) -> bool:
        """Whether it may be kept: an object of the background once it is accepted, all else once it is complete."""
        if self._asked.body.background and not self._asked.ask.stream:
            return self._run.accepted.done() and self._run.accepted.exception() is None
        return self._run.answered

    def drop(self) -> None:
        """It will not be called."""
        self._visit.leave(0, answered=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        run = self._run
        self._responses.start(run, self._visit)
        if self._asked.body.background:
            await run.until_accepted()
            reply = self._events() if self._asked.ask.stream else Response(run.stored.whole, media_type=JSON)
            await reply(scope, receive, send)
            return
        try:
            reply = await until_disconnect(receive, self._begun())
            await reply(scope, receive, send)
        except asyncio.CancelledError:
            raise EngineClosed("the server is shutting down") from None
        finally:
            run.cancel()

    async def _begun(self) -> Response:
        """A stream once it is accepted, an object once it is complete."""
        run = self._run
        await run.until_accepted()
        if self._asked.ask.stream:
            return self._events()
        await run.log.until_end()
        if run.error is not None:
            raise run.error
        return Response(run.stored.whole, media_type=JSON)

    def _events(self) -> EventReply:
        return EventReply(self._run.log, -1, self._ping_seconds)


def _after(request: Request) -> int:
    """The number of the last event that a client has, from the query or from the header of an EventSource."""
    given = request.query_params.get("starting_after", request.headers.get("last-event-id"))
    if given is None:
        return -1
    if not (given.isascii() and given.isdecimal() and len(given) < 10):
        raise InvalidRequest(f"starting_after must be an event's number, not {given[:40]!r}", "starting_after")
    return int(given)


def _sse(events: list[StoredEvent]) -> list[bytes]:
    return [named_event(msgspec.json.decode(each.event)["type"], each.event, each.number) for each in events]


def _unknown(response_id: str) -> HTTPException:
    return HTTPException(404, f"there is no response {response_id[:100]!r}")

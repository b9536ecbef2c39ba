"""What the routes of one engine do: a body is read, given a place, checked, and answered. Knows no application."""

import asyncio
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fastapi import Request, Response

from ..clock import wall_time
from ..errors import UnknownModel
from ..reception import Reception, Visit
from .ask import Ask, chat_ask, completion_ask
from .body import OFF_LOOP_BYTES, parse_object, read_body
from .chat import ChatWriter
from .completions import TextWriter
from .deadline_fields import DEADLINE_HEADER, deadlines_of
from .exchange import Exchange
from .idempotency_key import Claim, claim_of, key_in, prefers_wait
from .limits import Limits
from .once import Once
from .protocol import DetokenizeBody
from .replies import JsonReply
from .responses import ResponseReply, Responses, asked_response
from .tenant_check import route_path, terms_of
from .tokenizing import detokenize_reply, tokenize_ask, tokenize_reply
from .writer import Writer

if TYPE_CHECKING:
    from ..async_engine import AsyncEngine

T = TypeVar("T")
LINES_PER_SEAT = 2
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class _Asked(Generic[T]):
    """A checked body that has its place, and what its idempotency key claims."""

    what: T
    visit: Visit
    claim: Claim | None


class Service:
    """The routes of one engine under one model name."""

    def __init__(
        self,
        engine: "AsyncEngine",
        model: str,
        limits: Limits,
        reception: Reception,
        once: Once,
        responses: Responses,
    ) -> None:
        self._once = once
        self._responses = responses
        self._engine = engine
        self._model = model
        self._limits = limits
        self._reception = reception
        self._created = wall_time()

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions"""
        return await self._generate(request, ChatWriter, lambda body: chat_ask(body, self._limits))

    async def completions(self, request: Request) -> Response:
        """POST /v1/completions"""
        return await self._generate(request, TextWriter, lambda body: completion_ask(body, self._limits))

    async def respond(self, request: Request) -> Response:
        """POST /v1/responses"""
        asked = await self._let_in(request, lambda fields: asked_response(fields, self._limits), lambda of: of.ask)
        with asked.visit.refusals():
            return await self._answered(request, asked, self._responses.reply(asked.what, asked.visit))

    def lines_at_once(self) -> int:
        """Lines of a batch that may be in the server: whenever a seat comes free, one waits for it."""
        return LINES_PER_SEAT * self._engine.info.seats

    async def tokenize(self, request: Request) -> Response:
        """POST /tokenize"""
        raw = await self._read(request)
        with self._place(request, len(raw)):
            asked = await _checked(raw, tokenize_ask)
            self._check_model(asked.model)
            self._engine.check_alive()
            return JsonReply(await tokenize_reply(self._engine, asked))

    async def detokenize(self, request: Request) -> Response:
        """POST /detokenize"""
        raw = await self._read(request)
        with self._place(request, len(raw)):
            asked = await _checked(raw, DetokenizeBody.of)
            self._check_model(asked.model)
            self._engine.check_alive()
            return JsonReply(await detokenize_reply(self._engine, asked))

    async def models(self) -> Response:
        """GET /v1/models"""
        return JsonReply({"object": "list", "data": [self._card()]})

    async def model(self, name: str) -> Response:
        """GET /v1/models/{name}"""
        self._check_model(name)
        return JsonReply(self._card())

    async def metrics(self) -> Response:
        """GET /metrics"""
        return Response(self._engine.render_metrics(), media_type=METRICS_TYPE)

    async def health(self) -> Response:
        """GET /health: 200 while a worker is ready, else 503 that says why."""
        self._engine.check_ready()
        return Response()

    async def _generate(
        self, request: Request, writer: type[Writer], check: Callable[[Mapping[str, Any]], Ask]
    ) -> Response:
        asked = await self._let_in(request, check, lambda ask: ask)
        seconds = self._limits.ping_seconds
        exchange = Exchange(self._engine, self._model, asked.what, writer, visit=asked.visit, ping_seconds=seconds)
        return await self._answered(request, asked, exchange)

    async def _let_in(
        self, request: Request, check: Callable[[Mapping[str, Any]], T], ask_of: Callable[[T], Ask]
    ) -> "_Asked[T]":
        """A body with a place in the server, checked. Raises what it is refused with."""
        received = self._engine.now()
        raw = await self._read(request)
        visit = self._reception.arrive(terms_of(request.scope), route_path(request.scope), len(raw))
        try:
            with visit.refusals():
                claim_in = self._claims(request)
                what, claim = await _checked(raw, lambda fields: (check(fields), claim_in(fields)))
                ask = ask_of(what)
                self._check_model(ask.model)
                header, ways = request.headers.get(DEADLINE_HEADER), self._reception.admission.allowances
                visit.deadlines = deadlines_of(ask, header, received, ways)
            if ask.batch:
                visit.is_batch_work()
        except BaseException:
            visit.leave(0, answered=False)
            raise
        return _Asked(what, visit, claim)

    async def _answered(self, request: Request, asked: "_Asked[Any]", work: Exchange | ResponseReply) -> Response:
        """`work` itself, or what its idempotency key stands for."""
        if asked.claim is None:
            return work
        with asked.visit.refusals():
            return await self._once.reply(asked.claim, request.scope, work, attach=prefers_wait(request.headers))

    def _claims(self, request: Request) -> Callable[[Mapping[str, Any]], Claim | None]:
        """What a body claims by the request's idempotency key, if it has one. Raises InvalidRequest."""
        key, info = key_in(request.headers), self._engine.info
        if key is None:
            return lambda fields: None
        tenant, route = terms_of(request.scope).name, route_path(request.scope)
        revision = f"{self._model} {info.model} {info.dtype} {info.weights}"
        return lambda fields: claim_of(key, tenant, route, fields, revision)

    @contextmanager
    def _place(self, request: Request, size: int) -> Generator[None, None, None]:
        """A place for what generates nothing: it counts among what is in the server, and takes of no limit."""
        terms = replace(terms_of(request.scope), limits=())
        visit = self._reception.arrive(terms, route_path(request.scope), size)
        try:
            yield
        finally:
            visit.leave(0, answered=False)

    async def _read(self, request: Request) -> bytes:
        return await read_body(request, self._limits.body_bytes, self._limits.body_seconds)

    def _check_model(self, name: str | None) -> None:
        """Raise UnknownModel unless it is the one served; a client need not name it."""
        if name and name != self._model:
            raise UnknownModel(f"the model {name[:200]!r} is not served here; {self._model!r} is")

    def _card(self) -> dict[str, Any]:
        return {
            "id": self._model,
            "object": "model",
            "created": self._created,
            "owned_by": "fairstep",
            "root": self._model,
            "parent": None,
            "max_model_len": self._engine.info.context,
            "permission": [],
        }


async def _checked(raw: bytes, check: Callable[[Mapping[str, Any]], T]) -> T:
    """A body's object, checked; that of a long one off the event loop."""
    if len(raw) > OFF_LOOP_BYTES:
        return await asyncio.to_thread(lambda: check(parse_object(raw)))
    return check(parse_object(raw))

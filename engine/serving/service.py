"""What the routes do: a body is read, given a place, checked, and answered by the model it names. Knows no
application."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from fastapi import Request, Response

from ..meters.durable import DurableMeter
from ..reception import Reception, Visit
from .ask import Ask, chat_ask, completion_ask
from .body import OFF_LOOP_BYTES, parse_object, read_body
from .chat import ChatWriter
from .completions import TextWriter
from .deadline_fields import DEADLINE_HEADER, deadlines_of
from .exchange import Exchange
from .idempotency_key import Claim, claim_of, key_in, prefers_wait
from .limits import Limits
from .models import Models, Served
from .off_loop import off_loop_if
from .once import Once
from .protocol import DetokenizeBody
from .replies import JsonReply
from .responses import ResponseReply, Responses, asked_response
from .tenant_check import route_path, terms_of
from .tokenizing import detokenize_reply, tokenize_ask, tokenize_reply
from .writer import Writer

T = TypeVar("T")
LINES_PER_SEAT = 2
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class _Asked(Generic[T]):
    """A checked body that has its place, whose it is to answer, and what its idempotency key claims."""

    what: T
    visit: Visit
    served: Served
    claim: Claim | None


class Service:
    """The routes of what generates, and those that tell of the models."""

    def __init__(
        self,
        models: Models,
        limits: Limits,
        reception: Reception,
        once: Once,
        responses: Responses,
        meter: DurableMeter,
    ) -> None:
        self._meter = meter
        self._once = once
        self._responses = responses
        self._models = models
        self._limits = limits
        self._reception = reception

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
            return await self._answered(request, asked, self._responses.reply(asked.what, asked.visit, asked.served))

    def lines_at_once(self) -> int:
        """Lines of a batch that may be in the server: whenever a seat comes free, one waits for it."""
        return LINES_PER_SEAT * sum(served.engine.info.seats for served in self._models)

    async def tokenize(self, request: Request) -> Response:
        """POST /tokenize"""
        raw = await self._read(request)
        with self._place(request, len(raw)):
            asked, _ = await off_loop_if(len(raw), lambda: _checked(raw, tokenize_ask), OFF_LOOP_BYTES)
            with self._models.of(asked.model).used() as engine:
                return JsonReply(await tokenize_reply(engine, asked))

    async def detokenize(self, request: Request) -> Response:
        """POST /detokenize"""
        raw = await self._read(request)
        with self._place(request, len(raw)):
            asked, _ = await off_loop_if(len(raw), lambda: _checked(raw, DetokenizeBody.of), OFF_LOOP_BYTES)
            with self._models.of(asked.model).used() as engine:
                return JsonReply(await detokenize_reply(engine, asked))

    async def models(self) -> Response:
        """GET /v1/models"""
        return JsonReply({"object": "list", "data": [served.card() for served in self._models]})

    async def model(self, name: str) -> Response:
        """GET /v1/models/{name}"""
        return JsonReply(self._models.of(name).card())

    async def metrics(self) -> Response:
        """GET /metrics"""
        return Response(self._models.render(self._meter.stats()), media_type=METRICS_TYPE)

    async def health(self, model: str | None = None) -> Response:
        """GET /health: 200 while a worker is ready, of the model that is named or of any, else 503 that says why.

        Where there are several models, it tells the state of each.
        """
        if model is not None:
            self._models.of(model).engine.check_ready()
            return Response()
        self._models.check_ready()
        return Response() if len(self._models) == 1 else JsonReply({"models": self._models.states()})

    async def _generate(
        self, request: Request, writer: type[Writer], check: Callable[[Mapping[str, Any]], Ask]
    ) -> Response:
        asked = await self._let_in(request, check, lambda ask: ask)
        seconds = self._limits.ping_seconds
        served = asked.served
        exchange = Exchange(served.engine, served.name, asked.what, writer, visit=asked.visit, ping_seconds=seconds)
        return await self._answered(request, asked, exchange)

    async def _let_in(
        self, request: Request, check: Callable[[Mapping[str, Any]], T], ask_of: Callable[[T], Ask]
    ) -> "_Asked[T]":
        """A body with a place in the server, checked. Raises what it is refused with."""
        received = self._reception.now()
        raw = await self._read(request)
        visit = self._reception.arrive(terms_of(request.scope), route_path(request.scope), len(raw))
        try:
            with visit.refusals():
                key = key_in(request.headers)
                what, fields = await off_loop_if(len(raw), lambda: _checked(raw, check), OFF_LOOP_BYTES)
                ask = ask_of(what)
                served = self._models.of(ask.model)
                served.take(visit)
                claim = None
                if key is not None:
                    claims = key, visit.terms.name, route_path(request.scope), fields, served.revision
                    claim = await off_loop_if(len(raw), lambda: claim_of(*claims), OFF_LOOP_BYTES)
                header, ways = request.headers.get(DEADLINE_HEADER), self._reception.admission.allowances
                visit.deadlines = deadlines_of(ask, header, received, ways)
            if ask.batch:
                visit.is_batch_work()
        except BaseException:
            visit.leave(0, answered=False)
            raise
        return _Asked(what, visit, served, claim)

    async def _answered(self, request: Request, asked: "_Asked[Any]", work: Exchange | ResponseReply) -> Response:
        """`work` itself, or what its idempotency key stands for."""
        if asked.claim is None:
            return work
        with asked.visit.refusals():
            attach, replayed = prefers_wait(request.headers), asked.served.engine.replayed
            return await self._once.reply(asked.claim, request.scope, work, replayed, attach=attach)

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


def _checked(raw: bytes, check: Callable[[Mapping[str, Any]], T]) -> tuple[T, Mapping[str, Any]]:
    """A body's object, checked, and as it came."""
    fields = parse_object(raw)
    return check(fields), fields

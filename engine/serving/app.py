"""The HTTP application: routes of the OpenAI protocol over an AsyncEngine. It can be mounted in another ASGI app.

Knows no model and no process; whoever made the engine starts and stops it, unless told otherwise.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from .. import __version__
from ..admission.admission import Admission
from ..admission.bounded_queue import QueueBounds
from ..admission.limit_store import MemoryLimits
from ..clock import wall_time
from ..errors import FairstepError, UnknownModel
from ..reception import Reception
from .ask import Ask, chat_ask, completion_ask
from .body import OFF_LOOP_BYTES, parse_object, read_body
from .chat import ChatWriter
from .completions import TextWriter
from .deadline_fields import DEADLINE_HEADER, deadlines_of
from .exchange import Exchange
from .guard import Guard
from .limits import Limits
from .protocol import DetokenizeBody
from .replies import JsonReply, failure_of
from .tenant_book import TenantBook
from .tenant_check import TenantCheck, route_path, terms_of
from .tokenizing import detokenize_reply, tokenize_ask, tokenize_reply
from .writer import Writer

if TYPE_CHECKING:
    from ..async_engine import AsyncEngine

T = TypeVar("T")
CLIENT_WENT_AWAY = 499  # nobody receives it; middleware around us may count it
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def create_app(
    engine: "AsyncEngine",
    *,
    served_model_name: str | None = None,
    max_body_bytes: int = Limits.body_bytes,
    max_prompts: int = Limits.prompts,
    max_samples: int = Limits.samples,
    ping_seconds: float = Limits.ping_seconds,
    tenants: TenantBook | None = None,
    admission: Admission | None = None,
    manage_engine: bool = False,
) -> FastAPI:
    """An application that serves `engine`, at its root or mounted: `host.mount("/llm", create_app(engine))`.

    served_model_name: the id clients use (default: the engine's). max_prompts: most prompts in one body.
    max_samples: most answers to one prompt. ping_seconds: a stream silent for so long gets an SSE comment.
    tenants: who may use it and on what terms (default: everybody is the tenant `anonymous`). admission: its bounds on
    what may wait, and where it counts (default: 2,000 sequences, in memory).
    manage_engine: start the engine when the application starts, stop it when it ends; a mounted application's lifespan
    is not run, so there the host does it.
    """
    limits = Limits(body_bytes=max_body_bytes, prompts=max_prompts, samples=max_samples, ping_seconds=ping_seconds)
    model = served_model_name or engine.model_name
    door = admission or Admission(QueueBounds(), MemoryLimits())
    reception = Reception(door, model, engine.now, foresee=engine.prospect, refused=engine.refused)
    service = Service(engine, model, limits, reception)
    app = FastAPI(
        title="fairstep",
        version=__version__,
        docs_url=None,  # FastAPI's pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan(engine) if manage_engine else None,
    )
    app.add_middleware(TenantCheck, book=tenants or TenantBook(), reception=reception)
    app.add_middleware(Guard)  # around all of it
    for kind in (FairstepError, HTTPException):
        app.add_exception_handler(kind, _tell)
    app.add_exception_handler(ClientDisconnect, _nobody)
    app.post("/v1/chat/completions")(service.chat)
    app.post("/v1/completions")(service.completions)
    app.post("/tokenize")(service.tokenize)
    app.post("/detokenize")(service.detokenize)
    for path, answer in (
        ("/v1/models", service.models),
        ("/v1/models/{name:path}", service.model),
        ("/metrics", service.metrics),
        ("/health", service.health),
        ("/version", version),
        ("/ping", ping),
    ):
        app.get(path)(answer)
        app.head(path, include_in_schema=False)(answer)  # for probes
    return app


class Service:
    """The routes of one engine under one model name."""

    def __init__(self, engine: "AsyncEngine", model: str, limits: Limits, reception: Reception) -> None:
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
        """GET /health: 200 while the engine can serve, else 503 that says why."""
        self._engine.check_alive()
        return Response()

    async def _generate(
        self, request: Request, writer: type[Writer], check: Callable[[Mapping[str, Any]], Ask]
    ) -> Response:
        received = self._engine.now()
        raw = await self._read(request)
        visit = self._reception.arrive(terms_of(request.scope), route_path(request.scope), len(raw))
        try:
            with visit.refusals():
                ask = await _checked(raw, check)
                self._check_model(ask.model)
                header, ways = request.headers.get(DEADLINE_HEADER), self._reception.admission.allowances
                visit.deadlines = deadlines_of(ask, header, received, ways)
            if ask.batch:
                visit.is_batch_work()
        except BaseException:
            visit.leave(0, answered=False)
            raise
        seconds = self._limits.ping_seconds
        return Exchange(self._engine, self._model, ask, writer, visit=visit, ping_seconds=seconds)

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


async def version() -> Response:
    """GET /version"""
    return JsonReply({"version": __version__})


async def ping() -> Response:
    """GET /ping: the event loop answers."""
    return Response()


async def _tell(_: Request, error: Exception) -> Response:
    return failure_of(error).reply()


async def _nobody(_: Request, error: Exception) -> Response:
    return Response(status_code=CLIENT_WENT_AWAY)


def _lifespan(engine: "AsyncEngine") -> Any:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with engine:
            yield

    return lifespan

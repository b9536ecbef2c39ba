"""The HTTP application: routes of the OpenAI protocol over an AsyncEngine. It can be mounted in another ASGI app.

Knows no model and no process; whoever made the engine starts and stops it, unless told otherwise.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from .. import __version__
from ..admission.admission import Admission
from ..admission.bounded_queue import QueueBounds
from ..admission.limit_store import MemoryLimits
from ..errors import FairstepError
from ..meters.durable import DurableMeter
from ..reception import Reception
from ..stores.state import State
from .durable_routes import add_durable_routes
from .guard import Guard
from .limits import Limits
from .models import Models, Served
from .once import Once
from .replies import JsonReply, failure_of
from .responses import Responses
from .service import Service
from .slow_readers import SlowReaders
from .tenant_book import TenantBook
from .tenant_check import TenantCheck

if TYPE_CHECKING:
    from ..async_engine import AsyncEngine

CLIENT_WENT_AWAY = 499  # nobody receives it; middleware around us may count it


def create_app(
    engine: "AsyncEngine | Models",
    *,
    served_model_name: str | None = None,
    max_body_bytes: int = Limits.body_bytes,
    max_prompts: int = Limits.prompts,
    max_samples: int = Limits.samples,
    ping_seconds: float = Limits.ping_seconds,
    tenants: TenantBook | None = None,
    admission: Admission | None = None,
    state: State | None = None,
    manage_engine: bool = False,
) -> FastAPI:
    """An application that serves `engine`, at its root or mounted: `host.mount("/llm", create_app(engine))`.

    engine: one, or Models, several under names of their own, which can move to others while they are served.
    served_model_name: the id clients use (default: the engine's). max_prompts: most prompts in one body.
    max_samples: most answers to one prompt. ping_seconds: a stream silent for so long gets an SSE comment.
    tenants: who may use it and on what terms (default: everybody is the tenant `anonymous`). admission: its bounds on
    what may wait, and where it counts (default: 2,000 sequences, in memory).
    state: what outlives a request, and with a folder the process (default: in memory). Whoever made it closes it.
    manage_engine: start the engine when the application starts, stop it when it ends; a mounted application's lifespan
    is not run, so there the host does it.
    """
    limits = Limits(body_bytes=max_body_bytes, prompts=max_prompts, samples=max_samples, ping_seconds=ping_seconds)
    models = engine if isinstance(engine, Models) else Models(Served(served_model_name or engine.model_name, engine))
    door = admission or Admission(QueueBounds(), MemoryLimits())
    reception = Reception(  # each time whoever is first then: its name may have moved
        door,
        lambda: models.only_name,
        lambda: models.first.engine.now(),
        refused=lambda *what: models.first.engine.refused(*what),
    )
    state = state or State()
    book = tenants or TenantBook()
    meter = DurableMeter()
    responses = Responses(models, limits, reception, book, state, meter)
    once = Once(state.answers, state.aside, reception.unix)
    service = Service(models, limits, reception, once, responses, meter)
    app = FastAPI(
        title="fairstep",
        version=__version__,
        docs_url=None,  # FastAPI's pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan(models) if manage_engine else None,
    )
    app.state.resume = add_durable_routes(app, service, responses, state, reception, limits, book, meter)
    app.add_middleware(TenantCheck, book=book, reception=reception)
    app.add_middleware(SlowReaders, seconds=limits.stall_seconds)
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


def _lifespan(models: Models) -> Any:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as kept:
            for served in models:
                await kept.enter_async_context(served.engine)
            await app.state.resume()
            yield

    return lifespan

"""The routes of what can be asked for again: responses, and where a folder keeps them, files and batches."""

from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Response

from ..errors import InvalidRequest
from ..meters.durable import DurableMeter
from ..reception import Reception
from ..stores.state import State
from .batch_lines import CHATS, COMPLETIONS
from .batch_run import Workshop
from .batches import Batches
from .files import Files
from .limits import Limits
from .responses import Responses
from .service import Service
from .tenant_book import TenantBook

NEED_STATE = ("/v1/files", "/v1/batches", "/v1/files/{rest:path}", "/v1/batches/{rest:path}")
Resume = Callable[[], Awaitable[None]]


def add_durable_routes(
    app: FastAPI,
    service: Service,
    responses: Responses,
    state: State,
    reception: Reception,
    limits: Limits,
    book: TenantBook,
    meter: DurableMeter,
) -> Resume:
    """Returns what takes up the work that earlier processes have left; to be called once the engine has started."""
    app.post("/v1/responses")(service.respond)
    app.post("/v1/responses/{response_id}/cancel")(responses.cancel)
    app.get("/v1/responses/{response_id}")(responses.get)
    app.delete("/v1/responses/{response_id}")(responses.delete)
    if state.files is None:
        for path in NEED_STATE:
            app.api_route(path, methods=["GET", "POST", "DELETE"], include_in_schema=False)(needs_state)
        return responses.resume
    shop = Workshop(
        batches=state.batches,
        files=state.files,
        aside=state.aside,
        limits=limits,
        unix=reception.unix,
        at_once=service.lines_at_once,
        meter=meter,
    )
    files = Files(state.files, state.aside, reception, limits)
    batches = Batches(shop, files, book, {CHATS: service.chat, COMPLETIONS: service.completions})
    app.post("/v1/files")(files.create)
    app.get("/v1/files")(files.index)
    app.get("/v1/files/{file_id}")(files.get)
    app.get("/v1/files/{file_id}/content")(files.content)
    app.delete("/v1/files/{file_id}")(batches.delete_file)
    app.post("/v1/batches")(batches.create)
    app.get("/v1/batches")(batches.index)
    app.get("/v1/batches/{batch_id}")(batches.get)
    app.post("/v1/batches/{batch_id}/cancel")(batches.cancel)

    async def resume() -> None:
        await responses.resume()
        await batches.resume()

    return resume


async def needs_state() -> Response:
    """Files and batches where nothing survives."""
    raise InvalidRequest("files and batches need a server that was started with --state")

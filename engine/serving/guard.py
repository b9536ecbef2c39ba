"""Around the whole application: every reply carries X-Request-Id, and an exception nobody foresaw becomes a 500.

After this the engine lives, the log has one record, and the client has the error object.
"""

import logging
import re
from uuid import uuid4

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .replies import failure_of

log = logging.getLogger(__name__)
_ACCEPTABLE = re.compile(r"[!-~]{1,128}")


class Guard:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = _request_id(scope)
        started = False

        async def send_tagged(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode("ascii"))]
            await send(message)

        try:
            await self.app(scope, receive, send_tagged)
        except Exception as error:
            if started:  # nothing can be told any more: the server closes the connection and logs
                raise
            log.exception("%s %s failed (X-Request-Id %s)", scope["method"], scope["path"], request_id)
            await failure_of(error).reply()(scope, receive, send_tagged)


def _request_id(scope: Scope) -> str:
    given = Headers(scope=scope).get("x-request-id", "")
    return given if _ACCEPTABLE.fullmatch(given) else uuid4().hex

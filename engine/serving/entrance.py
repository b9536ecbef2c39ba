"""What answers while the model loads: 503 with Retry-After on every path, then the application itself."""

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

LOADING = {"error": {"message": "the model is loading", "type": "unavailable_error", "param": None, "code": "loading"}}


class Entrance:
    """An ASGI application that hands over to `app` once it is set."""

    def __init__(self) -> None:
        self.app: ASGIApp | None = None

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if self.app is not None:
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await _not_yet(send)
        else:
            raise RuntimeError(f"no {scope['type']} while the model loads")


async def _not_yet(send: "Send") -> None:
    body = json.dumps(LOADING).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"retry-after", b"1"),
        (b"retry-after-ms", b"1000"),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})

"""503 until the application is there."""

import asyncio
import json
from typing import Any

import pytest

from fairstep.serving.entrance import Entrance


def messages_of(entrance: Entrance, kind: str = "http") -> list[Any]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request"}

    asyncio.run(entrance({"type": kind, "path": "/health"}, receive, send))
    return sent


def test_while_the_model_loads_everything_is_503_with_a_time_to_retry() -> None:
    start, body = messages_of(Entrance())
    assert start["status"] == 503
    headers = dict(start["headers"])
    assert (headers[b"retry-after"], headers[b"retry-after-ms"]) == (b"1", b"1000")
    assert headers[b"content-length"] == str(len(body["body"])).encode()
    assert json.loads(body["body"])["error"]["code"] == "loading"


def test_once_there_the_application_answers() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(scope["path"])

    entrance = Entrance()
    entrance.app = app
    assert messages_of(entrance) == ["/health"]


def test_other_protocols_are_refused_while_it_loads() -> None:
    with pytest.raises(RuntimeError, match="websocket"):
        messages_of(Entrance(), "websocket")

"""slow_readers.py: a client that takes nothing is gone after a while; one that reads is left alone."""

import asyncio
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from fairstep.serving.slow_readers import SlowReaders
from fakes_serving import run

SCOPE = {"type": "http", "method": "GET", "path": "/"}


async def speaker(scope: Any, receive: Any, send: Any) -> None:
    for word in (b"a", b"b"):
        await send({"type": "http.response.body", "body": word, "more_body": True})


async def nothing() -> Any:
    await asyncio.Future()


def test_who_reads_gets_everything() -> None:
    async def body() -> None:
        got = []

        async def take(message: Any) -> None:
            got.append(message["body"])

        await SlowReaders(speaker, 60.0)(SCOPE, nothing, take)
        assert got == [b"a", b"b"]

    run(body)


def test_who_takes_nothing_has_gone_away() -> None:
    async def body() -> None:
        async def never(message: Any) -> None:
            await asyncio.Future()

        with pytest.raises(ClientDisconnect):
            await SlowReaders(speaker, 0.01)(SCOPE, nothing, never)

    run(body)

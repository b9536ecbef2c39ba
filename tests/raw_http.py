"""For tests of the HTTP side: uvicorn on a free port of this machine, and a client that sees every byte."""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import uvicorn


class Server(uvicorn.Server):
    """uvicorn on a free port of 127.0.0.1 that says when it is up."""

    def __init__(self, app: Any) -> None:
        super().__init__(uvicorn.Config(app, http="h11", lifespan="off", log_level="warning", access_log=False))
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.up = threading.Event()
        self.up_here: Callable[[], None] = lambda: None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()
        self.up_here()

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        await super().serve([self.listener])


@contextmanager
def serving_in_thread(app: Any) -> Iterator[str]:
    """The URL of a server that runs in a thread, for clients that block."""
    server = Server(app)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    try:
        assert server.up.wait(30)
        yield server.url
    finally:
        server.should_exit = True
        thread.join(30)


@asynccontextmanager
async def serving(app: Any) -> AsyncIterator[Server]:
    """A server on this event loop, so that a test can look at the engine between two events."""
    server = Server(app)
    up = asyncio.Event()
    server.up_here = up.set
    running = asyncio.create_task(server.serve())
    try:
        await up.wait()
        yield server
    finally:
        server.should_exit = True
        await running


async def open_raw(
    server: Server, body: Any, path: str = "/v1/chat/completions"
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which `body` was posted."""
    reader, writer = await asyncio.open_connection(*server.listener.getsockname())
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)
    await writer.drain()
    return reader, writer


async def read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """Status and headers, names in lower case."""
    status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines if line)
    return int(status.split()[1]), headers


async def read_part(reader: asyncio.StreamReader) -> bytes:
    """One part of a chunked body; empty at its end."""
    size = int(await reader.readline(), 16)
    part = await reader.readexactly(size + 2)
    assert part.endswith(b"\r\n")
    return part[:-2]


async def read_rest(reader: asyncio.StreamReader) -> bytes:
    """A chunked body to its end."""
    parts = []
    while part := await read_part(reader):
        parts.append(part)
    return b"".join(parts)

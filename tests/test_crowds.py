"""Crowds on real sockets: streams cut after their first chunk, readers at a byte a second, more connections at once
than the queue holds. All are answered or cut alone, a stream beside them keeps its tokens, and all that was held is
let go."""

import asyncio
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from crowded_server import CrowdedServer, crowded_server
from fakes_worker import letter

ALLOWANCE = 48 << 20  # bytes: what allocators, caches and books of tenants may keep
AT_ONCE = 200  # connections that one crowd opens together, but for the last
WINDOW = 2048  # bytes that a slow reader's socket takes
PEER = ("127.0.0.1",)


@dataclass(frozen=True)
class Crowd:
    """How many of each kind; seconds: how long slow readers read a byte a second."""

    cut: int
    slow: int
    at_once: int
    seconds: int


SLICE = Crowd(cut=150, slow=30, at_once=700, seconds=3)
WHOLE = Crowd(cut=1000, slow=200, at_once=2000, seconds=30)


@pytest.fixture
def server() -> Iterator[CrowdedServer]:
    with crowded_server() as server:
        yield server


def request(tokens: int, **more: Any) -> bytes:
    body = json.dumps({"prompt": [97, 98], "max_tokens": tokens, "ignore_eos": True, "stream": True, **more}).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: here\r\nConnection: close\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


@asynccontextmanager
async def asked(port: int, data: bytes, window: int | None = None) -> AsyncIterator[asyncio.StreamReader]:
    """A connection that has sent `data`; it is cut when it is left."""
    sock = socket.socket()
    sock.setblocking(False)
    if window is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
    await asyncio.get_running_loop().sock_connect(sock, (*PEER, port))
    reader, writer = await asyncio.open_connection(sock=sock, limit=window or 1 << 16)
    try:
        writer.write(data)
        yield reader
    finally:
        writer.transport.abort()


async def whole(port: int, data: bytes) -> bytes:
    async with asked(port, data) as reader:
        return await reader.read()


def text_in(reply: bytes) -> str:
    events = [line.removeprefix("data: ") for line in reply.decode().splitlines() if line.startswith("data: {")]
    return "".join(choice["text"] for event in events for choice in json.loads(event)["choices"])


async def cut(port: int) -> int:
    """A stream that is cut after its first chunk; its status."""
    async with asked(port, request(2000)) as reader:
        status = await status_of(reader)
        if status == 200:
            await reader.readuntil(b"data: ")
        return status


async def crawl(port: int, seconds: int) -> int:
    """A stream that is read at a byte a second, and left."""
    async with asked(port, request(1500), WINDOW) as reader:
        status = await status_of(reader)
        for _ in range(seconds):
            await reader.read(1)
            await asyncio.sleep(1)
        return status


async def press_in(port: int) -> int:
    """One of very many, read to its end."""
    reply = await whole(port, request(3))
    status = int(reply.split(b" ", 2)[1])
    assert status != 200 or b"data: [DONE]" in reply
    assert status == 200 or b'"error"' in reply, "it was refused without a word"
    return status


async def status_of(reader: asyncio.StreamReader) -> int:
    return int((await reader.readline()).split(b" ", 2)[1])


async def together(count: int, one: Callable[[], Awaitable[int]], most: int | None = None) -> Counter[int]:
    """So many of them, `most` at once; how many had which status."""
    gate = asyncio.Semaphore(most or count)

    async def let_in() -> int:
        async with gate:
            return await one()

    return Counter(await asyncio.gather(*(let_in() for _ in range(count))))


def play(server: CrowdedServer, crowd: Crowd) -> dict[str, Counter[int]]:
    """Each kind beside a stream of its own, whose text is that of one alone."""
    port = server.port
    kinds: dict[str, Callable[[], Coroutine[Any, Any, Counter[int]]]] = {
        "cut": lambda: together(crowd.cut, lambda: cut(port), AT_ONCE),
        "slow": lambda: together(crowd.slow, lambda: crawl(port, crowd.seconds)),
        "at once": lambda: together(crowd.at_once, lambda: press_in(port)),
    }
    wanted = "".join(chr(letter(place)) for place in range(1000))

    async def beside(run: Callable[[], Coroutine[Any, Any, Counter[int]]]) -> Counter[int]:
        async with asked(port, request(1000)) as normal:
            status = await status_of(normal)
            found, rest = await asyncio.gather(run(), normal.read())
        assert (status, text_in(rest)) == (200, wanted), "the stream beside them was touched"
        return found

    return {name: asyncio.run(beside(run)) for name, run in kinds.items()}


def settled(server: CrowdedServer, before: dict[str, Any]) -> dict[str, Any]:
    """What it holds once all has ended; waits as long as the test may take."""
    while True:
        held = server.held()
        if all(held[kind] <= before[kind] for kind in ("descriptors", "tasks", "places", "live", "pages")):
            return held


def check(server: CrowdedServer, crowd: Crowd) -> None:
    asyncio.run(together(AT_ONCE, lambda: cut(server.port)))  # what is made once, and stays
    asyncio.run(together(10, lambda: press_in(server.port)))
    before = settled(server, dict.fromkeys(("descriptors", "tasks"), 10**6) | {"places": 0, "live": 0, "pages": 0})
    told = play(server, crowd)
    after = settled(server, before)
    print(f"\n{told}\nbefore {before}\nafter  {after}")
    assert told["cut"].total() == crowd.cut and told["slow"] == {200: crowd.slow}
    assert told["at once"].total() == crowd.at_once
    for statuses in told.values():
        assert statuses.keys() <= {200, 429, 503}
    assert told["at once"][200] >= 500 and told["at once"][429] + told["at once"][503] > 0, "nobody had to be refused"
    assert after["bytes"] - before["bytes"] <= ALLOWANCE, "memory was not given back"


@pytest.mark.timeout(120)
def test_a_small_crowd(server: CrowdedServer) -> None:
    check(server, SLICE)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_large_crowd(server: CrowdedServer) -> None:
    check(server, WHOLE)

"""event_log.py: from any event on, as they come, to any number of readers."""

import asyncio

import pytest

from fairstep.errors import EngineClosed
from fairstep.serving.event_log import EventLog, EventReply
from fairstep.serving.sse import PING
from fakes_serving import run


async def rest(log: EventLog, after: int = -1) -> bytes:
    return b"".join([part or b"" async for part in log.read(after)])


def test_each_reader_gets_what_follows_the_event_it_has() -> None:
    async def test() -> None:
        log = EventLog([b"a"])
        readers = [asyncio.create_task(rest(log, after)) for after in (-1, 0, 1, 5)]
        await asyncio.sleep(0)
        log.add([b"b", b"c"])
        await asyncio.sleep(0)
        log.add([b"d"], ended=True)
        assert await asyncio.gather(*readers) == [b"abcd", b"bcd", b"cd", b""]
        assert await rest(log, 2) == b"d"
        await log.until_end()

    run(test)


def test_a_log_that_broke_off_says_why_after_its_events() -> None:
    async def test() -> None:
        log = EventLog()
        log.add([b"a"])
        log.break_off(EngineClosed("closing"))
        reader = log.read(-1)
        assert await anext(reader) == b"a"
        with pytest.raises(EngineClosed):
            await anext(reader)

    run(test)


def test_silence_is_told() -> None:
    async def test() -> None:
        log = EventLog()
        assert await anext(log.read(-1, silence=0.001)) is None

    run(test)


async def sent(log: EventLog, gone: asyncio.Event | None = None, ping: float = 10.0) -> list[dict[str, object]]:
    messages: list[dict[str, object]] = []

    async def send(message: dict[str, object]) -> None:
        messages.append(message)
        if gone is not None and message.get("body") == PING:
            gone.set()

    async def receive() -> dict[str, object]:
        await (gone or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    await EventReply(log, -1, ping)({"type": "http"}, receive, send)  # type: ignore[arg-type]
    return messages


def test_the_last_event_is_the_end_of_the_reply() -> None:
    async def test() -> None:
        log = EventLog([b"a"])
        reading = asyncio.create_task(sent(log))
        for _ in range(5):
            await asyncio.sleep(0)
        log.add([b"b"], ended=True)
        head, *bodies = await reading
        assert head["status"] == 200
        assert [(each["body"], each["more_body"]) for each in bodies] == [(b"a", True), (b"b", False)]
        broken = EventLog([b"a"])
        broken.break_off(EngineClosed("closing"))
        *_, last = await sent(broken)
        assert b"engine_closed" in last["body"] and last["more_body"] is False  # type: ignore[operator]

    run(test)


def test_a_client_that_leaves_ends_its_reading_alone() -> None:
    async def test() -> None:
        log, gone = EventLog(), asyncio.Event()
        messages = await sent(log, gone, ping=0.001)
        assert messages[1]["body"] == PING and messages[-1]["more_body"] is True

    run(test)

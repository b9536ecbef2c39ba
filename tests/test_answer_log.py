"""answer_log.py: every reader gets all bytes, the last ones once it is sealed."""

import asyncio

import pytest

from fairstep.serving.answer_log import AnswerLog
from fakes_serving import run


async def write(log: AnswerLog, *parts: bytes) -> None:
    await log.take({"type": "http.response.start", "status": 200, "headers": []})
    for part in parts[:-1]:
        await log.take({"type": "http.response.body", "body": part, "more_body": True})
    await log.take({"type": "http.response.body", "body": parts[-1], "more_body": False})


async def whole(log: AnswerLog) -> bytes:
    return b"".join([part async for part in log.read()])


def test_readers_that_come_at_any_time_get_the_same_bytes() -> None:
    async def test() -> None:
        log = AnswerLog()
        early = asyncio.create_task(whole(log))
        await asyncio.sleep(0)
        await write(log, b"one", b"two", b"three")
        between = asyncio.create_task(whole(log))
        await asyncio.sleep(0)
        log.seal()
        assert await early == await between == await whole(log) == b"onetwothree"
        assert log.status == 200 and log.size == len(b"onetwothree")

    run(test)


def test_the_last_part_waits_for_the_seal_which_may_replace_it() -> None:
    async def test() -> None:
        log = AnswerLog()
        await write(log, b"one", b"two")
        assert log.begun and log.whole == [b"one", b"two"]
        reader = log.read()
        assert await anext(reader) == b"one"
        rest = asyncio.ensure_future(anext(reader))
        await asyncio.sleep(0)
        assert not rest.done()
        log.seal(b"else")
        assert await rest == b"else"

    run(test)


def test_a_failure_is_raised_to_all_readers() -> None:
    async def test() -> None:
        log = AnswerLog()
        waiting = asyncio.create_task(whole(log))
        await asyncio.sleep(0)
        log.fail(ZeroDivisionError("why"))
        for reading in (waiting, whole(log)):
            with pytest.raises(ZeroDivisionError, match="why"):
                await reading

    run(test)

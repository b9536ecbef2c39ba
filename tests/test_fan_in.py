"""fan_in.py: deltas of several streams in the order in which they come, until all have ended, with word of silences."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from fairstep.request import Delta, Usage
from fairstep.serving.fan_in import fan_in
from fairstep.streams import Stream

SOON, NEVER = 0.001, 1e6
Items = list[tuple[int, Delta] | None]


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await test()

    asyncio.run(bounded())


def streams(count: int) -> list[Stream]:
    return [Stream(str(n), lambda name: None) for n in range(count)]


def token(stream: Stream, text: str) -> None:
    stream.deliver(Delta(stream.request_id, text, (1,)))


def end(stream: Stream) -> None:
    stream.deliver(Delta(stream.request_id, finish_reason="stop", usage=Usage(1, 1)))


async def read(them: Sequence[Stream], into: Items, silence: float | None = NEVER) -> None:
    async for item in fan_in(them, silence):
        into.append(item)


def told(items: Items) -> list[tuple[int, str] | None]:
    return [item and (item[0], item[1].text) for item in items]


def test_each_delta_comes_with_its_streams_place_until_all_have_ended() -> None:
    async def test() -> None:
        them, items = streams(3), Items()
        reader = asyncio.create_task(read(them, items))
        for place, text in ((2, "a"), (0, "b"), (2, "c")):
            await asyncio.sleep(0)
            token(them[place], text)
            await asyncio.sleep(0)
        for stream in them:
            assert not reader.done()
            end(stream)
            await asyncio.sleep(0)
        await reader
        assert told(items) == [(2, "a"), (0, "b"), (2, "c"), (0, ""), (1, ""), (2, "")]

    run(test)


def test_what_came_before_is_read_and_what_piled_up_comes_as_one() -> None:
    async def test() -> None:
        them, items = streams(2), Items()
        for text in "abc":
            token(them[1], text)
        end(them[0])
        end(them[1])
        await read(them, items, None)
        assert told(items) == [(0, ""), (1, "abc")]

    run(test)


def test_what_comes_while_another_is_read_is_not_lost_and_is_no_silence() -> None:
    async def test() -> None:
        them, seen = streams(2), []
        token(them[0], "a")
        async for item in fan_in(them, NEVER):
            seen.append(item and item[1].text)
            if seen == ["a"]:
                token(them[1], "b")  # in this same round
            elif seen == ["a", "b"]:
                end(them[0])
                end(them[1])
        assert seen == ["a", "b", "", ""]

    run(test)


def test_silence_is_told_again_and_again_until_something_comes() -> None:
    async def test() -> None:
        [stream] = streams(1)
        seen: list[bool] = []
        async for item in fan_in([stream], SOON):
            seen.append(item is None)
            if seen.count(True) == 3:
                end(stream)
        assert seen == [True, True, True, False]

    run(test)


def test_a_reader_that_is_cancelled_cancels_the_streams() -> None:
    async def test() -> None:
        cancelled: list[str] = []
        them = [Stream(str(n), cancelled.append) for n in range(2)]
        reader = asyncio.create_task(read(them, []))
        await asyncio.sleep(0)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        assert cancelled == ["0", "1"]
        for stream in them:
            end(stream)

    run(test)

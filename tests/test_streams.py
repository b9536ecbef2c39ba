"""streams.py: deltas in order, merged when the reader is late; leaving in any way cancels, ending never does."""

import asyncio
import gc

import pytest

from fairstep.request import Delta, Usage
from fairstep.streams import MOST_WAITING, PromptStream, Stream

END = Delta("r", "!", (3,), "length", usage=Usage(1, 3))


class Cancels(list[str]):
    """Remembers what was cancelled."""


def run(body: object) -> None:
    asyncio.run(body)  # type: ignore[arg-type]


def test_deltas_that_piled_up_come_as_one() -> None:
    async def body() -> None:
        stream = Stream("r", Cancels().append)
        for delta in (Delta("r", "a", (1,)), Delta("r", "b", (2,)), END):
            stream.deliver(delta)
        assert [d async for d in stream] == [Delta("r", "ab!", (1, 2, 3), "length", usage=Usage(1, 3))]

    run(body())


def test_what_waits_for_a_reader_is_bounded() -> None:
    async def body() -> None:
        stream = Stream("r", Cancels().append)
        for place in range(10 * MOST_WAITING):
            stream.deliver(Delta("r", "a", (place,)))
            assert len(stream._waiting) <= MOST_WAITING
        stream.deliver(END)
        (whole,) = [d async for d in stream]
        assert whole.token_ids == (*range(10 * MOST_WAITING), 3) and whole.finish_reason == "length"

    run(body())


def test_a_reader_in_time_gets_each_delta() -> None:
    async def body() -> None:
        stream = Stream("r", Cancels().append)
        seen = []
        for delta in (Delta("r", "a", (1,)), END):
            stream.deliver(delta)
            seen.append(await anext(stream))
        assert [d.text for d in seen] == ["a", "!"]
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    run(body())


def test_leaving_the_loop_cancels() -> None:
    async def body() -> None:
        cancels = Cancels()

        async def read_one() -> None:
            stream = Stream("r", cancels.append)
            stream.deliver(Delta("r", "a", (1,)))
            async for _ in stream:
                break

        await read_one()
        gc.collect()
        await asyncio.sleep(0)
        assert cancels == ["r"]

    run(body())


def test_cancelling_the_task_cancels_at_once() -> None:
    async def body() -> None:
        cancels = Cancels()
        stream = Stream("r", cancels.append)
        task = asyncio.create_task(anext(stream))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert cancels == ["r"]
        stream.deliver(END)

    run(body())


def test_an_answer_read_to_its_end_is_not_cancelled() -> None:
    async def body() -> None:
        cancels = Cancels()

        async def read_all() -> None:
            async with Stream("r", cancels.append) as stream:
                stream.deliver(END)
                async for _ in stream:
                    pass

        await read_all()
        gc.collect()
        await asyncio.sleep(0)
        assert cancels == []

    run(body())


def test_a_prompt_stream_opens_when_asked_and_never_after_a_cancel() -> None:
    async def body() -> None:
        opened = []

        async def open_stream() -> Stream:
            stream = Stream("r", Cancels().append)
            stream.deliver(END)
            opened.append(stream)
            return stream

        assert [d.text async for d in PromptStream(open_stream)] == ["!"]
        late = PromptStream(open_stream)
        late.cancel()
        assert [d async for d in late] == [] and len(opened) == 1

    run(body())


def test_a_cancel_while_the_prompt_is_tokenized_is_kept() -> None:
    async def body() -> None:
        cancels, tokenized = Cancels(), asyncio.Event()

        async def open_stream() -> Stream:
            await tokenized.wait()
            return Stream("r", cancels.append)

        prompt = PromptStream(open_stream)
        task = asyncio.create_task(anext(prompt))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        prompt.cancel()
        tokenized.set()
        await asyncio.sleep(0)
        assert cancels == ["r"]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(body())

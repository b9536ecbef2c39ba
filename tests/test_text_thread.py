"""text_thread.py: a long text holds up neither the loop nor short texts, and closing waits for nothing."""

import asyncio
import threading

import pytest

from fairstep.text_thread import SHORT_TEXT, TextThread, characters


def test_short_texts_and_the_loop_go_on_while_a_long_one_is_tokenized() -> None:
    async def body() -> None:
        texts, go_on = TextThread(), threading.Event()

        def slow() -> list[int]:
            go_on.wait(60)
            return [1]

        long = asyncio.create_task(texts.run(SHORT_TEXT + 1, slow))
        assert await texts.run(SHORT_TEXT, lambda: [2, 3]) == (2, 3)
        assert not long.done()
        go_on.set()
        assert await long == (1,)
        texts.close()

    asyncio.run(body())


def test_a_long_text_that_waits_is_dropped_when_all_is_closed() -> None:
    async def body() -> None:
        texts, began, go_on = TextThread(), threading.Event(), threading.Event()

        def slow() -> list[int]:
            began.set()
            go_on.wait(60)
            return [1]

        first = asyncio.create_task(texts.run(SHORT_TEXT + 1, slow))
        second = asyncio.create_task(texts.run(SHORT_TEXT + 1, slow))
        await asyncio.to_thread(began.wait, 60)
        texts.close()
        with pytest.raises(asyncio.CancelledError):
            await second
        go_on.set()
        assert await first == (1,)

    asyncio.run(body())


def test_what_fails_fails_for_its_caller() -> None:
    def broken() -> list[int]:
        raise ValueError("no text")

    async def body() -> None:
        with pytest.raises(ValueError, match="no text"):
            await TextThread().run(1, broken)

    asyncio.run(body())


def test_the_plain_texts_of_a_conversation_count_and_what_is_wrong_does_not() -> None:
    assert characters([5, {"content": None}, {"content": "abc"}, {}]) == 3  # type: ignore[list-item]

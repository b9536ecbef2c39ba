"""Results come in the order of the items, whatever takes how long; nothing goes on after the end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairstep.serving.in_order import in_order


async def numbers(count: int) -> AsyncIterator[int]:
    for number in range(count):
        yield number


@given(st.lists(st.integers(0, 5), max_size=30), st.integers(1, 4), st.integers(1, 6))
def test_results_keep_the_items_order_and_the_bounds(turns: list[int], at_once: int, ahead: int) -> None:
    running, most_running, taken, most_ahead, yielded = 0, 0, 0, 0, 0

    async def items() -> AsyncIterator[int]:
        nonlocal taken
        for place in range(len(turns)):
            taken += 1
            yield place

    async def work(place: int) -> int:
        nonlocal running, most_running, most_ahead
        running += 1
        most_running = max(most_running, running)
        most_ahead = max(most_ahead, taken - yielded)
        for _ in range(turns[place]):
            await asyncio.sleep(0)
        running -= 1
        return place

    async def all_of_it() -> list[int]:
        nonlocal yielded
        results = []
        async for result in in_order(items(), work, at_once=at_once, ahead=ahead):
            results.append(result)
            yielded += 1
        return results

    assert asyncio.run(all_of_it()) == list(range(len(turns)))
    assert most_running <= at_once
    assert most_ahead <= ahead + 3  # the one awaited, the one that waits to be put, the one just taken


def test_a_result_comes_while_the_next_item_is_still_awaited() -> None:
    async def items() -> AsyncIterator[int]:
        yield 1
        await asyncio.Future()

    async def work(item: int) -> int:
        return item

    async def first() -> int:
        async with aclosing(in_order(items(), work, at_once=1, ahead=1)) as results:
            return await anext(results)

    assert asyncio.run(asyncio.wait_for(first(), 30)) == 1


def test_an_error_of_the_work_or_the_items_is_raised_in_its_place() -> None:
    async def work(item: int) -> int:
        if item == 2:
            raise ValueError("two")
        return item

    async def failing_items() -> AsyncIterator[int]:
        yield 0
        raise KeyError("items")

    async def collect(items: AsyncIterator[int], into: list[int]) -> None:
        async for result in in_order(items, work, at_once=3, ahead=9):
            into.append(result)

    seen: list[int] = []
    with pytest.raises(ValueError, match="two"):
        asyncio.run(collect(numbers(5), seen))
    assert seen == [0, 1]
    seen.clear()
    with pytest.raises(KeyError, match="items"):
        asyncio.run(collect(failing_items(), seen))
    assert seen == [0]


@pytest.mark.parametrize("ahead", [1, 100])
def test_cancelling_ends_all_work(ahead: int) -> None:
    ended: list[int] = []
    begun = asyncio.Event()

    async def work(item: int) -> int:
        begun.set()
        try:
            await asyncio.Future()
        finally:
            ended.append(item)
        return item

    async def run() -> None:
        async for _ in in_order(numbers(50), work, at_once=2, ahead=ahead):
            pass

    async def cancelled() -> None:
        others = asyncio.all_tasks()
        task = asyncio.create_task(run())
        await begun.wait()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == others

    asyncio.run(asyncio.wait_for(cancelled(), 30))
    assert ended

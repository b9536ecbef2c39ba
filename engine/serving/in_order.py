"""Many pieces of work at once, their results in the order of what they were made from. Knows nothing of either."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


async def in_order(
    items: AsyncIterator[Item], work: Callable[[Item], Awaitable[Result]], *, at_once: int, ahead: int
) -> AsyncGenerator[Result, None]:
    """Yields `work(item)` of each item. At most `at_once` run; at most about `ahead` were taken and not yet yielded.

    Items are awaited beside the work, so results come while the next item is still waited for. The first error ends
    it; however it ends (use contextlib.aclosing), no work goes on.
    """
    running = asyncio.Semaphore(at_once)
    taken: asyncio.Queue[asyncio.Task[Result] | None] = asyncio.Queue(ahead)
    tasks: set[asyncio.Task[Result]] = set()

    async def one(item: Item) -> Result:
        async with running:
            return await work(item)

    async def take() -> None:
        try:
            async for item in items:
                task = asyncio.create_task(one(item))
                tasks.add(task)
                await taken.put(task)
        except Exception:
            await taken.put(None)
            raise
        await taken.put(None)

    taking = asyncio.create_task(take())
    try:
        while (task := await taken.get()) is not None:
            result = await task
            tasks.discard(task)
            yield result
        await taking
    finally:
        for each in (taking, *tasks):
            each.cancel()
        await asyncio.gather(taking, *tasks, return_exceptions=True)

"""The deltas of several streams as one sequence, in the order in which they come. Knows no HTTP."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

from ..request import Delta

Source = AsyncIterator[Delta]
Item = tuple[int, Delta] | Exception | None  # None: a stream has ended


async def fan_in(sources: Sequence[Source], silence: float | None) -> AsyncGenerator[tuple[int, Delta] | None, None]:
    """(place of the stream, delta) until all streams have ended; None after `silence` seconds without a delta.

    Raises what a stream raises. Close it (`aclosing`) to stop reading.
    """
    queue: asyncio.Queue[Item] = asyncio.Queue(maxsize=1)  # a slow reader is felt by the streams, not here
    pumps = [asyncio.create_task(_pump(place, source, queue)) for place, source in enumerate(sources)]
    live = len(pumps)
    try:
        while live:
            try:
                async with asyncio.timeout(silence):
                    item = await queue.get()
            except TimeoutError:
                yield None
                continue
            if isinstance(item, Exception):
                raise item
            if item is None:
                live -= 1
            else:
                yield item
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(place: int, source: Source, queue: "asyncio.Queue[Item]") -> None:
    try:
        async for delta in source:
            await queue.put((place, delta))
    except Exception as error:
        await queue.put(error)
    else:
        await queue.put(None)

"""The deltas of several streams as one sequence, in the order in which they come. Knows no HTTP."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING

from ..request import Delta

if TYPE_CHECKING:
    from ..streams import Stream


async def fan_in(streams: "Sequence[Stream]", silence: float | None) -> AsyncGenerator[tuple[int, Delta] | None, None]:
    """(place of the stream, delta) until all streams have ended; None after `silence` seconds without a delta.

    A slow reader is felt by the streams, which merge what piles up. Close it (`aclosing`) to cancel them.
    """
    arrived = asyncio.Event()
    for stream in streams:
        stream.announce(arrived)
    live, watch = dict(enumerate(streams)), _Silence(silence, arrived)
    try:
        while live:
            await arrived.wait()
            arrived.clear()
            for place, stream in [*live.items()]:
                if (delta := stream.take()) is not None:
                    watch.heard()
                    if delta.finish_reason is not None:
                        del live[place]
                    yield place, delta
            if watch.rings():
                yield None
    finally:
        watch.stop()
        for stream in streams:
            stream.cancel()


class _Silence:
    """Sets an event when nothing was heard for so many seconds, and again after as many more; None: never.

    One timer, which is set anew when it goes off: one for each delta would cost as much as the delta.
    """

    def __init__(self, seconds: float | None, event: asyncio.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = event
        self._heard = self._loop.time()
        self._rang = False
        self._timer = None if seconds is None else self._loop.call_later(seconds, self._look, seconds)

    def heard(self) -> None:
        self._heard = self._loop.time()

    def rings(self) -> bool:
        """Whether it has been silent for so long; asked once, it is over."""
        rang, self._rang = self._rang, False
        return rang

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self, seconds: float) -> None:
        now = self._loop.time()
        if now - self._heard >= seconds:
            self._rang, self._heard = True, now
            self._event.set()
        self._timer = self._loop.call_at(self._heard + seconds, self._look, seconds)

"""Loads models beside those that are served, moves names to them, and ends those that nobody works with any more.

Knows no HTTP and no file. One that cannot be loaded leaves the one before it in its place.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ..errors import FairstepError
from .models import Models, Served

if TYPE_CHECKING:
    from ..async_engine import AsyncEngine

log = logging.getLogger(__name__)
Make = Callable[[str, str], "AsyncEngine"]


class Fleet:
    """Owner of the engines of `models`. make: an engine that has not started, by name and source."""

    def __init__(self, models: Models, make: Make) -> None:
        self.models = models
        self._make = make
        self._moving = asyncio.Lock()
        self._ending: dict[Served, asyncio.Task[None]] = {}

    async def follow(self, wanted: Mapping[str, str]) -> None:
        """Serve these sources by name, one after another; what serves the same files already stays as it is."""
        async with self._moving:
            for name, source in wanted.items():
                served = self.models.get(name)
                if served is None or not served.still_is(source):
                    await self._load(name, source)
            for served in [each for each in self.models if each.name not in wanted]:
                self._end_later(self.models.drop(served.name))

    async def stop(self) -> None:
        """End all engines. Whoever follows is cancelled before, and what it loads ends first."""
        async with self._moving:
            for task in self._ending.values():
                task.cancel()
            await asyncio.gather(*self._ending.values(), return_exceptions=True)
            engines = [served.engine for served in (*self.models, *self._ending)]
            await asyncio.gather(*(engine.stop() for engine in engines))

    async def _load(self, name: str, source: str) -> None:
        served = Served(name, self._make(name, source))  # stamped before it is read
        try:
            await served.engine.start()
        except FairstepError as problem:
            log.error("%s stays as it was: %s could not be loaded: %s", name, source, problem)
            return
        before = self.models.move(served)
        log.info("%s is %s now", name, source)
        self._end_later(before)

    def _end_later(self, served: Served | None) -> None:
        if served is not None:
            self._ending[served] = asyncio.create_task(self._end(served))

    async def _end(self, served: Served) -> None:
        await served.unused()
        await served.engine.stop()
        self.models.forget(served)
        del self._ending[served]
        log.info("%s of before has ended its last answers, and is gone", served.name)

"""The workers of one engine: each under a supervisor, each life with a number of its own. It knows no requests."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from .config import EngineConfig
from .door import Orders, Ready, Report
from .links import Link
from .supervisor import Death, Supervisor


class Owner(Protocol):
    """The engine, as its workers know it. Calls come on the event loop."""

    def on_loading(self, what: str, fraction: float) -> None: ...

    def on_ready(self, number: int, info: Ready, seconds: float) -> None:
        """A worker is ready, so many seconds after its start."""

    def on_report(self, number: int, report: Report) -> None: ...

    def on_death(self, death: Death) -> None:
        """A worker has ended that was not told to."""


class Crew:
    """Supervisors of `count` workers. timeout, restarts: see Supervisor."""

    def __init__(
        self,
        new_link: Callable[[], Link],
        count: int,
        owner: Owner,
        *,
        now: Callable[[], float],
        timeout: float,
        restarts: bool,
    ) -> None:
        self._owner = owner
        self._supervisors = [
            Supervisor(new_link, self, now=now, timeout=timeout, restarts=restarts) for _ in range(count)
        ]
        self._by_number: dict[int, Supervisor] = {}  # those that are ready
        self._lives = 0

    @property
    def size(self) -> int:
        """How many workers are ready."""
        return len(self._by_number)

    @property
    def coming(self) -> list[float]:
        """When each worker that is being started again is expected to be ready."""
        return [each.ready_at for each in self._supervisors if each.ready_at is not None]

    @property
    def links(self) -> list[Link]:
        """Those of the lives that go on."""
        return [each.link for each in self._supervisors if each.link is not None]

    async def start(self, model: str, config: EngineConfig) -> None:
        """Start all workers; they get ready by and by."""
        for supervisor in self._supervisors:
            await supervisor.start(model, config)

    def send(self, orders: Mapping[int, Orders]) -> None:
        """Orders for each worker by its number."""
        for number, own in orders.items():
            self._by_number[number].send(own)

    def quit(self) -> None:
        """Tell all workers to end; none is started again."""
        for supervisor in self._supervisors:
            supervisor.quit()

    async def stop(self) -> None:
        """End all workers. Harmless when stopped."""
        await asyncio.gather(*(supervisor.stop() for supervisor in self._supervisors))

    # --- what supervisors say

    def loading(self, what: str, fraction: float) -> None:
        self._owner.on_loading(what, fraction)

    def number(self, supervisor: Supervisor) -> int:
        number = self._lives
        self._lives += 1
        self._by_number[number] = supervisor
        return number

    def ready(self, number: int, info: Ready, seconds: float) -> None:
        self._owner.on_ready(number, info, seconds)

    def died(self, supervisor: Supervisor, death: Death) -> None:
        if death.number is not None:
            del self._by_number[death.number]
        self._owner.on_death(death)

    def reported(self, number: int, report: Report) -> None:
        self._owner.on_report(number, report)

"""The workers of one engine: each under a supervisor, each life with a number of its own. It knows no requests.

So many of them take part; a few more are loaded and wait to take the place of one that dies, or to be one more.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from .config import EngineConfig
from .door import Orders, Ready, Report
from .links import Link
from .supervisor import Death, Supervisor


class Owner(Protocol):
    """The engine, as its workers know it. Calls come on the event loop."""

    def on_loading(self, what: str, fraction: float) -> None: ...

    def objection(self, info: Ready) -> str | None:
        """Why a worker that has loaded this is of no use; None: it is."""

    def on_loaded(self, seconds: float) -> None:
        """A worker has loaded, so many seconds after its start."""

    def on_ready(self, number: int, info: Ready) -> None:
        """A worker takes part."""

    def on_report(self, number: int, report: Report) -> None: ...

    def on_death(self, death: Death) -> None:
        """A worker has ended that was not told to."""


class Crew:
    """Owner of the supervisors. count: how many workers take part; spares: how many more are loaded.

    timeout, restarts: see Supervisor.
    """

    def __init__(
        self,
        new_link: Callable[[], Link],
        count: int,
        owner: Owner,
        *,
        now: Callable[[], float],
        timeout: float,
        restarts: bool,
        spares: int = 0,
    ) -> None:
        self.count = count
        self._spares = spares
        self._owner = owner
        self._new = partial(Supervisor, new_link, self, now=now, timeout=timeout, restarts=restarts)
        self._supervisors = [self._new() for _ in range(count + spares)]
        self._by_number: dict[int, Supervisor] = {}  # those that take part
        self._loaded: list[Supervisor] = []  # and wait
        self._lives = 0
        self._load_seconds = 0.0  # of the last that has loaded
        self._model = ""
        self._config = EngineConfig()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_ending = False

    @property
    def size(self) -> int:
        """How many workers take part now."""
        return len(self._by_number)

    @property
    def spare(self) -> int:
        """How many have loaded and wait."""
        return len(self._loaded)

    @property
    def coming(self) -> list[float]:
        """When each worker that is being started, and will take part, is expected to do so."""
        known = sorted(each.ready_at for each in self._supervisors if each.ready_at is not None)
        return known[: max(0, self.count - self.size)]

    @property
    def is_lost(self) -> bool:
        """Whether no worker is there, and none is to come."""
        return not any(each.goes_on for each in self._supervisors)

    @property
    def links(self) -> list[Link]:
        """Those of the lives that go on."""
        return [each.link for each in self._supervisors if each.link is not None]

    async def start(self, model: str, config: EngineConfig) -> None:
        """Start all workers; they get ready by and by."""
        self._model, self._config = model, config
        for supervisor in self._supervisors:
            await supervisor.start(model, config)

    def send(self, orders: Mapping[int, Orders]) -> None:
        """Orders for each worker by its number."""
        for number, own in orders.items():
            self._by_number[number].send(own)

    def grow(self) -> None:
        """One more is to take part: a spare one at once, where there is one, and another is loaded."""
        self.count += 1
        self._fill()
        if len(self._supervisors) < self.count + self._spares and not self._is_ending:
            supervisor = self._new()
            self._supervisors.append(supervisor)
            supervisor.start_beside(self._model, self._config, self._load_seconds)

    def dismiss(self, number: int) -> None:
        """A worker that holds nothing takes no part any more, and ends."""
        self.count -= 1
        supervisor = self._by_number.pop(number)
        self._supervisors.remove(supervisor)
        self._keep(asyncio.create_task(supervisor.stop()))

    def quit(self) -> None:
        """Tell all workers to end; none is started again."""
        self._is_ending = True
        for supervisor in self._supervisors:
            supervisor.quit()

    async def stop(self) -> None:
        """End all workers. Harmless when stopped."""
        self._is_ending = True
        await asyncio.gather(*(supervisor.stop() for supervisor in self._supervisors))
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def check(self) -> None:
        """Assert that nobody waits while somebody is missing."""
        assert self.size <= self.count, "more take part than are to"
        assert not self._loaded or self.size == self.count, "a spare worker waits, and one is missing"

    # --- what supervisors say

    def loading(self, what: str, fraction: float) -> None:
        self._owner.on_loading(what, fraction)

    def objection(self, info: Ready) -> str | None:
        return self._owner.objection(info)

    def loaded(self, supervisor: Supervisor, info: Ready, seconds: float) -> None:
        self._load_seconds = seconds
        self._owner.on_loaded(seconds)
        self._loaded.append(supervisor)
        self._fill()

    def died(self, supervisor: Supervisor, death: Death) -> None:
        if death.number is not None:
            del self._by_number[death.number]
        if supervisor in self._loaded:
            self._loaded.remove(supervisor)
        self._owner.on_death(death)
        self._fill()

    def reported(self, number: int, report: Report) -> None:
        self._owner.on_report(number, report)

    # --- inside

    def _fill(self) -> None:
        """Let those that wait take the places that are free."""
        while self._loaded and self.size < self.count:
            supervisor = self._loaded.pop(0)
            number, self._lives = self._lives, self._lives + 1
            self._by_number[number] = supervisor
            self._owner.on_ready(number, supervisor.part(number))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)  # a task that nobody holds may be collected
        task.add_done_callback(self._tasks.discard)

"""One worker through its lives: started, watched, ended where it hangs, started again. It knows no requests.

Runs on the engine's event loop, in short turns. What a life says after its end is not heard.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from .backoff import Backoff
from .config import EngineConfig
from .door import Failed, Message, Orders, Progress, Ready, Report, Stop
from .lease import BEATS, Lease
from .links import Link

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Death:
    """How a life ended. number: None: it took no part yet. failed: what the worker itself said of it.

    hung: it had to be ended. last: no other life follows.
    """

    number: int | None
    reason: str
    failed: Failed | None = None
    hung: bool = False
    last: bool = False


class Overseer(Protocol):
    """Who hears of the lives of workers. Calls come on the event loop, one after another."""

    def loading(self, what: str, fraction: float) -> None: ...

    def objection(self, info: Ready) -> str | None:
        """Why a worker that has loaded this is of no use; None: it is."""

    def loaded(self, supervisor: "Supervisor", info: Ready, seconds: float) -> None:
        """A life has loaded, so many seconds after its start; it is spare until it takes part()."""

    def reported(self, number: int, report: Report) -> None: ...

    def died(self, supervisor: "Supervisor", death: Death) -> None: ...


@dataclass(slots=True)
class _Life:
    """From one start to its end. info: once it has loaded. number: once it takes part."""

    link: Link
    began: float
    info: Ready | None = None
    number: int | None = None
    failed: Failed | None = None
    is_over: bool = False


class Supervisor:
    """Owner of one worker's link. timeout: seconds without a Report, while there is work, after which it is ended.

    restarts: another life follows a death; a worker in a thread has only one. ready_at: when the life that is being
    started is expected to be ready, by how long the last one took; None: none is.
    """

    def __init__(
        self,
        new_link: Callable[[], Link],
        overseer: Overseer,
        *,
        now: Callable[[], float],
        timeout: float,
        restarts: bool,
    ) -> None:
        self.ready_at: float | None = None
        self.load_seconds = 0.0  # of the last life
        self._new_link = new_link
        self._overseer = overseer
        self._now = now
        self._timeout = timeout
        self._restarts = restarts
        self._backoff = Backoff()
        self._lease = Lease()
        self._life: _Life | None = None
        self._model = ""
        self._config = EngineConfig()
        self._timer: asyncio.TimerHandle | None = None  # the next beat, or the next start
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopping = False

    @property
    def goes_on(self) -> bool:
        """Whether a life goes on, or another is to follow."""
        return self._life is not None or self.ready_at is not None

    @property
    def link(self) -> Link | None:
        """That of the life that goes on, if one does."""
        return self._life.link if self._life else None

    async def start(self, model: str, config: EngineConfig) -> None:
        """Begin the first life. Raises what starting a link raises."""
        self._model, self._config = model, config
        await self._begin()

    def start_beside(self, model: str, config: EngineConfig, takes: float) -> None:
        """Begin the first life beside others, which have taken so many seconds to load; nobody waits for it."""
        self._model, self._config = model, config
        self.load_seconds, self.ready_at = takes, self._now() + takes
        self._start_again()

    def part(self, number: int) -> Ready:
        """The life that has loaded takes part from now on, under this number; what it loaded."""
        life = self._life
        assert life is not None and life.info is not None and life.number is None, "no worker is spare"
        life.number = number
        return life.info

    def send(self, orders: Orders) -> None:
        """Orders for the life that is ready."""
        assert self._life is not None and self._life.number is not None, "no worker is ready"
        self._lease.send(orders.number)
        self._life.link.send(orders)
        self._watch()

    def quit(self) -> None:
        """Tell the worker to end; no other follows."""
        self._is_stopping = True
        self._stop_timer()
        if self._life is not None:
            self._life.link.send(Stop())

    async def stop(self) -> None:
        """End the worker, and what is being started. Harmless when stopped."""
        self._is_stopping = True
        self._stop_timer()
        life, self._life = self._life, None
        if life is not None:
            life.is_over = True
            await life.link.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- inside

    async def _begin(self) -> None:
        life = self._life = _Life(self._new_link(), self._now())
        self._lease = Lease()
        await life.link.start(
            self._model,
            self._config,
            lambda message: self._take(life, message),
            lambda reason: self._end(life, reason),
        )

    async def _begin_again(self) -> None:
        try:
            await self._begin()
        except OSError as error:  # no process, or no socket, is to be had
            assert self._life is not None
            self._end(self._life, f"a worker could not be started: {error}")

    def _take(self, life: _Life, message: Message) -> None:
        if life.is_over:
            return
        match message:
            case Report() if life.number is not None:
                self._lease.report(message)
                if message.step is not None:
                    self._backoff.worked()
                self._overseer.reported(life.number, message)
            case Ready() if life.info is None:
                self._load(life, message)
            case Progress(what, fraction):
                self._overseer.loading(what, fraction)
            case Failed():
                life.failed = message
                self._end(life, message.message)

    def _load(self, life: _Life, info: Ready) -> None:
        if reason := self._overseer.objection(info):
            life.link.kill()
            self._end(life, reason)
            return
        life.info = info
        self.load_seconds, self.ready_at = self._now() - life.began, None
        self._backoff.loaded()
        self._overseer.loaded(self, info, self.load_seconds)

    def _end(self, life: _Life, reason: str, *, hung: bool = False) -> None:
        """A life is over."""
        if life.is_over:
            return
        life.is_over = True
        self._life = self.ready_at = None
        self._stop_timer()
        wait = self._backoff.died(was_ready=life.info is not None)
        last = self._is_stopping or not self._restarts or self._backoff.gives_up
        if not last:
            self.ready_at = self._now() + wait + self.load_seconds
            self._timer = asyncio.get_running_loop().call_later(wait, self._start_again)
        if not hung or self._restarts:  # a thread that hangs cannot be waited for
            self._keep(asyncio.create_task(life.link.stop()))
        log.warning("%s; %s", reason, "no other is started" if last else f"another is started in {wait:.1f} s")
        self._overseer.died(self, Death(life.number, reason, life.failed, hung, last))

    def _start_again(self) -> None:
        self._timer = None
        self._keep(asyncio.create_task(self._begin_again()))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)  # a task that nobody holds may be collected
        task.add_done_callback(self._tasks.discard)

    def _watch(self) -> None:
        """Beat as long as the worker owes a Report."""
        if self._timer is None and self._lease.is_busy:
            self._timer = asyncio.get_running_loop().call_later(self._timeout / BEATS, self._beat)

    def _beat(self) -> None:
        self._timer = None
        life = self._life
        if life is None:
            return
        if self._lease.beat():
            life.link.kill()
            self._end(life, f"the worker gave no sign of life for {self._timeout:g} s, and was ended", hung=True)
        else:
            self._watch()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

"""An event loop in virtual time, and a worker on it: AsyncEngine's own code, where only timers and steps take time."""

import asyncio
import selectors
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from fairstep import AsyncEngine
from fairstep.clock import ManualClock
from fairstep.config import EngineConfig
from fairstep.door import Admit, Message, Orders, Report
from fairstep.links import OnEnd, OnMessage
from fairstep.stepping.cost import StepModel
from fairstep.stepping.loop import StepLoop
from fairstep.stepping.settings import StepSettings
from fakes_text import FakeTokenizer
from fakes_worker import FakeRunner, ready

T = TypeVar("T")
STUCK_SECONDS = 20.0  # of real time, in which a thread must have come to its end


class _JumpingSelector(selectors.DefaultSelector):  # type: ignore[misc,valid-type]
    """Never waits for a timer: moves the clock to it."""

    clock: ManualClock

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:  # only a thread can wake the loop
            events = super().select(STUCK_SECONDS)
            assert events, "nothing will ever happen"
            return events
        events = super().select(0)
        if not events and timeout > 0:
            self.clock.jump(timeout)
        return events


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its time is a ManualClock's."""

    def __init__(self, clock: ManualClock) -> None:
        selector = _JumpingSelector()
        selector.clock = self._clock = clock
        super().__init__(selector)

    def time(self) -> float:
        return self._clock.now()


class TimedLink:
    """A Link to a step loop whose steps take `step_seconds`; what comes during a step is let in at its end.

    slow: Orders of a step's time reach the worker after its Report only. sent: who was admitted, and when.
    """

    def __init__(self, own: StepSettings, step_seconds: float, *, slow: bool = False) -> None:
        self.loop = StepLoop(own, StepModel())
        self.runner = FakeRunner()
        self.sent: list[tuple[float, Admit]] = []
        self._own = own
        self._seconds = step_seconds
        self._slow = slow
        self._inbox: list[Orders] = []
        self._busy = False
        self._tell: OnMessage = lambda message: None

    async def start(self, model: str, config: EngineConfig, on_message: OnMessage, on_end: OnEnd) -> None:
        self._tell = on_message
        on_message(ready(self._own))

    def send(self, message: Message) -> None:
        if not isinstance(message, Orders):
            return
        self._inbox.append(message)
        now = asyncio.get_running_loop().time()
        self.sent += [(now, admit) for admit in message.admit]
        if not self._busy:
            self._busy = True
            asyncio.get_running_loop().call_soon(self._begin)

    def kill(self) -> None:
        """It never hangs."""

    async def stop(self) -> None:
        self._tell = lambda message: None

    def _begin(self) -> None:
        self._let_in()
        plan = self.loop.plan()
        if not plan.slices:
            self._report(self.loop.report())
            return
        output = self.runner.launch(plan).result()

        def end() -> None:
            if not self._slow:
                self._let_in()
            self._report(self.loop.commit(plan, output, run_seconds=self._seconds))

        asyncio.get_running_loop().call_later(self._seconds, end)

    def _report(self, report: Report) -> None:
        self._tell(report)
        self._busy = self.loop.has_work or bool(self._inbox)
        if self._busy:
            asyncio.get_running_loop().call_soon(self._begin)

    def _let_in(self) -> None:
        for orders in self._inbox:
            self.loop.apply(orders)
        self._inbox.clear()


@contextmanager
def virtual_engine(
    link: TimedLink, config: EngineConfig, kind: type[AsyncEngine] = AsyncEngine
) -> Iterator[tuple[AsyncEngine, "VirtualRunner"]]:
    """An engine over `link` in virtual time, not started, and what runs coroutines there."""
    clock = ManualClock()
    config = replace(config, worker_timeout=1e9)  # steps may take any time here
    engine = kind("fake", config, clock=clock, tokenizer=FakeTokenizer(), in_process=True, new_link=lambda: link)
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock)) as runner:
        yield engine, VirtualRunner(runner)


class VirtualRunner:
    """Runs a coroutine to its end."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner

    def run(self, body: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(body)

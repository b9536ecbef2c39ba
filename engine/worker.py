"""The worker: step loop and runner behind the door, in the caller's thread, a thread of its own or a process.

It decides how, never who. Where the loop plans ahead, the next step is launched before the last one is waited for.
`python -m fairstep.worker FD` serves one front over an open socket and ends with it.
"""

import logging
import os
import select
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from .clock import Clock, MonotonicClock
from .config import EngineConfig
from .door import Failed, FrameReader, Message, Orders, Progress, Ready, Report, Start, Stop, frame
from .errors import FairstepError
from .garbage import settle_garbage
from .stepping.plan import StepOutput, StepPlan

if TYPE_CHECKING:
    from .stepping.loop import StepLoop
    from .stepping.plan import Handle, Runner

SHORT_SPIN = "4000"  # as fast as the default on two idle cores, 15 times faster with one of them taken
CHUNK_BYTES = 1 << 20
IDLE_SECONDS = 0.5  # an idle worker reports this often
MOST_FAILED = 16  # runs in a row that may fail, which is more than looking for one culprit takes
ProgressCall = Callable[[str, float], None]

log = logging.getLogger(__name__)


class DoorClosed(Exception):
    """The front is gone: the worker ends too."""


class Door(Protocol):
    """The worker's end of the door."""

    def receive(self, seconds: float) -> list[Message]:
        """What has come, waiting up to `seconds` for the first. Raises DoorClosed."""

    def send(self, message: Message) -> None: ...


def nothing() -> None:
    """For callers who have nothing to be done just then."""


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    """The handle of a step that could not even be launched: it fails in its turn."""

    error: Exception

    def result(self) -> StepOutput:
        raise self.error


@dataclass(frozen=True, slots=True)
class Launched:
    """A step under way, the instant of its launch, and what its plan took, in seconds."""

    plan: StepPlan
    handle: "Handle"
    at: float
    plan_seconds: float


class Worker:
    """Step loop and runner joined by direct calls."""

    def __init__(self, loop: "StepLoop", runner: "Runner", clock: Clock) -> None:
        self._loop = loop
        self._runner = runner
        self._clock = clock
        self.failed_in_a_row = 0  # runs
        self.last_failure = ""
        self._under_way: deque[Launched] = deque()
        self._free_since = 0.0  # the instant at which the step before was over
        self._stalled = False  # a launch failed: nothing more is planned until what is under way has landed

    @property
    def has_work(self) -> bool:
        return self._loop.has_work

    def apply(self, orders: Orders) -> None:
        self._loop.apply(orders)

    def step(self, let_in: Callable[[], None] = nothing) -> Report:
        """Launch what can be, wait for the oldest step, commit it; the Report of it, or of the state if nothing ran.

        `let_in` is called between run and commit, so that a cancel that came meanwhile takes the step's token back.
        A Ctrl-C in the caller's thread leaves what is under way to the next call.
        """
        self._stalled = self._stalled and bool(self._under_way)
        while self._loop.can_plan and not self._stalled and self._launch():
            pass
        if not self._under_way:
            return self._loop.report()
        oldest = self._under_way[0]
        output = self._wait(oldest)
        over = self._clock.now()
        let_in()
        self._under_way.popleft()
        run_seconds, self._free_since = over - max(oldest.at, self._free_since), over
        if isinstance(output, str):
            self._forget_later()
            self.failed_in_a_row, self.last_failure = self.failed_in_a_row + 1, output
            again = self._loop.run_again(oldest.plan, run_seconds=run_seconds)
            return again or self._loop.fail(oldest.plan, output, run_seconds=run_seconds)
        self.failed_in_a_row = 0
        return self._loop.commit(oldest.plan, output, run_seconds=run_seconds, plan_seconds=oldest.plan_seconds)

    def _launch(self) -> bool:
        """Plan a step and launch it, if anything can run."""
        started = self._clock.now()
        plan = self._loop.plan()
        if not plan.slices:
            return False
        planned = self._clock.now()
        handle: Handle
        try:
            handle = self._runner.launch(plan)
        except Exception as error:
            handle, self._stalled = LaunchFailed(error), True
        except BaseException:  # a Ctrl-C in the caller's thread: the same tokens are planned again
            self._loop.abandon(plan)
            self._stalled = bool(self._under_way)
            raise
        self._under_way.append(Launched(plan, handle, planned, planned - started))
        return True

    def _forget_later(self) -> None:
        """Steps that were launched upon one that failed are worth nothing: wait for them, and plan them again."""
        for step in reversed(self._under_way):
            with suppress(Exception):
                step.handle.result()
            self._loop.abandon(step.plan)
        self._under_way.clear()

    def _wait(self, step: Launched) -> StepOutput | str:
        """The step's tokens, or why it failed: a step that raises ends its own requests, not the engine."""
        try:
            return step.handle.result()
        except Exception as error:
            log.exception("step %d failed", step.plan.number)
            return f"the step failed: {type(error).__name__}: {error}"

    def check(self) -> None:
        """Every owner's check()."""
        self._loop.check()


def spin_shortly() -> None:
    """Let compute threads that wait for one another sleep soon. Must come before torch; yields to the user's choice.

    By default they spin for so long that a step takes 5 to 20 times its time whenever something else wants a core.
    """
    if "torch" not in sys.modules and "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SHORT_SPIN)


def build(model: str, config: EngineConfig, progress: ProgressCall) -> tuple[Worker, Ready]:
    """Load a model into a worker. `config` must be resolved. Raises ModelError or ConfigError in one line."""
    spin_shortly()
    from .model.building import build_runner  # torch comes in here
    from .stepping.cost import StepModel
    from .stepping.loop import StepLoop

    runner, settings, ready = build_runner(model, config, progress)
    return Worker(StepLoop(settings, StepModel()), runner, MonotonicClock()), ready


def serve(worker: Worker, door: Door) -> None:
    """Step as long as there is work and the front is there; returns when told to stop or when the door closes."""
    orders_in = _OrdersIn(worker, door)
    stepped = False
    with suppress(DoorClosed):
        while not orders_in.stopped:
            orders_in.take(0.0 if stepped and worker.has_work else IDLE_SECONDS)
            report = worker.step(lambda: orders_in.take(0.0))
            stepped = report.step is not None
            door.send(report)
            if worker.failed_in_a_row >= MOST_FAILED:  # a device may be lost until its process ends
                door.send(Failed("worker_broken", f"{MOST_FAILED} runs in a row failed: {worker.last_failure}"))
                return


class _OrdersIn:
    """Lets Orders through the door into the worker, and remembers a Stop."""

    def __init__(self, worker: Worker, door: Door) -> None:
        self._worker = worker
        self._door = door
        self.stopped = False

    def take(self, seconds: float) -> None:
        for message in self._door.receive(seconds):
            if isinstance(message, Orders):
                self._worker.apply(message)
            elif isinstance(message, Stop):
                self.stopped = True


class SocketDoor:
    """The worker's end of a stream socket that carries frames."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._frames = FrameReader()
        self._poll = select.poll()  # select() takes no descriptor above 1023, and a host may have many
        self._poll.register(sock, select.POLLIN)

    def receive(self, seconds: float) -> list[Message]:
        if not self._poll.poll(1000 * seconds):
            return []
        try:
            data = self._sock.recv(CHUNK_BYTES)
        except ConnectionError as error:
            raise DoorClosed from error
        if not data:
            raise DoorClosed
        return self._frames.feed(data)

    def send(self, message: Message) -> None:
        try:
            self._sock.sendall(frame(message))
        except ConnectionError as error:
            raise DoorClosed from error


def start(door: Door) -> Worker | None:
    """Wait for Start, load, answer Ready or Failed. None if it could not start."""
    messages: list[Message] = []
    while not messages:
        messages = door.receive(IDLE_SECONDS)
    first = messages[0]
    assert isinstance(first, Start), f"the first message must be Start, not {first}"
    try:
        config = EngineConfig(**first.config)  # type: ignore[arg-type]
        worker, ready = build(first.model, config, lambda what, part: door.send(Progress(what, part)))
    except FairstepError as error:
        door.send(Failed(error.code, str(error)))
        return None
    except MemoryError:
        door.send(Failed("model_error", f"{first.model} does not fit this machine's memory"))
        return None
    except DoorClosed:
        return None
    door.send(ready)
    return worker


def main() -> None:
    """Serve the front at the other end of the socket whose descriptor is the first argument."""
    for sent_to_the_group in (signal.SIGINT, signal.SIGTERM):  # the front decides; a worker ends when its socket closes
        signal.signal(sent_to_the_group, signal.SIG_IGN)
    door = SocketDoor(socket.socket(fileno=int(sys.argv[1])))
    with suppress(DoorClosed):
        worker = start(door)
        if worker is not None:
            settle_garbage()
            serve(worker, door)


if __name__ == "__main__":
    main()

"""Where one thread's time goes: at each moment one part is under way, and a part's time is without what it calls.

What the measuring itself takes is found once and taken off. Knows no engine.
"""

import time
from collections.abc import Callable, Coroutine, Generator
from functools import wraps
from types import coroutine
from typing import Any, ParamSpec, TypeVar

PROBES = 2000
Times = list[float]  # seconds by the clock, seconds of the processor
P = ParamSpec("P")
R = TypeVar("R")


class Laps:
    """Owner of one thread's timeline, cut into stretches. rest: the part that is under way when no other is.

    stretches: those that were cut so far, each with its label and the times of its parts, in seconds.
    """

    def __init__(self, rest: str = "rest") -> None:
        self.stretches: list[dict[str, Any]] = []
        self._rest = rest
        self._parts: dict[str, Times] = {}
        self._stack = [rest]
        self._own: Times = [0.0, 0.0]  # what measuring one call adds to its part
        self._around: Times = [0.0, 0.0]  # and to the part that makes the call
        self._at = _now()
        self._calibrate()

    def around(self, owner: Any, name: str, part: str) -> None:
        """From now on calls of a function, found by its name in a module or class, are `part`."""
        setattr(owner, name, self.timed(getattr(owner, name), part))

    def timed(self, work: Callable[P, R], part: str) -> Callable[P, R]:
        """The same function, whose calls are `part`."""

        @wraps(work)
        def measured(*args: P.args, **kwargs: P.kwargs) -> R:
            self._enter(part)
            try:
                return work(*args, **kwargs)
            finally:
                self._leave()

        return measured

    def around_async(self, owner: Any, name: str, part: str) -> None:
        """The same of a coroutine function: what it does is `part`, what it waits for is not."""
        work = getattr(owner, name)

        @wraps(work)
        async def measured(*args: Any, **kwargs: Any) -> Any:
            return await self._resumed(work(*args, **kwargs), part)

        setattr(owner, name, measured)

    def cut(self, **label: Any) -> None:
        """End the stretch: it gets its label, and the next one begins."""
        self._charge(self._stack[-1])
        self.stretches.append({**label, "parts": self._parts})
        self._parts = {}

    @coroutine
    def _resumed(self, work: Coroutine[Any, Any, Any], part: str) -> Generator[Any, Any, Any]:
        """Runs a coroutine, piece by piece."""
        step: Callable[[], Any] = lambda: work.send(None)  # noqa: E731
        while True:
            self._enter(part)
            try:
                waited = step()
            except StopIteration as done:
                return done.value
            finally:
                self._leave()
            try:
                sent = yield waited
                step = lambda sent=sent: work.send(sent)  # noqa: E731
            except BaseException as error:
                step = lambda error=error: work.throw(error)  # noqa: E731

    def _enter(self, part: str) -> None:
        caller = self._stack[-1]
        self._stack.append(part)
        self._charge(caller, self._around)

    def _leave(self) -> None:
        self._charge(self._stack.pop(), self._own)

    def _charge(self, part: str, less: Times | None = None) -> None:
        """Give the time since the last look to a part."""
        now, cpu = _now()
        before, cpu_before = self._at
        times = self._parts.setdefault(part, [0.0, 0.0])
        times[0] += now - before
        times[1] += cpu - cpu_before
        if less is not None:
            times[0] -= less[0]
            times[1] -= less[1]
        self._at = now, cpu

    def _calibrate(self) -> None:
        """Measure calls of nothing."""
        work = self.timed(lambda: None, "nothing")
        for _ in range(PROBES):
            work()
        self.cut()
        parts = self.stretches.pop()["parts"]
        self._own = [seconds / PROBES for seconds in parts["nothing"]]
        self._around = [seconds / PROBES for seconds in parts[self._rest]]


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.thread_time()

"""For Python programs that call a server: try again what may be tried again, and never so much that it becomes a storm.

Knows no HTTP library: whoever calls hands in what sends a request, and gets back what that returns.
"""

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar
from uuid import uuid4

from .clock import Clock, MonotonicClock
from .retry_budget import RetryBudget

FIRST_STEP, LONGEST_STEP = 0.5, 30.0  # seconds that a retry waits at most, doubled each time
TRANSIENT = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
RETRIES = 10  # that the budget holds


class Reply(Protocol):
    """What replies of httpx and requests have. Names of headers must be found in any case."""

    @property
    def status_code(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...


R = TypeVar("R", bound=Reply)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try. headers: to be sent with it. seconds: what is left of its deadline, for timeouts; None: no deadline."""

    number: int
    headers: Mapping[str, str]
    seconds: float | None


def _sleep(seconds: float) -> None:
    threading.Event().wait(seconds)


class Retry:
    """Tries again, for all calls that share it: at most one retry for ten completions, once `retries` are used up.

    >>> retry = Retry(errors=(httpx.TransportError,))
    >>> reply = retry.call(lambda attempt: client.post(url, json=body, headers=attempt.headers), deadline=30)

    errors: what `send` raises where no answer came. attempts: most tries of a call. Each try brings the same
    Idempotency-Key, so that work that was done is not done again, and what is left of the deadline. A wait is drawn
    from nothing up to a step that doubles (full jitter), and never ends before the server's Retry-After. What is not
    tried again is returned, or raised, as it is. For threads and tasks alike.
    """

    def __init__(
        self,
        *,
        errors: tuple[type[Exception], ...] = (OSError,),
        attempts: int = 4,
        retries: int = RETRIES,
        clock: Clock | None = None,
        uniform: Callable[[float, float], float] = random.uniform,
        sleep: Callable[[float], object] = _sleep,
        asleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.retried = 0
        self.given_up = 0  # for want of budget
        self._errors = errors
        self._attempts = attempts
        self._budget = RetryBudget(retries)
        self._clock = clock or MonotonicClock()
        self._uniform = uniform
        self._sleep = sleep
        self._asleep = asleep
        self._lock = threading.Lock()

    def call(self, send: Callable[[Attempt], R], *, deadline: float | None = None, key: str | None = None) -> R:
        """What `send` returns in the end. deadline: in so many seconds. key: the idempotency key (a fresh one)."""
        course = self._course(deadline, key)
        while True:
            reply, error = None, None
            try:
                reply = send(course.attempt())
            except self._errors as raised:
                error = raised
            wait = self._wait(course, reply)
            if wait is None:
                return _end(reply, error)
            self._sleep(wait)

    async def acall(
        self, send: Callable[[Attempt], Awaitable[R]], *, deadline: float | None = None, key: str | None = None
    ) -> R:
        """The same where `send` is awaited."""
        course = self._course(deadline, key)
        while True:
            reply, error = None, None
            try:
                reply = await send(course.attempt())
            except self._errors as raised:
                error = raised
            wait = self._wait(course, reply)
            if wait is None:
                return _end(reply, error)
            await self._asleep(wait)

    def _course(self, deadline: float | None, key: str | None) -> "_Course":
        ends = None if deadline is None else self._clock.now() + deadline
        return _Course(self._clock, ends, key or str(uuid4()))

    def _wait(self, course: "_Course", reply: Reply | None) -> float | None:
        """Seconds until the next try; None: there is none."""
        if reply is not None and not is_transient(reply):
            with self._lock:
                self._budget.complete()
            return None
        if course.number >= self._attempts:
            return None
        step = min(LONGEST_STEP, FIRST_STEP * 2 ** (course.number - 1))
        wait = max(self._uniform(0.0, step), 0.0 if reply is None else hinted(reply.headers))
        if course.left is not None and wait >= course.left:
            return None
        with self._lock:
            if not self._budget.can_spend():
                self.given_up += 1
                return None
            self._budget.spend()
            self.retried += 1
        return wait


class _Course:
    """One call: its key, its end, and how often it was tried."""

    def __init__(self, clock: Clock, ends: float | None, key: str) -> None:
        self.number = 0
        self._clock = clock
        self._ends = ends
        self._key = key

    @property
    def left(self) -> float | None:
        """Seconds."""
        return None if self._ends is None else self._ends - self._clock.now()

    def attempt(self) -> Attempt:
        self.number += 1
        headers, left = {"Idempotency-Key": self._key}, self.left
        if left is not None:
            headers["X-Deadline-Ms"] = str(max(1, int(left * 1000)))
        return Attempt(self.number, headers, left)


def is_transient(reply: Reply) -> bool:
    """Whether the same request may be answered better later; the server's own word for it wins."""
    told = reply.headers.get("x-should-retry")
    return told == "true" if told in ("true", "false") else reply.status_code in TRANSIENT


def hinted(headers: Mapping[str, str]) -> float:
    """Seconds that the server asks to wait; 0 if it says nothing that is a number."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        with suppress(TypeError, ValueError):
            return max(0.0, float(headers.get(name)) / unit)  # type: ignore[arg-type]
    return 0.0


def _end(reply: R | None, error: Exception | None) -> R:
    if error is not None:
        raise error
    assert reply is not None
    return reply

"""The one place that reads the time. Everything else is handed a Clock or an instant in seconds.

After trio's Clock and MockClock: a test moves time by hand, and nothing sleeps.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """A monotonic clock, in seconds from an arbitrary origin."""

    def now(self) -> float: ...


class MonotonicClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def jump(self, seconds: float) -> None:
        """Move forward; `seconds` must not be negative."""
        if seconds < 0:
            raise ValueError(f"a clock cannot go back ({seconds} s)")
        self._now += seconds


def wall_time() -> int:
    """Unix time in whole seconds: for `created` fields only, never for measuring."""
    return int(time.time())

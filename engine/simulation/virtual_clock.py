"""Time that passes only when the simulation says so. A fairstep.clock.Clock."""


class VirtualClock:
    """Seconds since the simulation began."""

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        return self._now

    def reach(self, instant: float) -> None:
        """Go on to an instant, or stay if it has passed."""
        self._now = max(self._now, instant)

    def spend(self, seconds: float) -> None:
        """Let seconds pass; they must not be negative."""
        assert seconds >= 0, f"time does not go back ({seconds} s)"
        self._now += seconds

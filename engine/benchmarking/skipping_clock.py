"""The machine's clock without waiting: what is computed takes its time, and where nothing happens time is skipped."""

from ..clock import Clock, MonotonicClock


class SkippingClock:
    """Seconds since it was made, and those skipped. A fairstep.clock.Clock."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or MonotonicClock()
        self._ahead = -self._clock.now()

    def now(self) -> float:
        return self._clock.now() + self._ahead

    def reach(self, instant: float) -> None:
        """Go on to an instant, or stay if it has passed."""
        self._ahead += max(0.0, instant - self.now())

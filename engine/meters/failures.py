"""What is counted of workers that die, and of what they held."""

from ..stats import FailureStats
from .histogram import Histogram


class FailureMeter:
    """One engine's failures."""

    def __init__(self) -> None:
        self._loads = Histogram()
        self._deaths = 0
        self._hung = 0
        self._retried = 0
        self._isolated = 0

    def loaded(self, seconds: float) -> None:
        """A worker is ready."""
        self._loads.observe(seconds)

    def died(self, *, hung: bool) -> None:
        """A worker that was ready has ended. hung: it had to be ended."""
        self._deaths += 1
        self._hung += hung

    def retried(self, count: int) -> None:
        """Requests are to be computed again."""
        self._retried += count

    def isolated(self) -> None:
        """A request alone brought a step or a worker down."""
        self._isolated += 1

    def stats(self, retries_left: int) -> FailureStats:
        """As it is now."""
        return FailureStats(
            loads=self._loads.frozen(),
            deaths=self._deaths,
            hung=self._hung,
            retried=self._retried,
            isolated=self._isolated,
            retries_left=retries_left,
        )

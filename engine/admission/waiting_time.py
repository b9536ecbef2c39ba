"""What a request's waiting was for: by choice, while a worker was idle, or for a busy worker. One pot, told apart."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Waited:
    """Seconds in each part."""

    by_choice: float
    for_worker: float

    @property
    def total(self) -> float:
        return self.by_choice + self.for_worker


class IdleTime:
    """How long any worker that could take a request has been idle, over all time. Starts busy."""

    def __init__(self) -> None:
        self._sum = 0.0
        self._since: float | None = None

    def set(self, idle: bool, now: float) -> None:
        """A worker is idle from now on, or none is."""
        if idle and self._since is None:
            self._since = now
        elif not idle and self._since is not None:
            self._sum += now - self._since
            self._since = None

    def total(self, now: float) -> float:
        """Seconds of idleness until now: a request keeps the total of its arrival."""
        return self._sum if self._since is None else self._sum + now - self._since

    def waited(self, arrived: float, total_then: float, now: float) -> Waited:
        """The parts of the time since `arrived`, when the total was `total_then`."""
        by_choice = self.total(now) - total_then
        return Waited(by_choice, now - arrived - by_choice)

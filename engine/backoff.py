"""How long to wait before a worker is started again: longer each time, until one of them gets something done. Pure."""

FIRST = 0.1
FACTOR = 2.0
LONGEST = 30.0
MOST_FAILED = 5  # starts in a row that came to nothing, after which no more are made


class Backoff:
    """One worker's restarts."""

    def __init__(self) -> None:
        self._seconds = FIRST
        self._failed = 0

    @property
    def gives_up(self) -> bool:
        return self._failed >= MOST_FAILED

    def loaded(self) -> None:
        """A worker is ready."""
        self._failed = 0

    def worked(self) -> None:
        """A worker has made a step."""
        self._seconds = FIRST

    def died(self, *, was_ready: bool) -> float:
        """A worker has ended; the seconds to wait before the next start."""
        self._failed += not was_ready
        seconds = self._seconds
        self._seconds = min(LONGEST, FACTOR * seconds)
        return seconds

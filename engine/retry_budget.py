"""How many requests may be computed again after failures of ours: one for every ten that complete. Pure.

It starts full, so that one death of a busy worker can always be made good; where workers die again and again it runs
out, and requests are answered in words instead of being computed for ever.
"""

TENTHS = 10  # of a retry; a completion brings one


class RetryBudget:
    """most: retries that it holds when full."""

    def __init__(self, most: int) -> None:
        self._most = self._tenths = most * TENTHS

    @property
    def left(self) -> int:
        """Whole retries."""
        return self._tenths // TENTHS

    def grow(self, most: int) -> None:
        """Hold so many from now on, if that is more; what is new comes full."""
        more = max(0, most * TENTHS - self._most)
        self._most += more
        self._tenths += more

    def can_spend(self) -> bool:
        return self._tenths >= TENTHS

    def spend(self) -> None:
        assert self.can_spend(), "no retry is left"
        self._tenths -= TENTHS

    def complete(self) -> None:
        """A request was answered to its end."""
        self._tenths = min(self._most, self._tenths + 1)

    def check(self) -> None:
        """Assert its bounds."""
        assert 0 <= self._tenths <= self._most, "the retry budget is out of bounds"

"""A bucket with debt: what was taken flows back evenly, `amount` a minute. Pure; knows no tenant and no store.

It keeps what is owed rather than what is left, so that a limit's amount may change while requests are on their way.
"""

from dataclasses import dataclass

MINUTE = 60.0  # seconds
NEARLY = 1e-6  # what rounding may leave owed


@dataclass(slots=True)
class Bucket:
    """owed: what was taken and has not flowed back at the instant `at`; more than `amount` is debt."""

    amount: int
    at: float
    owed: float = 0.0

    def allow(self, amount: int, now: float) -> None:
        """From now on it holds `amount`, and fills in a minute; what is owed stays owed."""
        self.flow(now)
        self.amount = amount

    def flow(self, now: float) -> None:
        """Go on to `now`; a clock that went back changes nothing."""
        if now > self.at:
            self.owed = max(0.0, self.owed - (now - self.at) * self.amount / MINUTE)
            self.at = now

    def left(self, now: float) -> float:
        """What can be taken now; negative in debt."""
        self.flow(now)
        return self.amount - self.owed

    def wait(self, need: int, now: float) -> float:
        """Seconds until `need` can be taken, 0 if now. More than the bucket holds can be taken when it is full."""
        lacking = min(need, self.amount) - self.left(now)
        return 0.0 if lacking <= NEARLY else lacking * MINUTE / self.amount

    def until_full(self, now: float) -> float:
        """Seconds until nothing is owed."""
        self.flow(now)
        return self.owed * MINUTE / self.amount

    def take(self, units: int, now: float) -> None:
        """Take so much, whatever is left: into debt if need be."""
        self.flow(now)
        self.owed += units

    def give_back(self, units: int, now: float) -> None:
        """Undo a take; what has flowed back meanwhile is not given twice."""
        self.flow(now)
        self.owed = max(0.0, self.owed - units)

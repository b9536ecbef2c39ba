"""Where counts of a calendar month are kept: the interface, and the plain store in memory, which forgets at a restart.

Counting is all or nothing, and done when the call returns.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Draw:
    """So much of what a tenant's counter counts in a month. most: what the counter may reach."""

    tenant: str
    counted: str
    month: int
    amount: int
    most: int

    def fits(self, count: int) -> bool:
        """Whether it may be added to `count`; what is more than `most` fits where nothing was counted."""
        return count + min(self.amount, self.most) <= self.most


class LimitStore(Protocol):
    """Counts by tenant, counter and month. Raises StoreFailed."""

    def count(self, tenant: str, counted: str, month: int) -> int:
        """What was counted so far."""

    def take(self, draws: Sequence[Draw]) -> Draw | None:
        """Count all, or none and return the first that would pass its limit."""

    def add(self, draws: Sequence[Draw]) -> None:
        """Count whatever the limits; negative amounts give back, down to 0."""


class MemoryLimits:
    """A LimitStore that keeps this month's counts and the one's before."""

    def __init__(self) -> None:
        self._counts: dict[int, dict[tuple[str, str], int]] = {}

    def count(self, tenant: str, counted: str, month: int) -> int:
        return self._counts.get(month, {}).get((tenant, counted), 0)

    def take(self, draws: Sequence[Draw]) -> Draw | None:
        for draw in draws:
            if not draw.fits(self.count(draw.tenant, draw.counted, draw.month)):
                return draw
        self.add(draws)
        return None

    def add(self, draws: Sequence[Draw]) -> None:
        for draw in draws:
            counts = self._month(draw.month)
            key = draw.tenant, draw.counted
            counts[key] = max(0, counts.get(key, 0) + draw.amount)

    def _month(self, month: int) -> dict[tuple[str, str], int]:
        if month not in self._counts:
            self._counts[month] = {}
            newest = max(self._counts)
            self._counts = {each: counts for each, counts in self._counts.items() if each >= newest - 1}
        return self._counts.get(month, {})

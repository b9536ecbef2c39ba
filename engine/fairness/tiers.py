"""Which tier goes before which: strictly by number, the lowest first, unless a lower tier is owed its minimum share.

Pure. Knows tiers by number and what is charged when their sequences are admitted; no tenants.
"""

from collections.abc import Collection, Mapping

WHOLE = 1000  # minimum shares are in thousandths


class Tiers:
    """What tiers are owed. least: a tier's minimum share, in thousandths of all that is charged while it waits.

    A tier with a minimum share that waits gains by what others are charged. While it has gained anything it goes first,
    and pays. What it is owed stays under `most` units: a tier that may not be served for long does not flood later.
    """

    def __init__(self, least: Mapping[int, int], most: int) -> None:
        self._most = most * WHOLE
        self._owed: dict[int, int] = {}  # thousandths of a unit
        self.set_least(least)

    def set_least(self, least: Mapping[int, int]) -> None:
        """Change the minimum shares: tiers that keep one keep what they are owed."""
        assert all(share > 0 for share in least.values()) and sum(least.values()) < WHOLE, "no such minimum shares"
        self._least = dict(least)
        self._owed = {tier: self._owed.get(tier, 0) for tier in least}

    def order(self, waiting: Collection[int]) -> list[int]:
        """The tiers that wait, in the order in which they are asked for their next sequence."""
        return sorted(waiting, key=lambda tier: (self._owed.get(tier, 0) <= 0, tier))

    def owed(self, tier: int) -> int:
        """Units by which a tier is behind its minimum share; negative where it is ahead of it."""
        return self._owed.get(tier, 0) // WHOLE

    def served(self, tier: int, units: int, waiting: Collection[int]) -> None:
        """A sequence of `tier` is admitted for `units` while `waiting` tiers wait (it may be one of them)."""
        for other, least in self._least.items():
            if other == tier:
                if self._owed[tier] > 0:  # it went first; whoever comes in its own order pays nothing for that
                    self._owed[tier] -= (WHOLE - least) * units
            elif other in waiting:
                self._owed[other] = min(self._owed[other] + least * units, self._most)

    def left(self, tier: int) -> None:
        """Nobody of the tier waits any more: what it was owed lapses, what it owes doesn't."""
        if tier in self._owed:
            self._owed[tier] = min(self._owed[tier], 0)

    def check(self) -> None:
        """Assert the bound on what is owed."""
        assert all(owed <= self._most for owed in self._owed.values()), "a tier is owed too much"

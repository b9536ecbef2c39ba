"""When what waits in a tier is begun, if tenants take turns and nothing more comes: all of its tenants at once. Pure.

rehearsal.py asks for one request, turn by turn. Here turns are taken as endlessly fine (a fluid): each tenant is
served by weight up to one level, and what has been served by a level is found by bisection.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Claim:
    """What a tenant has waiting in the tier, in units, and what it owes (negative: has left)."""

    weight: int
    cost: int
    debt: int = 0


class Drain:
    """A tier as it is now. before: units that go first, of tiers before it. quantum: a round's units for weight 1."""

    def __init__(self, claims: Iterable[Claim], *, before: int, quantum: int) -> None:
        claims = [claim for claim in claims if claim.cost > 0]
        self.total = before + sum(claim.cost for claim in claims)
        self._quantum = quantum
        at_once = before + sum(min(claim.cost, max(0, -claim.debt)) for claim in claims)
        # where each tenant's service begins and ends, in units by weight
        turns = [(max(0.0, claim.debt / claim.weight), claim.weight) for claim in claims]
        turns += [(max(0.0, (claim.debt + claim.cost) / claim.weight), -claim.weight) for claim in claims]
        turns.sort()
        self._levels = [0.0, *(level for level, _ in turns)]
        self._slopes = list(accumulate((weight for _, weight in turns), initial=0))
        rises = (
            slope * (level - last)
            for slope, level, last in zip(self._slopes, self._levels[1:], self._levels, strict=False)
        )
        self._served = list(accumulate(rises, initial=float(at_once)))

    def units_before(self, claim: Claim, cost: float) -> float:
        """Units served before a tenant's next one begins, with `cost` of its own before that.

        The others get the rounds that this takes, of the last one half.
        """
        level = max(0.0, (claim.debt + cost) / claim.weight + self._quantum / 2)
        own = min(claim.cost, max(0.0, level * claim.weight - claim.debt))
        return self._served_at(level) - own + cost

    def _served_at(self, level: float) -> float:
        at = bisect_right(self._levels, level) - 1
        return self._served[at] + self._slopes[at] * (level - self._levels[at])

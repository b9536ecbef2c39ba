"""How much is served before a request when tenants take turns, told tenant by tenant: what drain.py is held to.

A tenant with little waiting is served within a few rounds, however much others have waiting. Whoever waits long is also
overtaken by what others send meanwhile, within their turns. Units are the ledger's.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

GUESSES = 6  # the wait decides what arrives in it, and that the wait


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What one tenant has waiting in one tier.

    cost: what it will be charged for that. debt: what it owes; negative: what it has left of its turn.
    arriving: units a second that it goes on sending (see demand.py).
    """

    tenant: str
    tier: int = 0
    weight: int = 1
    cost: int = 0
    debt: int = 0
    arriving: float = 0.0


def ahead(mine: Backlog, others: Iterable[Backlog], quantum: int, rate: float | None = None) -> int:
    """Units that deficit round robin serves before a tenant's request.

    mine.cost: what its own tenant has waiting that goes before it. quantum: a round's units for weight 1. rate: units
    served a second; None: not known, and what arrives meanwhile doesn't count. Tiers before its own are served whole,
    those after it not at all; in its own each tenant gets the rounds that this one needs, of the last one half.
    """
    rounds = max(0.0, (mine.cost + mine.debt) / (quantum * mine.weight) + 0.5)
    rivals = [
        (other, inf if other.tier < mine.tier else max(0.0, rounds * quantum * other.weight - other.debt))
        for other in others
        if other.tier < mine.tier or (other.tier == mine.tier and other.tenant != mine.tenant)
    ]
    wait, units = 0.0, 0.0
    for _ in range(GUESSES if rate else 1):
        units = mine.cost + sum(min(other.cost + other.arriving * wait, most) for other, most in rivals)
        wait = units / rate if rate else 0.0
    return round(units)

"""How much each tenant goes on asking for, and in what hurry, in the ledger's units a second. Pure, bounded in memory.

Inside a tenant the sooner deadline goes first, so whoever has time is overtaken by what comes later and has less.
"""

import math
from dataclasses import dataclass, field

MEMORY = 20.0  # seconds over which what came is averaged
SHORTEST = 5.0  # seconds: what came in less, as a burst, is taken to be no more than that long's
MIN_SWEEP = 256
STEP = 1.25  # from one class of hurry to the next
SOONEST, LATEST = 0.01, 10_000.0  # seconds: what has less or more time is in the first or last class

NO_HURRY = math.inf


@dataclass(slots=True)
class _Came:
    """What came of a tenant, fading: units by the time that they had left, at the instant `at`."""

    began: float
    at: float
    units: dict[float, float] = field(default_factory=dict)

    def fade(self, now: float) -> None:
        if now > self.at:
            kept = math.exp((self.at - now) / MEMORY)
            self.units = {left: units * kept for left, units in self.units.items()}
            self.at = now

    def seen(self, now: float) -> float:
        """Seconds that the units stand for."""
        return MEMORY * -math.expm1(-max(now - self.began, SHORTEST) / MEMORY)


class Demand:
    """Owner of what was let in of late, by tenant, each fading over MEMORY."""

    def __init__(self) -> None:
        self._came: dict[str, _Came] = {}
        self._sweep_at = MIN_SWEEP

    def add(self, tenant: str, units: int, now: float, left: float = NO_HURRY) -> None:
        """So much of a tenant's was let in, with `left` seconds to its deadline."""
        came = self._came.setdefault(tenant, _Came(now, now))
        came.fade(now)
        hurry = _class_of(left)
        came.units[hurry] = came.units.get(hurry, 0.0) + units
        if len(self._came) > self._sweep_at:
            self._came = {name: each for name, each in self._came.items() if now - each.at < 10 * MEMORY}
            self._sweep_at = max(MIN_SWEEP, 2 * len(self._came))

    def of(self, tenant: str, now: float) -> float:
        """Units a second that it asks for now."""
        came = self._came.get(tenant)
        if came is None:
            return 0.0
        came.fade(now)
        return sum(came.units.values()) / came.seen(now)

    def overtaking(self, tenant: str, left: float, wait: float, now: float) -> float:
        """Units of its own that will go before one who has `left` seconds to its deadline and waits for `wait`."""
        came = self._came.get(tenant)
        if came is None:
            return 0.0
        came.fade(now)
        pairs = came.units.items()
        return sum(units * min(wait, left - theirs) for theirs, units in pairs if theirs < left) / came.seen(now)

    def tenants(self) -> list[str]:
        """Who asked for anything of late, waiting or not."""
        return list(self._came)


def _class_of(left: float) -> float:
    """About that many seconds, so that few classes are kept."""
    if left == NO_HURRY:
        return NO_HURRY
    return STEP ** round(math.log(min(max(left, SOONEST), LATEST), STEP))

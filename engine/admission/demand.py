"""How much each tenant goes on asking for, in the ledger's units a second. Pure, and bounded in memory."""

import math
from dataclasses import dataclass

MEMORY = 20.0  # seconds over which what came is averaged
MIN_SWEEP = 256


@dataclass(slots=True)
class _Fading:
    units: float
    at: float

    def at_instant(self, now: float) -> float:
        return self.units * math.exp(min(0.0, (self.at - now) / MEMORY))


class Demand:
    """Owner of what was let in of late, by tenant, each fading over MEMORY."""

    def __init__(self) -> None:
        self._came: dict[str, _Fading] = {}
        self._sweep_at = MIN_SWEEP

    def add(self, tenant: str, units: int, now: float) -> None:
        """So much of a tenant's was let in."""
        before = self._came.get(tenant)
        self._came[tenant] = _Fading(units + (before.at_instant(now) if before else 0.0), now)
        if len(self._came) > self._sweep_at:
            self._came = {name: each for name, each in self._came.items() if now - each.at < 10 * MEMORY}
            self._sweep_at = max(MIN_SWEEP, 2 * len(self._came))

    def of(self, tenant: str, now: float) -> float:
        """Units a second that it asks for now."""
        came = self._came.get(tenant)
        return came.at_instant(now) / MEMORY if came else 0.0

    def tenants(self) -> list[str]:
        """Who asked for anything of late, waiting or not."""
        return list(self._came)

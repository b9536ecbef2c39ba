"""When to come back: how fast places come free, who was told what, and the spread that keeps a herd apart. Pure."""

import math
from collections.abc import Callable

LEAST, MOST = 1.0, 119.0  # seconds: clients give up on a hint of more than 120
SPREAD = (0.8, 1.2)
MEMORY = 30.0  # seconds over which the pace is averaged
MOST_TOLD = MOST / SPREAD[1]


def jittered(seconds: float | None, uniform: Callable[[float, float], float]) -> float:
    """What a client is told: `seconds` spread by a factor from `uniform(0.8, 1.2)`, from 1 s to under 120 s."""
    return min(max((seconds or 0.0) * uniform(*SPREAD), LEAST), MOST)


class Pace:
    """How many places a second come free, and until when they are spoken for.

    Whoever is refused is told the instant at which a place should be free for him beyond those promised to others of
    his tenant; each tenant gets its part of the pace.
    """

    def __init__(self) -> None:
        self._began: float | None = None
        self._at = 0.0
        self._freed = 0.0  # places of late, fading over MEMORY
        self._promised: dict[str, float] = {}

    def freed(self, places: int, now: float) -> None:
        """Places came free."""
        if self._began is None:
            self._began = self._at = now
        self._fade(now)
        self._freed += places

    def rate(self, now: float) -> float:
        """Places a second; 0 before any came free."""
        if self._began is None:
            return 0.0
        self._fade(now)
        seen = -math.expm1(-max(now - self._began, 1.0) / MEMORY)  # the part of MEMORY that has been seen
        return self._freed / (MEMORY * seen)

    def promise(self, tenant: str, part: float, places: int, now: float) -> float:
        """Seconds until `places` should be free for a tenant that gets `part` of them."""
        self._promised = {name: at for name, at in self._promised.items() if at > now}
        rate = self.rate(now) * part
        if not rate:
            return LEAST
        at = min(max(now, self._promised.get(tenant, now)) + places / rate, now + MOST_TOLD)
        self._promised[tenant] = at
        return at - now

    def _fade(self, now: float) -> None:
        if now > self._at:
            self._freed *= math.exp((self._at - now) / MEMORY)
            self._at = now

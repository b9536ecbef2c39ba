"""What is asked for beside what can be served, tier by tier, and a word in the log when it is more.

Units of the ledger a second. Refused work was asked for too. Reads no clock.
"""

import logging
from math import inf

from ..admission.demand import Demand
from ..fairness.averages import SCALE, Averages
from ..fairness.pricing import UNIT

OVER, UNDER = 1.0, 0.9  # of what can be served: saturation begins, and ends
QUIET = 60.0  # seconds between two lines in the log
PAUSE = 1.0  # seconds between two looks

log = logging.getLogger(__name__)


class Load:
    """Owner of what was asked for of late. saturated: the first tier for which there is not enough; None: none is.

    warns: a word in the log; not where nobody waits for the answers.
    """

    def __init__(self, *, warns: bool = True) -> None:
        self._warns = warns
        self.saturated: int | None = None
        self._tiers: set[int] = set()
        self._asked = Demand()
        self._usual = Averages()
        self._looked_at = -inf
        self._told_at = -inf

    def ask(self, tier: int, units: int | None, now: float) -> None:
        """Work is asked for, whether it is accepted or refused; None: so early that nobody knows how much."""
        self._tiers.add(tier)
        name = str(tier)
        if units is None:
            units = self._usual.of(name) // SCALE
        else:
            self._usual.add(name, units)
        self._asked.add(name, units, now)

    def asked(self, tier: int, now: float) -> float:
        """Units a second, averaged over the last 20 seconds or so."""
        return self._asked.of(str(tier), now)

    def look(self, capacity: float | None, now: float) -> None:
        """Compare, at most once a second. capacity: units that can be served a second; None: not known yet."""
        if capacity is None or now < self._looked_at + PAUSE:
            return
        self._looked_at = now
        before, asked = self.saturated, 0.0
        self.saturated = None
        for tier in sorted(self._tiers):
            asked += self.asked(tier, now)
            kept = before is not None and tier >= before  # what was saturated has to fall further
            if asked >= capacity * (UNDER if kept else OVER):
                self.saturated = tier
                break
        if self.saturated is not None and (before is None or self.saturated < before):
            self._tell(asked, capacity, now)

    def is_saturated(self, tier: int) -> bool:
        """Whether what is asked for in a tier and in those before it is more than can be served."""
        return self.saturated is not None and tier >= self.saturated

    def _tell(self, asked: float, capacity: float, now: float) -> None:
        if not self._warns or now < self._told_at + QUIET:
            return
        self._told_at = now
        log.warning(
            "more work comes than can be served: %.0f prompt tokens a second or what they cost, of tiers up to number "
            "%d, and %.0f can be served: what waits there grows",
            asked / UNIT,
            self.saturated,
            capacity / UNIT,
        )

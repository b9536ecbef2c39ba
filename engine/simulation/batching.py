"""Static batching of one simulated worker: asks a BatchGate, and remembers when the batch under way should end."""

from collections.abc import Mapping
from math import inf

from ..admission.deadlines import Deadlines
from ..admission.forecast import Prospect, fixed
from ..admission.limits import Need
from ..stepping.batch_gate import BatchGate, Release
from ..tenants import TenantTerms
from .logbook import Story


class Batching:
    """waiting: those who wait for a batch, by number, as they come and go.

    wake: when the gate wants to be asked again, whatever happens until then.
    """

    def __init__(self, gate: BatchGate, waiting: Mapping[int, Story]) -> None:
        self.wake = inf
        self._gate = gate
        self._waiting = waiting
        self._free_at = 0.0

    def release(self, *, idle: bool, now: float) -> int:
        """How many of those who wait may leave now."""
        waiting = [story.arrival for story in self._waiting.values()]
        arrivals = [each.at for each in waiting]
        deadlines = [each.at + each.deadline for each in waiting if each.deadline is not None]
        decision = self._gate.decide(arrivals, deadlines, idle=int(idle), now=now)
        if isinstance(decision, Release):
            self.wake, self._free_at = inf, now + self._gate.compute
            return decision.count
        self.wake = decision.at
        return 0

    def foresee(self, need: Need, terms: TenantTerms, deadlines: Deadlines, now: float) -> Prospect:
        """What a newcomer may expect, whoever it is: its batch, behind those that wait already."""
        end = self._gate.earliest_end(len(self._waiting), [self._free_at], now)
        return fixed(end - self._gate.compute - now, self._gate.compute)

    def last_start(self, deadline: float) -> float:
        """After this instant a deadline can't be met by who waits still."""
        return self._gate.last_start(deadline)

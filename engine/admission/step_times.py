"""How long steps take, beside what a model says of them. Reads no clock.

The scheduler's model may be wrong, or dear on purpose; what steps took puts its figures right.
"""

from math import inf

from ..door import Coefficients

KEPT = 0.98  # what a step still counts for when the next one comes
EPOCH = 500  # steps: the shortest of this and the last epoch is the shortest there is
MARGIN = 0.9  # a step may yet be shorter than any seen


class StepTimes:
    """Owner of fading sums over steps."""

    def __init__(self) -> None:
        self._modelled = self._took = self._weight = 0.0
        self._busy = self._busy_steps = 0.0
        self._shortest = self._shortest_before = inf
        self._steps = 0

    def observe(self, seconds: float, modelled: float, *, busy: bool) -> None:
        """A step took so long. busy: somebody waited for room meanwhile."""
        if not 0.0 < seconds < inf:
            return
        self._modelled = self._modelled * KEPT + modelled
        self._took = self._took * KEPT + seconds
        self._weight = self._weight * KEPT + 1.0
        if busy:
            self._busy = self._busy * KEPT + seconds
            self._busy_steps = self._busy_steps * KEPT + 1.0
        if self._steps == EPOCH:
            self._shortest_before, self._shortest, self._steps = self._shortest, inf, 0
        self._shortest = min(self._shortest, seconds)
        self._steps += 1

    @property
    def least(self) -> float:
        """Seconds that a step takes at the very least; 0 before any was seen."""
        shortest = min(self._shortest, self._shortest_before)
        return shortest * MARGIN if shortest < inf else 0.0

    @property
    def mean(self) -> float:
        """Mean seconds of late steps."""
        return self._took / self._weight if self._weight else 0.0

    @property
    def busy(self) -> float:
        """Mean seconds of late steps beside which somebody waited; 0 before any was seen."""
        return self._busy / self._busy_steps if self._busy_steps else 0.0

    def corrected(self, of: Coefficients) -> Coefficients:
        """A model's coefficients, as much larger or smaller as steps took longer or shorter than it said."""
        by = self._took / self._modelled if self._modelled else 1.0
        return Coefficients(of.base * by, of.prompt * by, of.sequence * by, of.context * by)

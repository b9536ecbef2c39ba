"""What a round gives when nobody says: about one median request's cost, or about one full batch of them, as measured.

Pure. A quantum is changed seldom and for all tenants at once, so that the ledger's promise holds with the largest one
that was used (docs/fairness.md).
"""

from statistics import median_low

from .drr import DeficitRoundRobin

WINDOW = 64  # admissions between two looks at the quantum, whose costs are what is looked at
MOST = 4  # times the least quantum


def is_far(quantum: int, wanted: int) -> bool:
    """Whether a quantum is off by more than a quarter: below that, changing it is worth nothing."""
    return 4 * abs(wanted - quantum) > quantum


class AutoQuantum:
    """Owner of a room's quantum: gives all its tiers another one when it changes.

    units: the quantum now. least: units a round at least, for each request of a batch; `MOST` times that is the most.
    batch: requests that are admitted together.
    """

    def __init__(self, start: int, least: int, *, batch: int = 1) -> None:
        assert least > 0 and batch > 0, "a quantum of nothing ends no debt"
        self._least, self._most = least * batch, MOST * least * batch
        self._batch = batch
        self.units = self._within(start * batch)
        self._costs: list[int] = []  # of the admissions since the last look
        self._turns: list[DeficitRoundRobin] = []

    def adopt(self, turns: DeficitRoundRobin) -> DeficitRoundRobin:
        """Take over a tier's turns, which have the quantum of now."""
        assert turns.quantum == self.units, "turns begin with another quantum"
        self._turns.append(turns)
        return turns

    def admitted(self, units: int) -> int:
        """An admission was charged so much; the quantum from now on."""
        self._costs.append(units)
        if len(self._costs) == WINDOW:
            wanted = self._within(self._batch * median_low(self._costs))
            self._costs.clear()
            if is_far(self.units, wanted):
                self._change(wanted)
        return self.units

    def check(self) -> None:
        """Assert that all tiers have the one quantum, within its limits."""
        assert self._least <= self.units <= self._most, "the quantum is out of its limits"
        assert all(turns.quantum == self.units for turns in self._turns), "tiers have different quanta"

    def _change(self, units: int) -> None:
        self.units = units
        for turns in self._turns:
            turns.resize(units)

    def _within(self, units: int) -> int:
        return min(max(units, self._least), self._most)

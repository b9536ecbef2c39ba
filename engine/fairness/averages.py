"""Averages of late values by name, in integers: what a tenant's answers usually are. Pure, and bounded in memory."""

from dataclasses import dataclass

SCALE = 1000  # averages are kept in thousandths
OF_ONE = 5  # a new value's weight is one fifth, as in VTC's predictor
OF_ALL = 50
MOST_NAMES = 10_000  # the name that was longest without a value is forgotten


@dataclass(slots=True)
class _Average:
    value: int = 0
    count: int = 0

    def add(self, value: int, parts: int) -> None:
        """The plain mean of the first few values, then one in `parts` of each new one."""
        self.count = min(self.count + 1, parts)
        self.value += (value * SCALE - self.value) // self.count


class Averages:
    """An average for each name, and one of all."""

    def __init__(self, most_names: int = MOST_NAMES) -> None:
        self._most_names = most_names
        self._of: dict[str, _Average] = {}  # the name that got a value last comes last
        self._all = _Average()

    def add(self, name: str, value: int) -> None:
        average = self._of.pop(name, None) or _Average()
        average.add(value, OF_ONE)
        self._of[name] = average
        self._all.add(value, OF_ALL)
        if len(self._of) > self._most_names:
            del self._of[next(iter(self._of))]

    def of(self, name: str) -> int:
        """Thousandths; for an unknown name the average of all, 0 before any value."""
        return self._of.get(name, self._all).value

    @property
    def of_all(self) -> int:
        """Thousandths; 0 before any value."""
        return self._all.value

    def check(self) -> None:
        """Assert the bound on memory."""
        assert len(self._of) <= self._most_names, "more names than are kept"

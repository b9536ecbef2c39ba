"""How much a second the worker serves while others wait, measured in the ledger's units. Reads no clock."""

MEMORY = 20.0  # seconds of steps that count
ENOUGH = 1.0  # seconds of them, before a rate is told


class ServiceRate:
    """Owner of a fading sum. Steps that had room to spare tell nothing of what could be served, and are left out."""

    def __init__(self) -> None:
        self._units = 0.0
        self._seconds = 0.0

    def observe(self, units: int, seconds: float) -> None:
        """A step took `seconds` while somebody waited for room, and served so many units."""
        if seconds <= 0.0:
            return
        kept = max(0.0, 1.0 - seconds / MEMORY)
        self._units = self._units * kept + units
        self._seconds = self._seconds * kept + seconds

    @property
    def units(self) -> float | None:
        """Units a second; None before enough was seen."""
        return self._units / self._seconds if self._seconds >= ENOUGH else None

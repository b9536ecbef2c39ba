"""The extremes of a tenant's charges that the promise of docs/fairness.md names: U and R. Pure."""


class Swings:
    """What one tenant was charged, and the largest swings of that sum. Units of the ledger, refunds taken off.

    largest_charge: U, the most that was ever charged from one admission up to the next. largest_refund: R, the most by
    which the sum ever fell.
    """

    __slots__ = ("_fall", "_rise", "charged", "largest_charge", "largest_refund")

    def __init__(self) -> None:
        self.charged = 0
        self.largest_charge = 0
        self.largest_refund = 0
        self._rise = 0  # since the last admission, itself included, or since the sum last began to rise
        self._fall = 0

    def charge(self, units: int, *, admitted: bool) -> None:
        """Enter a charge; negative gives back. admitted: it is a sequence's first."""
        self.charged += units
        self._rise = units if admitted else max(self._rise, 0) + units
        self._fall = max(self._fall, 0) - units
        self.largest_charge = max(self.largest_charge, self._rise)
        self.largest_refund = max(self.largest_refund, self._fall)

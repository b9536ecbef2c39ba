"""How often a tenant that is not in need may take room from another of its tier.

Pure. Each yield throws work away, and two tenants that both wait for long would take room from each other all the time.
"""

EACH = 32  # admissions that a yield takes
MOST = 8  # yields saved up


class YieldBudget:
    """Owner of the yields left. It starts full."""

    def __init__(self, each: int = EACH, most: int = MOST) -> None:
        assert each > 0 and most > 0, "a budget of nothing lets nobody yield"
        self._each = each
        self._full = each * most
        self._saved = self._full

    def can_spend(self) -> bool:
        """Whether there is one yield left."""
        return self._saved >= self._each

    def spend(self) -> None:
        """One yields."""
        assert self.can_spend(), "a yield beyond the budget"
        self._saved -= self._each

    def admitted(self) -> None:
        """A sequence was admitted."""
        self._saved = min(self._full, self._saved + 1)

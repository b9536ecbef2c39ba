"""How sure one must be that a request would be late to refuse it: as sure as lets nine in ten of the others be in time.

It follows what became of those that were let in, a little with each, as adaptive conformal inference does (Gibbs and
Candès, NeurIPS 2021), so that it holds however good forecasts are.
"""

IN_TIME = 0.9  # the part of those let in that shall meet their deadlines
STEP = 0.05  # how far one that did not moves it, about
LEAST, MOST = 0.1, 0.75


class Strictness:
    """Owner of the part: who would be late if it took as long as this part of all are earlier than is refused."""

    def __init__(self) -> None:
        self.part = 0.5

    def ended(self, in_time: bool) -> None:
        """One that was let in met its deadlines, or missed one."""
        change = STEP * ((not in_time) - (1.0 - IN_TIME))
        self.part = min(max(self.part + change, LEAST), MOST)

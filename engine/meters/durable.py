"""What is counted of work that outlives its client: stored responses and batches, whosever they are."""

from collections import Counter
from typing import Literal, get_args

from ..stats import DurableStats

Outcome = Literal["completed", "failed", "cancelled", "left"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
LineOutcome = Literal["completed", "failed"]
LINE_OUTCOMES: tuple[LineOutcome, ...] = get_args(LineOutcome)


class DurableMeter:
    """One server's. A response that is `left` is taken up by the next process, if it may."""

    def __init__(self) -> None:
        self._responses: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
        self._lines: Counter[str] = Counter(dict.fromkeys(LINE_OUTCOMES, 0))
        self._making = 0
        self._left: dict[str, int] = {}  # lines without a result, by batch in the making

    def response_begun(self) -> None:
        self._making += 1

    def response_ended(self, outcome: Outcome) -> None:
        self._making -= 1
        self._responses[outcome] += 1

    def batch_begun(self, batch_id: str, left: int) -> None:
        """A batch is in the making; so many of its lines have no result yet."""
        self._left[batch_id] = left

    def line(self, batch_id: str, outcome: LineOutcome) -> None:
        """A line of such a batch has its result."""
        self._left[batch_id] -= 1
        self._lines[outcome] += 1

    def batch_ended(self, batch_id: str) -> None:
        """It has ended, or is left to the next process. Harmless where it was never begun."""
        self._left.pop(batch_id, None)

    def stats(self) -> DurableStats:
        """As it is now."""
        return DurableStats(
            responses_making=self._making,
            responses=dict(self._responses),
            batches_making=len(self._left),
            lines_left=sum(self._left.values()),
            lines=dict(self._lines),
        )

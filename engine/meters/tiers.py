"""Goodput: of the requests of each tier that ended, how many were answered within what the tier promises."""

from collections import Counter
from dataclasses import dataclass

from ..request import FinishReason
from ..tenants import TierTerms

MS = 1000.0


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds that a request took: to its first token, a token after that (both None without), and in all."""

    first: float | None
    per_token: float | None
    whole: float


def keeps_to(terms: TierTerms, times: Times) -> bool:
    """Whether an answer came within a tier's targets. Without any it always did."""
    pairs = ((times.first, terms.ttft_ms), (times.per_token, terms.itl_ms), (times.whole, terms.e2e_ms))
    return all(took is None or most is None or took * MS <= most for took, most in pairs)


class TierMeters:
    """Counts by a tier's number. What its client cancelled is counted in neither."""

    def __init__(self) -> None:
        self._ended: Counter[int] = Counter()
        self._good: Counter[int] = Counter()

    def ended(self, terms: TierTerms, reason: FinishReason, times: Times) -> None:
        """A request of the tier ended."""
        if reason == "cancelled":
            return
        self._ended[terms.number] += 1
        self._good[terms.number] += reason != "error" and keeps_to(terms, times)

    def counts(self, number: int) -> tuple[int, int]:
        """Requests that ended, and of them the good ones."""
        return self._ended[number], self._good[number]

"""What becomes of requests whose worker died: tried again with their old place, or answered in words. Pure.

A request is given up when it has spent its attempts, of which only a death alone in a worker takes one, or when the
retry budget is empty. It pays that once for as long as it is suspected.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from .errors import RequestIsolated, WorkerLost
from .headroom import AHEAD
from .quarantine import Quarantine
from .retry_budget import RetryBudget
from .suspects import Suspects

ATTEMPTS = 2  # of a request that end with a worker's death while it runs there alone


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not tried again; code: of the error that it ends with."""

    code: str
    error: str


class Recovery:
    """Owner of what failures have cost each request. attempts: those that a request may spend."""

    def __init__(self, attempts: int = ATTEMPTS) -> None:
        self.suspects = Suspects()
        self.budget = RetryBudget(0)
        self.quarantine = Quarantine()
        self._attempts = attempts
        self._spent: Counter[int] = Counter()
        self._paid: set[int] = set()

    def join(self, seats: int) -> None:
        """So many seats are ready by now, in all workers: as many sequences may have to be computed again at once."""
        self.budget.grow(seats + AHEAD)

    def lost(self, worker: int, seqs: Sequence[int], reason: str) -> dict[int, Refusal]:
        """A worker died with these, the likeliest culprits first; who is not tried again. All others are suspects."""
        self.suspects.end_trial(worker)
        refused: dict[int, Refusal] = {}
        if len(seqs) == 1:
            self._spent[seqs[0]] += 1
            if self._spent[seqs[0]] >= self._attempts:
                times = f"{self._attempts} times" if self._attempts > 1 else "once"
                told = f"this request alone was computed when {reason}, {times}; it is refused for a while"
                refused[seqs[0]] = Refusal(RequestIsolated.code, told)
        again = []
        for seq in seqs:
            if seq in refused:
                continue
            if seq in self._paid or self._pay(seq):
                again.append(seq)
            else:
                refused[seq] = Refusal(WorkerLost.code, f"{reason}, as others before it: try again later")
        self.suspects.accuse(again)
        return refused

    def acquit(self, worker: int) -> None:
        """All that a worker tried have got further than they were: they are suspects no longer."""
        self._paid -= self.suspects.end_trial(worker)

    def wait_again(self, seq: int) -> None:
        """A sequence waits with everybody else."""
        self.suspects.leave(seq)
        self._paid.discard(seq)

    def end(self, seq: int, *, completed: bool) -> None:
        """A sequence is over. completed: answered to its end."""
        self.suspects.leave(seq)
        self._paid.discard(seq)
        self._spent.pop(seq, None)
        if completed:
            self.budget.complete()

    def check(self) -> None:
        """Assert that books agree."""
        self.suspects.check()
        self.budget.check()

    def _pay(self, seq: int) -> bool:
        if not self.budget.can_spend():
            return False
        self.budget.spend()
        self._paid.add(seq)
        return True

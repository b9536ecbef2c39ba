"""Who is to blame for a worker's death: what it held is tried again in halves, each half alone in a worker. Pure.

A group in which a worker dies is halved again, until one has died alone. A member that has got further than it was is
innocent. Sequence numbers only; who is sent where, and what becomes of a culprit, is the caller's.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Trial:
    """A group in a worker that holds nobody else. unproven: members that have not got further than they were."""

    members: set[int]
    unproven: set[int]

    @property
    def is_passed(self) -> bool:
        return not self.unproven


class Suspects:
    """Owner of the groups that wait for a trial, the oldest first, and of the trials under way, by worker.

    A group is never tried twice as it is, except one of a single sequence, which the caller gives up after so many
    attempts: halves only get smaller.
    """

    def __init__(self) -> None:
        self._groups: deque[list[int]] = deque()
        self._trials: dict[int, Trial] = {}

    def __len__(self) -> int:
        """Those that wait for a trial."""
        return sum(map(len, self._groups))

    def accuse(self, seqs: Sequence[int]) -> None:
        """A worker died with these: each half of them waits for a trial of its own."""
        middle = (len(seqs) + 1) // 2
        self._groups += [list(half) for half in (seqs[:middle], seqs[middle:]) if half]

    def begin(self, worker: int, fits: Callable[[int], bool]) -> tuple[int, ...]:
        """Try the next group in a worker that holds nobody; its members, as far as the worker has room for them.

        fits: whether one more has room; whoever it is said of is sent. The others wait for the next trial.
        """
        assert worker not in self._trials, "a worker tries one group at a time"
        if not self._groups:
            return ()
        group = self._groups.popleft()
        count = next((place for place, seq in enumerate(group) if not fits(seq)), len(group))
        assert count, f"not even sequence {group[0]} has room in an empty worker"
        if group[count:]:
            self._groups.appendleft(group[count:])
        self._trials[worker] = Trial(set(group[:count]), set(group[:count]))
        return tuple(group[:count])

    def trial_in(self, worker: int) -> Trial | None:
        """The trial that a worker is kept for, if any."""
        return self._trials.get(worker)

    def end_trial(self, worker: int) -> set[int]:
        """The trial is over, passed or not; its members, none where there was no trial."""
        trial = self._trials.pop(worker, None)
        return trial.members if trial else set()

    def prove(self, seq: int) -> None:
        """A sequence has got further than it was, or left its worker unharmed."""
        for trial in self._trials.values():
            trial.unproven.discard(seq)

    def leave(self, seq: int) -> None:
        """A sequence is over, or waits with everybody else."""
        for trial in self._trials.values():
            trial.unproven.discard(seq)
            trial.members.discard(seq)
        for group in self._groups:
            if seq in group:
                group.remove(seq)
        if not all(self._groups):
            self._groups = deque(filter(None, self._groups))

    def waiting(self) -> Iterable[int]:
        """Those that wait for a trial."""
        return (seq for group in self._groups for seq in group)

    def check(self) -> None:
        """Assert that each is in one place."""
        everybody = [*self.waiting(), *(seq for trial in self._trials.values() for seq in trial.members)]
        assert len(everybody) == len(set(everybody)), "somebody is suspected twice"
        assert all(self._groups), "a group is empty"
        assert all(trial.unproven <= trial.members for trial in self._trials.values())

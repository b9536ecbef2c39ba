"""What waits in one queue, in its order, and how much of it goes before a place in that order. Pure.

Sums over blocks of the sorted line: a place is found, added or taken out in some microseconds at 100,000 entries.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import NamedTuple

BLOCK = 512  # entries; one that has twice as many is halved

Key = tuple[float, ...]


class Work(NamedTuple):
    """Sequences, their prompts' tokens, and the most tokens that their answers may have."""

    sequences: int = 0
    prompt: int = 0
    most: int = 0

    def plus(self, other: "Work") -> "Work":
        return Work(self.sequences + other.sequences, self.prompt + other.prompt, self.most + other.most)

    def minus(self, other: "Work") -> "Work":
        return Work(self.sequences - other.sequences, self.prompt - other.prompt, self.most - other.most)


NO_WORK = Work()


def total(works: Iterable[Work]) -> Work:
    """The sum."""
    return Work(*map(sum, zip(*works, strict=True))) if (works := list(works)) else NO_WORK


class _Block:
    """A stretch of the line, in order, with its sum."""

    __slots__ = ("entries", "sum")

    def __init__(self, entries: list[tuple[Key, Work]]) -> None:
        self.entries = entries
        self.sum = total(work for _, work in entries)


class WorkLine:
    """Owner of keys, the smallest first, with the work of each. Keys differ."""

    def __init__(self) -> None:
        self.total = NO_WORK
        self._blocks: list[_Block] = []
        self._lasts: list[Key] = []  # each block's last key

    def __len__(self) -> int:
        return self.total.sequences

    def add(self, key: Key, work: Work) -> None:
        """Enter a sequence's work at its place."""
        if not self._blocks:
            self._blocks, self._lasts = [_Block([])], [key]
        at = min(bisect_left(self._lasts, key), len(self._blocks) - 1)
        block = self._blocks[at]
        insort(block.entries, (key, work))
        block.sum = block.sum.plus(work)
        self._lasts[at] = block.entries[-1][0]
        self.total = self.total.plus(work)
        if len(block.entries) >= 2 * BLOCK:
            halves = _Block(block.entries[:BLOCK]), _Block(block.entries[BLOCK:])
            self._blocks[at : at + 1] = halves
            self._lasts[at : at + 1] = [half.entries[-1][0] for half in halves]

    def remove(self, key: Key) -> None:
        """Take a sequence out wherever it stands."""
        at = bisect_left(self._lasts, key)
        block = self._blocks[at]
        place = bisect_left(block.entries, (key,))
        found, work = block.entries.pop(place)
        assert found == key, f"{key} is not in the line"
        block.sum = block.sum.minus(work)
        self.total = self.total.minus(work)
        if block.entries:
            self._lasts[at] = block.entries[-1][0]
        else:
            del self._blocks[at], self._lasts[at]

    def before(self, key: Key) -> Work:
        """What goes before a sequence with this key."""
        at = bisect_left(self._lasts, key)
        if at == len(self._blocks):
            return self.total
        entries = self._blocks[at].entries
        inside = total(work for _, work in entries[: bisect_left(entries, (key,))])
        return total([*(block.sum for block in self._blocks[:at]), inside])

    def check(self) -> None:
        """Assert order and sums."""
        entries = [entry for block in self._blocks for entry in block.entries]
        assert entries == sorted(entries), "the line is out of order"
        assert self.total == total(work for _, work in entries), "the line's sum is wrong"
        assert self._lasts == [block.entries[-1][0] for block in self._blocks], "a block has another end"
        assert all(block.sum == total(work for _, work in block.entries) for block in self._blocks), "a sum is wrong"

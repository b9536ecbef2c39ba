"""The places in the queue: so many requests, prompt tokens and bytes, and no tenant's flood costs another its place.

When it is full, a newcomer whose tenant has less than others puts out the newest entry of the tenant that is most over
its share. Knows no order: who goes next is the waiting room's business. Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from operator import add, sub
from typing import NamedTuple


class Size(NamedTuple):
    """What an entry takes: sequences, prompt tokens, bytes."""

    entries: int = 0
    tokens: int = 0
    bytes: int = 0

    def plus(self, other: "Size") -> "Size":
        return Size(*map(add, self, other))

    def minus(self, other: "Size") -> "Size":
        return Size(*map(sub, self, other))


NONE = Size()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueBounds:
    """Most that may wait; None: without end. An entry larger than a bound fits where there is nothing else."""

    entries: int = 2000
    tokens: int | None = None
    bytes: int | None = None

    @property
    def caps(self) -> tuple[float, float, float]:
        tokens, size = self.tokens, self.bytes
        return self.entries, inf if tokens is None else tokens, inf if size is None else size


@dataclass(slots=True)
class _Entry:
    tenant: str
    size: Size
    begun: bool = False  # some of its sequences have left: it is not put out any more


@dataclass(slots=True)
class _Line:
    """A tenant's entries, oldest first."""

    weight: int
    used: Size = NONE
    entries: dict[int, _Entry] = field(default_factory=dict)


class _Loss:
    """What a tenant would lose: of each kind its newest entries, none that has begun, and never all of them."""

    def __init__(self, line: _Line) -> None:
        self.left = line.used
        self._line = line
        self._lost: set[int] = set()
        self._newest: dict[int, Iterator[int]] = {}
        self.spent: set[int] = set()  # kinds of which there is nothing more to lose

    def lose(self, kind: int) -> int | None:
        """One more entry, or None."""
        number = next(self._of_kind(kind), None)
        if number is None or len(self._lost) + 1 >= len(self._line.entries):
            self.spent.add(kind)
            return None
        self._lost.add(number)
        self.left = self.left.minus(self._line.entries[number].size)
        return number

    def _of_kind(self, kind: int) -> Iterator[int]:
        if kind not in self._newest:
            entries = reversed(self._line.entries.items())
            self._newest[kind] = (
                number for number, entry in entries if entry.size[kind] and not entry.begun and number not in self._lost
            )
        return self._newest[kind]


class BoundedQueue:
    """Owner of the counts. Entries have numbers that the caller gives."""

    def __init__(self, bounds: QueueBounds) -> None:
        self._caps = bounds.caps
        self._lines: dict[str, _Line] = {}
        self._entries: dict[int, _Entry] = {}
        self._used = NONE

    @property
    def used(self) -> Size:
        """What waits now."""
        return self._used

    def used_by(self, tenant: str) -> Size:
        line = self._lines.get(tenant)
        return NONE if line is None else line.used

    def share(self, tenant: str, weight: int) -> float:
        """The tenant's part of the queue among those who wait in it, itself included."""
        others = sum(line.weight for name, line in self._lines.items() if name != tenant)
        return weight / (weight + others)

    def __contains__(self, number: int) -> bool:
        return number in self._entries

    def is_alone(self, tenant: str) -> bool:
        """Whether nobody else waits."""
        return all(name == tenant for name in self._lines)

    def keeps_to(self, part: float, tenant: str, more: Size, number: int | None = None) -> bool:
        """Whether with `more` a tenant has at most this part of each bound, or one entry alone.

        number: the entry that grows, if it is in.
        """
        line = self._lines.get(tenant)
        if line is None or line.entries.keys() <= {number}:
            return True
        return all(used <= part * cap for used, cap in zip(line.used.plus(more), self._caps, strict=True))

    def victims(self, tenant: str, weight: int, more: Size, number: int | None = None) -> list[int] | None:
        """The entries to put out so that `more` fits: [] if it fits as it is, None if it can't be made to.

        number: the entry that grows, if it is in. A tenant's only entry is never put out, and always finds a place if
        others have several. Beyond its first, a tenant puts out entries of those alone who have more by weight than it
        would have.
        """
        missing = self._missing(more)
        if not any(missing):
            return []
        line = self._lines.get(tenant)
        first = line is None or line.entries.keys() <= {number}
        mine = [0.0] * 3 if first else [used / weight for used in self.used_by(tenant).plus(more)]
        losses: dict[str, _Loss] = {}
        chosen: list[int] = []
        while any(missing):
            kind = next(index for index, units in enumerate(missing) if units)
            most = self._most_over(kind, losses, tenant, mine[kind])
            if most is None:
                return None
            out = losses.setdefault(most, _Loss(self._lines[most])).lose(kind)
            if out is not None:
                chosen.append(out)
                freed = self._entries[out].size
                missing = [max(0.0, units - less) for units, less in zip(missing, freed, strict=True)]
        return chosen

    def enter(self, number: int, tenant: str, weight: int, size: Size) -> None:
        """Take a place, which there must be."""
        assert number not in self._entries, f"entry {number} is in the queue already"
        assert not any(self._missing(size)), "there is no place"
        line = self._lines.setdefault(tenant, _Line(weight))
        line.weight = weight
        self._entries[number] = line.entries[number] = _Entry(tenant, size)
        self._count(line, size)

    def grow(self, number: int, more: Size) -> None:
        """An entry turns out to be larger; there must be room."""
        entry = self._entries[number]
        assert not any(self._missing(more)), "there is no place"
        entry.size = entry.size.plus(more)
        self._count(self._lines[entry.tenant], more)

    def begin(self, number: int, sequences: int) -> Size:
        """So many of an entry's sequences leave the queue; with the last one all of it. What became free."""
        entry = self._entries[number]
        if sequences >= entry.size.entries:
            return self.leave(number)
        entry.begun = True
        freed = Size(sequences)
        entry.size = entry.size.minus(freed)
        self._count(self._lines[entry.tenant], NONE.minus(freed))
        return freed

    def leave(self, number: int) -> Size:
        """Give up a place; what became free."""
        entry = self._entries.pop(number)
        line = self._lines[entry.tenant]
        del line.entries[number]
        self._count(line, NONE.minus(entry.size))
        if not line.entries:
            del self._lines[entry.tenant]
        return entry.size

    def check(self) -> None:
        """Assert that all counts are the sums of entries, and that bounds are kept."""
        total = NONE
        for name, line in self._lines.items():
            assert line.entries, f"{name} has a line and nobody in it"
            held = NONE
            for number, entry in line.entries.items():
                assert self._entries[number] is entry and entry.tenant == name, f"entry {number} is astray"
                held = held.plus(entry.size)
            assert held == line.used, f"{name}'s places are miscounted"
            total = total.plus(held)
        assert total == self._used and len(self._entries) == sum(len(line.entries) for line in self._lines.values())
        for index, cap in enumerate(self._caps):
            largest = max((entry.size[index] for entry in self._entries.values()), default=0)
            assert self._used[index] <= max(cap, largest), "more waits than may"

    def _count(self, line: _Line, change: Size) -> None:
        line.used = line.used.plus(change)
        self._used = self._used.plus(change)

    def _missing(self, more: Size) -> list[float]:
        """What is lacking of each bound for `more` to fit."""
        return [
            max(0.0, used + min(units, cap) - cap)
            for used, units, cap in zip(self._used, more, self._caps, strict=True)
        ]

    def _most_over(self, kind: int, losses: dict[str, _Loss], tenant: str, mine: float) -> str | None:
        """The tenant that would still hold most of a kind by its weight, more than `mine`, and can lose some."""
        most, found = mine, None
        for name, line in self._lines.items():
            loss = losses.get(name)
            held = (line.used if loss is None else loss.left)[kind] / line.weight
            if held > most and len(line.entries) > 1 and name != tenant and (loss is None or kind not in loss.spent):
                most, found = held, name
        return found

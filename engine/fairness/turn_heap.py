"""Names by key, the smallest first, equal ones in the order they came. Knows nothing of what the keys mean."""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

MIN_SWEEP = 64  # below this many dead heap entries, sweeping is not worth it

K = TypeVar("K", bound=Any)


class TurnHeap(Generic[K]):
    """A heap whose changed entries die in place: a change costs O(log n), sweeping the dead O(1) a change."""

    def __init__(self) -> None:
        self._live: dict[str, tuple[K, int]] = {}  # key and visit; no two visits are alike
        self._heap: list[tuple[K, int, str]] = []
        self._visits = 0

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, name: str) -> bool:
        return name in self._live

    def key(self, name: str) -> K:
        """A name's key."""
        return self._live[name][0]

    def set(self, name: str, key: K) -> None:
        """Give a name its key. With the one it has it keeps its place, with another it goes behind equal ones."""
        if name in self._live and self._live[name][0] == key:
            return
        self._visits += 1
        self._live[name] = key, self._visits
        heappush(self._heap, (key, self._visits, name))
        self._sweep()

    def drop(self, name: str) -> None:
        """Take a name out."""
        del self._live[name]
        self._sweep()

    def first(self, may: Callable[[str], bool]) -> str | None:
        """The first name that may; None if none does. Costs O(log n) for each that may not."""
        aside: list[tuple[K, int, str]] = []
        found = None
        while found is None and self._heap:
            key, visit, name = self._heap[0]
            if self._live.get(name) != (key, visit):
                heappop(self._heap)
            elif may(name):
                found = name
            else:
                aside.append(heappop(self._heap))
        for entry in aside:
            heappush(self._heap, entry)
        return found

    def check(self) -> None:
        """Assert that each name stands once, and that the dead are few."""
        alive = sorted((name, key, visit) for key, visit, name in self._heap if self._live.get(name) == (key, visit))
        assert alive == sorted((name, *entry) for name, entry in self._live.items()), "heap and names disagree"
        assert len(self._heap) <= 2 * len(self._live) + MIN_SWEEP, "dead entries pile up"

    def _sweep(self) -> None:
        if len(self._heap) > 2 * len(self._live) + MIN_SWEEP:
            self._heap = [(key, visit, name) for name, (key, visit) in self._live.items()]
            heapify(self._heap)

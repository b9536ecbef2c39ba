"""When each request's time is up: a heap of instants. Knows no clock and no request.

An instant that was replaced or dropped stays in the heap until it comes up, or until most of the heap is such.
"""

from heapq import heapify, heappop, heappush

SPARE = 64  # dead instants that a heap may hold beside as many as live ones


class Expiries:
    """One instant for each sequence that has any. One owner: the Front."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self._at: dict[int, float] = {}

    def set(self, seq: int, at: float | None) -> None:
        """A sequence's time is up at an instant, or never (None), whatever was said before."""
        if at == self._at.get(seq):
            return
        self._at.pop(seq, None)
        if at is not None:
            self._at[seq] = at
            heappush(self._heap, (at, seq))
        if len(self._heap) > 2 * len(self._at) + SPARE:
            self._heap = [(at, seq) for seq, at in self._at.items()]
            heapify(self._heap)

    @property
    def next_at(self) -> float | None:
        """The next instant; None if there is none."""
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now: float) -> list[int]:
        """Sequences whose time is up, taken out, the earliest first."""
        seqs = []
        while (at := self.next_at) is not None and at <= now:
            seqs.append(heappop(self._heap)[1])
            del self._at[seqs[-1]]
        return seqs

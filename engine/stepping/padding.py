"""What a padded batch computes for nothing: prompts filled up to the longest, and rows whose answers have ended. Pure.

That is how a model is run batch by batch when each step takes one rectangle of tokens; it is here to be compared with.
The slices are those of no sequence, on the null page: a runner computes them and drops what they draw.
"""

from collections.abc import Collection

from ..door import Sampling
from .pages import NULL_PAGE
from .plan import Slice
from .sequence import Sequence

PAD = 0  # any id will do


class Padding:
    """The batch under way: how many rows it has, and what of shorter prompts is not filled up yet.

    Rows that run are computed at their own lengths: what attention over a longer row would cost more is not played.
    """

    def __init__(self, page_size: int, chunk: int) -> None:
        self._page_size = page_size
        self._chunk = chunk
        self._rows = 0
        self._spans: list[tuple[int, int]] = []  # [start, end) of each row

    def seat(self, batch: Collection[Sequence]) -> None:
        """A batch begins."""
        lengths = [len(sequence.tokens) for sequence in batch]
        longest = max(lengths, default=0)
        self._rows = len(batch)
        self._spans = [(length, longest) for length in lengths if length < longest]

    def fill(self, room: int) -> Slice | None:
        """The next piece of a prompt that is filled up, of at most `room` tokens."""
        if not self._spans or room < 1:
            return None
        start, end = self._spans.pop()
        cut = min(end, start + min(room, self._chunk))
        if cut < end:
            self._spans.append((cut, end))
        return self._slice(start, cut, draws=False)

    def ended(self, running: Collection[Sequence]) -> list[Slice]:
        """A token for each row that has ended, as far on as the longest that runs."""
        position = max((sequence.computed for sequence in running), default=0)
        return [self._slice(position, position + 1, draws=True)] * (self._rows - len(running))

    def _slice(self, start: int, end: int, *, draws: bool) -> Slice:
        pages = (NULL_PAGE,) * -(-end // self._page_size)
        ids = (PAD,) * (end - start)
        return Slice(0, 0, start, ids, pages, samples=draws, position=0, sampling=Sampling(), decode=draws)

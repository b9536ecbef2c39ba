"""Which steps are replayed from a recording: those where all decode, by their number rounded up to a bucket.

A size runs plainly the first time and is recorded the second, so that no first token waits for a recording, and what
the kernels need is compiled by then. Knows no device: a Recorder does.
"""

import logging
from bisect import bisect_left
from collections.abc import Callable
from typing import Protocol

from torch import Tensor

STEPS_APART = 8  # beyond this many rows, buckets are multiples of it

Step = Callable[[], Tensor]

log = logging.getLogger(__name__)


class CannotRecord(Exception):
    """A step that can only run plainly, and why."""


class Recorder(Protocol):
    def record(self, step: Step) -> Step:
        """What computes the same again over the same memory, and returns the same tensor. Raises CannotRecord."""
        ...


def buckets(most: int) -> tuple[int, ...]:
    """Sizes up to `most`, which is one of them."""
    sizes = {1, 2, 4, *range(STEPS_APART, most, STEPS_APART), most}
    return tuple(sorted(size for size in sizes if size <= most))


class Graphs:
    """Owner of the recordings."""

    def __init__(self, recorder: Recorder | None, most: int) -> None:
        """recorder: None where nothing can be recorded. most: rows of the largest step that is."""
        self._recorder = recorder
        self._sizes = buckets(most) if recorder else ()
        self._recorded: dict[int, Step] = {}
        self._ran: set[int] = set()

    def size_for(self, rows: int) -> int | None:
        """What a step of so many rows is filled up to; None: it runs as it is."""
        place = bisect_left(self._sizes, rows)
        return self._sizes[place] if place < len(self._sizes) else None

    def run(self, size: int, step: Step) -> Tensor:
        """A step filled up to `size`. `step` computes it over memory that is the same for all steps of that size."""
        if size not in self._recorded and size in self._ran and self._recorder:
            self._recorded[size] = self._recording(self._recorder, size, step)
        self._ran.add(size)
        return self._recorded.get(size, step)()

    def _recording(self, recorder: Recorder, size: int, step: Step) -> Step:
        try:
            return recorder.record(step)
        except CannotRecord as reason:
            log.warning("steps of %d decodes are not recorded, and somewhat slower: %s", size, reason)
            self._sizes = tuple(each for each in self._sizes if each < size)  # larger ones need more still
            return step

"""Rotary tables as the C++ step reads them: a row for each token, taken from a table that is kept from step to step.

What hangs on a sequence's length beside the position is made anew in each step.
"""

import torch
from torch import Tensor

from .batch import StepBatch
from .rope import Rotary

FIRST_POSITIONS = 1024


class KeptRotary:
    """Grows with the longest sequence seen: R * 8 bytes a position."""

    def __init__(self, rotary: Rotary) -> None:
        self._rotary = rotary
        self._cos, self._sin = self._tables(FIRST_POSITIONS)  # [positions, 1, R] float32

    def table(self, batch: StepBatch) -> tuple[Tensor, Tensor]:
        """cos and signed sin, [T, 1, R] float32 each: as Rotary.table."""
        if self._rotary.rope.edge:
            return self._rotary.table(batch.positions, batch.lengths)
        longest = max([bounds.kv_len for bounds in batch.bounds])
        if longest > len(self._cos):
            self._cos, self._sin = self._tables(max(longest, 2 * len(self._cos)))
        return self._cos.index_select(0, batch.positions), self._sin.index_select(0, batch.positions)

    def _tables(self, count: int) -> tuple[Tensor, Tensor]:
        positions = torch.arange(count)
        return self._rotary.table(positions, positions + 1)

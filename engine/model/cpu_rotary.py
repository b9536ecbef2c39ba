"""Rotary tables as the C++ step reads them: a row for each position, kept from step to step.

What hangs on a sequence's length beside the position is made anew in each step, a row for each token.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .batch import StepBatch
from .rope import Rotary

FIRST_POSITIONS = 1024


class CpuTable(NamedTuple):
    """cos and signed sin, [rows, 1, R] float32 each: a row a token, or a row a position."""

    cos: Tensor
    sin: Tensor
    by_token: bool


class KeptRotary:
    """Grows with the longest sequence seen: R * 8 bytes a position."""

    def __init__(self, rotary: Rotary) -> None:
        self._rotary = rotary
        self._kept = self._upto(FIRST_POSITIONS)

    def table(self, batch: StepBatch) -> CpuTable:
        """Rows as Rotary.table has them."""
        if self._rotary.rope.edge:
            return CpuTable(*self._rotary.table(batch.positions, batch.lengths), True)
        longest, kept = batch.longest, len(self._kept.cos)
        if longest > kept:
            self._kept = self._upto(max(longest, 2 * kept))
        return self._kept

    def _upto(self, count: int) -> CpuTable:
        positions = torch.arange(count)
        return CpuTable(*self._rotary.table(positions, positions + 1), False)

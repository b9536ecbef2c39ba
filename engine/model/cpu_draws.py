"""Draws from whole rows at a temperature in one C++ call (kernels/cpu/draw.h): the tokens that draw_whole draws."""

import torch
from torch import Tensor

from ..kernels.cpu.library import Library
from .draws import Draws


class CpuDraws:
    """A draws.DrawWhole on the CPU. threads: the most it computes in."""

    def __init__(self, library: Library, threads: int) -> None:
        self._library = library
        self._threads = threads

    def __call__(self, draws: Draws) -> Tensor:
        """Ids [R] int64."""
        logits = draws.logits.contiguous()
        rows, vocab = logits.shape
        ids = torch.empty(rows, dtype=torch.int64)
        each = [field.contiguous() for field in (draws.temperature, draws.keys, draws.top, ids)]
        self._library.draw(logits.data_ptr(), rows, vocab, *[field.data_ptr() for field in each], self._threads)
        return ids

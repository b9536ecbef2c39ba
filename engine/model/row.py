"""What the sampler knows of one row of logits: how to draw from it and the tokens before it. Knows no sequence."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..door import Sampling

GREEDY_TEMPERATURE = 1e-5  # at or below it a draw is the argmax; above it nothing overflows in float64


def takes_likeliest(sampling: Sampling, position: int) -> bool:
    """Whether the token after so many outputs is the likeliest by the model's own logits, and alone is told."""
    if sampling.temperature > GREEDY_TEMPERATURE or sampling.logprobs >= 0:
        return False
    waits = position < sampling.min_tokens and sampling.stop_ids
    return not (waits or sampling.bias or sampling.allowed or sampling.needs_history)


@dataclass(frozen=True, slots=True)
class Row:
    """How to draw a row's token; `position`: how many outputs the request has so far.

    known: the prompt's prompt_len tokens and the outputs, if sampling.needs_history; else ().
    """

    sampling: Sampling
    position: int
    known: tuple[int, ...] = ()
    prompt_len: int = 0

    @property
    def greedy(self) -> bool:
        return self.sampling.temperature <= GREEDY_TEMPERATURE

    @property
    def cut(self) -> bool:
        """Some tokens are left out before the draw."""
        return self.sampling.top_k > 0 or self.sampling.top_p < 1.0 or self.sampling.min_p > 0.0

    @property
    def stops_early(self) -> bool:
        """The stop ids are masked still."""
        return self.position < self.sampling.min_tokens and bool(self.sampling.stop_ids)

    @property
    def shaped(self) -> bool:
        """Logits are changed before the draw."""
        sampling = self.sampling
        return bool(sampling.bias or sampling.allowed) or sampling.needs_history or self.stops_early


class Spots(NamedTuple):
    """Places in a table of logits: rows and ids, [N] int64 each; one place may come several times."""

    rows: Tensor
    ids: Tensor

    @classmethod
    def of(cls, ids: Sequence[Collection[int]], logits: Tensor) -> "Spots":
        """The ids named for each row of `logits` [R, V], but for those outside the vocabulary."""
        sizes = [len(some) for some in ids]
        flat = np.fromiter(chain.from_iterable(ids), np.int64, sum(sizes))
        inside = (flat >= 0) & (flat < logits.shape[1])
        rows = np.repeat(np.arange(len(ids)), sizes)
        return cls(*(torch.from_numpy(each[inside]).to(logits.device) for each in (rows, flat)))

    def counted(self, logits: Tensor) -> tuple["Spots", Tensor]:
        """Each spot once, and how many times it came, [N] int64."""
        vocab = logits.shape[1]
        flat, times = torch.unique(self.rows * vocab + self.ids, return_counts=True)
        return Spots(flat // vocab, flat % vocab), times

"""Rows for the CPU's sampler as the slices that the device's takes, and both drawn from."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fairstep.door import Sampling
from fairstep.model.device_sampler import DeviceSampler
from fairstep.model.row import Row
from fairstep.stepping.plan import Slice

CPU = torch.device("cpu")
KNOWN = (3, 0, 3, 250, 9, 2, 0, 2, 2, 5)
PROMPT = 4


def row(position: int = 6, seed: int = 0, **options: Any) -> Row:
    """With KNOWN as its history where it needs one."""
    sampling = Sampling(seed=seed, **options)
    return Row(sampling, position, KNOWN, PROMPT) if sampling.needs_history else Row(sampling, position)


def seated(rows: Sequence[Row]) -> list[Slice]:
    """Each at the seat of its place."""
    return [
        Slice(place + 1, 1, 0, (0,), (), True, r.position, r.sampling, True, r.known, r.prompt_len, seat=place)
        for place, r in enumerate(rows)
    ]


def drawn(logits: Tensor, rows: Sequence[Row], block: int = 128) -> list[int]:
    """By the device's sampler."""
    sampler = DeviceSampler(seats=len(rows), vocab=logits.shape[1], device=CPU, block=block)
    tokens: list[int] = sampler.sample(logits, sampler.prepare(seated(rows))).tolist()
    sampler.check()
    return tokens


def language_like(rows: int, vocab: int = 300, seed: int = 0) -> Tensor:
    """A few likely tokens above a long tail."""
    made = torch.Generator().manual_seed(seed)
    tail = 4.0 - 1.6 * torch.log(torch.arange(1, vocab + 1, dtype=torch.float32))
    return tail + torch.randn(rows, vocab, generator=made)

"""One use of a launcher that is compiled ahead of time, with tensors that have no memory."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .chips import Chip

TOKENS = 512
SEQUENCES = 64
LONGEST = 8192
PAGES = 65_536
PAGE_SIZE = 16
NAMES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
SHORT = (torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True)
class Case:
    """A call of a launcher. left_out: chips it isn't compiled for, and why. tiles: of keys and values, how many each of
    these kernels must hold at once."""

    name: str
    call: Callable[[Chip], object]
    left_out: Mapping[str, str] = field(default_factory=dict)
    tiles: Mapping[str, int] = field(default_factory=dict)


def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A tensor without memory."""
    return torch.empty(*shape, dtype=dtype, device="meta")


def pages(kv_heads: int, dim: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Keys and values as KVMemory has them: each a view of one block."""
    keys, values = empty(2, PAGES, kv_heads, PAGE_SIZE, dim, dtype=dtype)
    return keys, values

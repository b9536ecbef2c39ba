"""Rotary position embedding (Su et al. 2021) in the half-split order of Hugging Face checkpoints."""

import torch
from torch import Tensor


def rotary_table(positions: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """positions [T] and frequencies [D/2] float32 -> cos and signed sin, each [T, 1, D] float32."""
    angles = torch.outer(positions.to(torch.float32), frequencies)  # [T, D/2]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((cos, cos), dim=-1).unsqueeze(1), torch.cat((-sin, sin), dim=-1).unsqueeze(1)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate x [T, heads, D] by a table of rotary_table; computed in float32, returned in x's dtype."""
    wide = x.to(torch.float32)
    swapped = wide.roll(x.shape[-1] // 2, dims=-1)  # [second half, first half]
    return torch.addcmul(wide * cos, swapped, sin).to(x.dtype)

"""Rotary position embedding (Su et al. 2021) in the half-split order of Hugging Face checkpoints."""

import torch
from torch import Tensor


def rotary_table(positions: Tensor, frequencies: Tensor, magnitude: float = 1.0) -> tuple[Tensor, Tensor]:
    """positions [T] and frequencies [R/2] or [T, R/2] float32 -> cos and signed sin, each [T, 1, R] float32.

    R is the turned part of a head; magnitude multiplies both.
    """
    angles = positions.to(torch.float32).unsqueeze(1) * frequencies  # [T, R/2]
    cos, sin = angles.cos(), angles.sin()
    if magnitude != 1.0:
        cos, sin = cos * magnitude, sin * magnitude
    return torch.cat((cos, cos), dim=-1).unsqueeze(1), torch.cat((-sin, sin), dim=-1).unsqueeze(1)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the first R dimensions of x [T, heads, D] by a table of rotary_table, in float32; x's dtype is returned."""
    turned = cos.shape[-1]
    if turned < x.shape[-1]:
        return torch.cat((rotate(x[..., :turned], cos, sin), x[..., turned:]), dim=-1)
    wide = x.to(torch.float32)
    swapped = wide.roll(turned // 2, dims=-1)  # [second half, first half]
    return torch.addcmul(wide * cos, swapped, sin).to(x.dtype)

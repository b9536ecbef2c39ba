"""Rotary position embedding (Su et al. 2021) in the half-split order of Hugging Face checkpoints, or interleaved."""

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


def rotate(x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool = False) -> Tensor:
    """Turn the first R dimensions of x [T, heads, D] by a table of rotary_table, in float32 (float64 for float64).

    x's dtype is returned. interleaved: dimensions 2i and 2i + 1 turn together instead of i and i + R / 2.
    """
    turned = cos.shape[-1]
    if turned < x.shape[-1]:
        return torch.cat((rotate(x[..., :turned], cos, sin, interleaved=interleaved), x[..., turned:]), dim=-1)
    if interleaved:
        halves = torch.cat((x[..., ::2], x[..., 1::2]), dim=-1)
        return torch.stack(rotate(halves, cos, sin).chunk(2, dim=-1), dim=-1).flatten(-2)
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    swapped = wide.roll(turned // 2, dims=-1)  # [second half, first half]
    return torch.addcmul(wide * cos, swapped, sin).to(x.dtype)

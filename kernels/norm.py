"""RMSNorm (Zhang and Sennrich 2019): computed in float32 whatever the model's dtype, in float64 for float64."""

import torch
import torch.nn.functional as F
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
    """x [rows, size] and weight [size] float32 -> [rows, size] in `dtype`."""
    return F.rms_norm(x.to(torch.promote_types(x.dtype, torch.float32)), weight.shape, weight, eps).to(dtype)


def add_norm(
    hidden: Tensor,
    added: Tensor | None,
    weight: Tensor | None,
    *,
    eps: float,
    dtype: torch.dtype,
    added_weight: Tensor | None = None,
    scale: float = 1.0,
) -> Tensor:
    """hidden [T, size] float32 += scale * added, in place; returns hidden normed: [T, size] in `dtype`.

    added [T, size], any float dtype; None adds nothing. added_weight [size] float32: `added` is normed first. weight
    [size] float32; None: hidden is returned as it is, in `dtype`. eps: of both norms.
    """
    if added is not None:
        hidden.add_(added if added_weight is None else rms_norm(added, added_weight, eps, hidden.dtype), alpha=scale)
    return hidden.to(dtype) if weight is None else rms_norm(hidden, weight, eps, dtype)

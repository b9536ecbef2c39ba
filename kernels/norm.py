"""RMSNorm (Zhang and Sennrich 2019): computed in float32 whatever the model's dtype."""

import torch
import torch.nn.functional as F
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
    """x [rows, size] and weight [size] float32 -> [rows, size] in `dtype`."""
    return F.rms_norm(x.to(torch.float32), weight.shape, weight, eps).to(dtype)

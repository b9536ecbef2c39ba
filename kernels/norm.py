"""RMSNorm (Zhang and Sennrich 2019): computed in float32 whatever the model's dtype."""

import torch
import torch.nn.functional as F
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
    """x [T, hidden] float32 and weight [hidden] float32 -> [T, hidden] in `dtype`."""
    return F.rms_norm(x, (x.shape[-1],), weight, eps).to(dtype)

"""y = x W^T + b with the weight in oneDNN's blocked order where CPU and torch can: up to twice as fast for few rows.

oneDNN may cut long sums differently for different row counts, so a row can change in its last bit with its batch.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def can_pack(weight: Tensor) -> bool:
    """Whether oneDNN takes this weight [out, in] in packed form on this machine."""
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    ops = torch.ops.mkldnn
    if not (hasattr(ops, "_reorder_linear_weight") and hasattr(ops, "_linear_pointwise")):
        return False
    if weight.dtype is torch.bfloat16:
        return bool(ops._is_mkldnn_bf16_supported())
    return weight.dtype is torch.float32


class Linear:
    """A weight [out, in] and an optional bias [out], for inference."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.bias = bias
        self.packed = can_pack(weight)
        self.weight: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, None) if self.packed else weight

    def __call__(self, x: Tensor) -> Tensor:
        """x [rows, in] -> [rows, out], both in the weight's dtype."""
        if not self.packed:
            return F.linear(x, self.weight, self.bias)
        result: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return result

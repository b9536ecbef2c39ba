"""Weights in the order in which the C++ products read them (gemm.h), made once when a model is loaded."""

from dataclasses import dataclass

import torch
from torch import Tensor

from .library import CLinear

PANEL = 32  # outputs
BFLOAT16 = 0  # gemm.h's Kind


@dataclass(frozen=True, slots=True)
class PackedLinear:
    """A weight and its bias, packed. Keeps the memory that `c` points to."""

    c: CLinear
    panels: Tensor
    bias: Tensor | None


def pack_linear(weight: Tensor, bias: Tensor | None = None) -> PackedLinear:
    """weight [outputs, inputs] bfloat16, inputs a multiple of 32; bias [outputs] -> panels of bfloat16 pairs."""
    outputs, inputs = weight.shape
    assert weight.dtype is torch.bfloat16 and inputs % 32 == 0
    panels = _filled(weight).view(torch.int32).view(-1, PANEL, inputs // 2).transpose(1, 2).contiguous()
    bias = None if bias is None else _filled(bias.to(torch.float32))
    c = CLinear(BFLOAT16, outputs, inputs, 0, panels.data_ptr(), None, None if bias is None else bias.data_ptr())
    return PackedLinear(c, panels, bias)


def interleaved(gate: Tensor, up: Tensor) -> Tensor:
    """Rows of gate and up by turns, sixteen of each: a panel then has what belongs together. For weights and biases."""
    both = torch.stack((gate.view(-1, 16, *gate.shape[1:]), up.view(-1, 16, *up.shape[1:])), dim=1)
    return both.view(-1, *gate.shape[1:])


def _filled(rows: Tensor) -> Tensor:
    """With zeros up to whole panels."""
    missing = -len(rows) % PANEL
    if not missing:
        return rows.contiguous()
    return torch.cat((rows, rows.new_zeros(missing, *rows.shape[1:])))

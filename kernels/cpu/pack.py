"""Weights in the order in which the C++ products read them (panels.h), made once when a model is loaded."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from .library import CLinear
from .memory import StreamMemory

PANEL = 32  # outputs
GROUP = 32  # inputs
BFLOAT16 = 0  # panels.h's Kind


@dataclass(frozen=True, slots=True)
class BlockForm:
    """How a GGUF kind keeps 32 weights: some numbers in half precision, then bytes. number: panels.h's Kind."""

    number: int
    halves: int  # a scale, and a least weight where the kind has one
    weights: int  # bytes
    flipped: int  # bits that make a byte unsigned

    @property
    def size(self) -> int:
        """Bytes of a block."""
        return 2 * self.halves + self.weights


FORMS: Mapping[str, BlockForm] = {
    "Q8_0": BlockForm(1, 1, 32, 0x80),
    "Q4_0": BlockForm(2, 1, 16, 0),
    "Q4_1": BlockForm(3, 2, 16, 0),
}


@dataclass(frozen=True, slots=True)
class PackedLinear:
    """A weight and its bias, packed. Keeps the memory that `c` points to."""

    c: CLinear
    panels: Tensor
    bias: Tensor | None


def pack_linear(memory: StreamMemory, weight: Tensor, bias: Tensor | None = None) -> PackedLinear:
    """weight [outputs, inputs] bfloat16, inputs a multiple of 32; bias [outputs] -> panels of bfloat16 pairs."""
    outputs, inputs = weight.shape
    assert weight.dtype is torch.bfloat16 and inputs % 32 == 0
    pairs = _filled(weight).view(torch.int32).view(-1, PANEL, inputs // 2).transpose(1, 2)
    panels = memory.take(4 * pairs.numel()).view(torch.int32).view(pairs.shape).copy_(pairs)
    return _packed(BFLOAT16, outputs, inputs, panels, bias)


def pack_blocks(memory: StreamMemory, kind: str, rows: Tensor, bias: Tensor | None = None) -> PackedLinear:
    """rows [outputs, bytes] uint8 as a GGUF file has them, of a kind in FORMS; bias [outputs] -> panels of blocks.

    The same numbers in another order: what 32 outputs have of 32 inputs stands together.
    """
    form = FORMS[kind]
    outputs, groups = len(rows), rows.shape[1] // form.size
    blocks = _filled(rows).view(-1, PANEL, groups, form.size)
    halves, weights = blocks.split((2 * form.halves, form.weights), dim=-1)
    panels = memory.take(len(blocks), groups, PANEL * form.size)
    to_halves, to_weights = panels.split((PANEL * 2 * form.halves, PANEL * form.weights), dim=-1)
    # [panels, 32, groups, halves, 2] -> [panels, groups, halves, 32, 2]
    to_halves.unflatten(-1, (form.halves, PANEL, 2)).copy_(halves.unflatten(-1, (-1, 2)).permute(0, 2, 3, 1, 4))
    # four inputs are one operand: [panels, 32, groups, quads, 4] -> [panels, groups, quads, 32, 4]
    quads = weights.unflatten(-1, (-1, 4)).permute(0, 2, 3, 1, 4)
    to_weights.unflatten(-1, (-1, PANEL, 4)).copy_(quads)
    to_weights ^= form.flipped
    return _packed(form.number, outputs, groups * GROUP, panels, bias)


def interleaved(gate: Tensor, up: Tensor) -> Tensor:
    """Rows of gate and up by turns, sixteen of each: a panel then has what belongs together. For weights and biases."""
    both = torch.stack((gate.view(-1, 16, *gate.shape[1:]), up.view(-1, 16, *up.shape[1:])), dim=1)
    return both.view(-1, *gate.shape[1:])


def _packed(kind: int, outputs: int, inputs: int, panels: Tensor, bias: Tensor | None) -> PackedLinear:
    bias = None if bias is None else _filled(bias.to(torch.float32))
    c = CLinear(kind, outputs, inputs, 0, panels.data_ptr(), None if bias is None else bias.data_ptr())
    return PackedLinear(c, panels, bias)


def _filled(rows: Tensor) -> Tensor:
    """With zeros up to whole panels."""
    missing = -len(rows) % PANEL
    if not missing:
        return rows.contiguous()
    return torch.cat((rows, rows.new_zeros(missing, *rows.shape[1:])))

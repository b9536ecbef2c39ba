"""Weights as GGUF files keep them: groups of 32 inputs of few bits each, with a scale and perhaps a least weight.

Knows no model. The gguf package rounds and dequantises.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from torch import Tensor

from ..kernels.cpu.pack import FORMS, GROUP

BlockKind = Literal["Q8_0", "Q4_0", "Q4_1"]
KINDS: tuple[BlockKind, ...] = ("Q8_0", "Q4_0", "Q4_1")


@dataclass(frozen=True, slots=True)
class Blocks:
    """A weight in blocks. rows: [outputs, bytes] uint8, whose order and cuts are those of the weight's rows."""

    kind: BlockKind
    rows: Tensor

    @property
    def elements(self) -> int:
        return self.rows.numel() // FORMS[self.kind].size * GROUP

    def dequantised(self) -> Tensor:
        """[outputs, inputs] float32."""
        one_row = self.rows.reshape(1, -1).numpy()  # the package takes many short rows slowly
        values = dequantize(one_row, GGMLQuantizationType[self.kind])
        return torch.from_numpy(values).view(len(self.rows), -1)


def rounded(weight: Tensor, kind: BlockKind) -> Blocks:
    """weight [outputs, inputs], inputs a multiple of 32, to the nearest that each group's scale allows."""
    return Blocks(kind, torch.from_numpy(quantize(weight.to(torch.float32).numpy(), GGMLQuantizationType[kind])))

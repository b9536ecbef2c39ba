"""Weights in blocks: what a file says, in any cut of its rows."""

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from fairstep.kernels.cpu.pack import FORMS
from fairstep.model.blocks import KINDS, BlockKind, Blocks, rounded

WEIGHT = torch.randn(24, 96, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_are_what_the_package_makes_and_reads(kind: BlockKind) -> None:
    blocks = rounded(WEIGHT, kind)
    file = quantize(WEIGHT.numpy(), GGMLQuantizationType[kind])
    assert np.array_equal(blocks.rows.numpy(), file)
    assert np.array_equal(blocks.dequantised().numpy(), dequantize(file, GGMLQuantizationType[kind]))
    assert blocks.elements == WEIGHT.numel() and blocks.rows.shape == (24, 3 * FORMS[kind].size)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_can_be_cut_and_reordered(kind: BlockKind) -> None:
    blocks, order = rounded(WEIGHT, kind), torch.randperm(24)
    assert torch.equal(Blocks(kind, blocks.rows[order][5:]).dequantised(), blocks.dequantised()[order][5:])


@pytest.mark.parametrize(("kind", "most"), [("Q8_0", 0.006), ("Q4_1", 0.11), ("Q4_0", 0.13)])
def test_rounding_is_as_near_as_the_bits_allow(kind: BlockKind, most: float) -> None:
    error = rounded(WEIGHT.to(torch.bfloat16), kind).dequantised() - WEIGHT
    assert error.pow(2).mean().sqrt() < most


@pytest.mark.parametrize("kind", KINDS)
def test_constant_and_empty_groups_are_rounded_to_themselves(kind: BlockKind) -> None:
    weight = torch.cat((torch.zeros(2, 32), torch.full((2, 32), 127.0)))
    assert torch.equal(rounded(weight, kind).dequantised(), weight)

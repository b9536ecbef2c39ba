"""bfloat16 in the interpreter, after the conftest has put in what triton lacks."""

import numpy as np
import torch
import triton
import triton.language as tl

import bf16_shim


@triton.jit
def _between_16_bit_types(x, out):
    index = tl.arange(0, 64)
    tl.store(out + index, tl.load(x + index).to(tl.float32))


def test_nothing_is_left_to_put_in() -> None:
    assert bf16_shim.install() == []


def test_rounding_is_torch_s_for_every_kind_of_value() -> None:
    bits = torch.arange(0, 2**32, 65_521, dtype=torch.int64).to(torch.int32)  # a prime step: low bits of all kinds
    values = bits.view(torch.float32)
    values = values[~values.isnan()]
    got = torch.from_numpy(bf16_shim._rounded(values.numpy()).view(np.int16)).view(torch.bfloat16)
    assert torch.equal(got, values.to(torch.bfloat16))
    assert bf16_shim._rounded(np.array([np.nan], np.float32)) == 0x7FC0


def test_bfloat16_survives_a_way_through_float32() -> None:
    x = torch.randn(64, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
    out = torch.empty_like(x)
    _between_16_bit_types[(1,)](x, out)
    assert torch.equal(out, x)

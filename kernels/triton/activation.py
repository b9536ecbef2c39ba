"""act(gate) * up in one launch (GLU variants, Shazeer 2020): SiLU and both forms of GELU.

Reference: kernels/activation.py. tanh is written as a logistic function and erf is the compiler's own, so that nothing
of a vendor's library is needed.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..activation import Activation
from .device import TILE_WARPS, tile_rows

BLOCK = 1024  # most elements of a row that one program computes

SILU: tl.constexpr = tl.constexpr(0)
GELU_TANH: tl.constexpr = tl.constexpr(1)
GELU: tl.constexpr = tl.constexpr(2)
CODES: dict[Activation, int] = {"silu": 0, "gelu_tanh": 1, "gelu": 2}


def act_mul(gate_up: Tensor, activation: Activation) -> Tensor:
    """gate_up [T, 2 * size], the gate's half first, rows of any stride -> [T, size] in the same dtype.

    Computed in float32; act(gate) is rounded to the dtype before it is multiplied, as torch's own operations do.
    """
    tokens, width = gate_up.shape
    if width % 2 or gate_up.stride(1) != 1:
        raise ValueError(f"gate_up must be rows of an even number of elements, not {tuple(gate_up.shape)}")
    size = width // 2
    out = torch.empty(tokens, size, dtype=gate_up.dtype, device=gate_up.device)
    if tokens:
        block = min(BLOCK, triton.next_power_of_2(size))
        rows = tile_rows(tokens, block, out.device)
        _act_mul[(triton.cdiv(tokens, rows), triton.cdiv(size, block))](
            gate_up,
            out,
            tokens,
            gate_up.stride(0),
            SIZE=size,
            ACT=CODES[activation],
            ROWS=rows,
            BLOCK=block,
            num_warps=TILE_WARPS,
        )
    return out


@triton.jit(do_not_specialize=["tokens"])
def _act_mul(
    gate_up,
    out,
    tokens,
    row_stride,
    SIZE: tl.constexpr,
    ACT: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None].to(tl.int64)
    columns = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]
    inside = (row < tokens) & (columns < SIZE)
    source = gate_up + row * row_stride + columns
    gate = tl.load(source, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(source + SIZE, mask=inside, other=0.0).to(tl.float32)
    dtype = out.dtype.element_ty
    product = _act(gate, ACT).to(dtype).to(tl.float32) * up
    tl.store(out + row * SIZE + columns, product.to(dtype), mask=inside)


@triton.jit
def _act(x, ACT: tl.constexpr):
    """x float32."""
    if ACT == SILU:
        return x / (1.0 + tl.exp(-x))
    elif ACT == GELU_TANH:
        # (1 + tanh(z)) / 2 is the logistic function of 2z, and no exponential of it overflows into a NaN
        z = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        return x / (1.0 + tl.exp(-2.0 * z))
    else:
        return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))

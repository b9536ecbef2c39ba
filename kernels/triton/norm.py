"""A block's output added to the residual stream, and the norm of what the next block reads, in one launch.

RMSNorm: Zhang and Sennrich 2019. Reference: kernels/norm.py. Weights come ready to multiply by (1 + weight where a
model says so). A program takes whole rows, which are read once and stay in registers.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .device import tile_rows

WIDEST = 16384  # elements of a row that registers hold


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
    [size] float32; None: hidden is returned as it is, in `dtype`. eps: of both norms. All of it is computed in float32.
    """
    tokens, size = hidden.shape
    if size > WIDEST:
        raise ValueError(f"rows of {size} elements are wider than the {WIDEST} that one program holds")
    if hidden.stride(1) != 1 or (added is not None and added.stride(1) != 1):
        raise ValueError("the elements of a row must lie one after the other")
    out = torch.empty(tokens, size, dtype=dtype, device=hidden.device)
    if tokens:
        block = triton.next_power_of_2(size)
        rows = tile_rows(tokens, block, hidden.device)
        _add_norm[(triton.cdiv(tokens, rows),)](
            hidden,
            added,
            added_weight,
            weight,
            out,
            scale,
            eps,
            tokens,
            hidden.stride(0),
            0 if added is None else added.stride(0),
            SIZE=size,
            ADDS=added is not None,
            NORMS_ADDED=added_weight is not None,
            NORMS=weight is not None,
            ROWS=rows,
            BLOCK=block,
            num_warps=4 if block <= 2048 else 8 if block <= 8192 else 16,
        )
    return out


@triton.jit(do_not_specialize=["tokens"])
def _add_norm(
    hidden,
    added,
    added_weight,
    weight,
    out,
    scale,
    eps,
    tokens,
    hidden_stride,
    added_stride,
    SIZE: tl.constexpr,
    ADDS: tl.constexpr,
    NORMS_ADDED: tl.constexpr,
    NORMS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None].to(tl.int64)
    columns = tl.arange(0, BLOCK)[None, :]
    inside = (row < tokens) & (columns < SIZE)
    place = hidden + row * hidden_stride + columns
    x = tl.load(place, mask=inside, other=0.0)
    if ADDS:
        a = tl.load(added + row * added_stride + columns, mask=inside, other=0.0).to(tl.float32)
        if NORMS_ADDED:
            a = _normed(a, added_weight + columns, columns < SIZE, eps, SIZE)
        x += scale * a
        tl.store(place, x, mask=inside)
    if NORMS:
        x = _normed(x, weight + columns, columns < SIZE, eps, SIZE)
    tl.store(out + row * SIZE + columns, x.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _normed(x, weights, inside, eps, SIZE: tl.constexpr):
    """x [ROWS, BLOCK] float32, zero past SIZE."""
    mean = tl.sum(x * x, axis=1)[:, None] / SIZE
    return x * tl.rsqrt(mean + eps) * tl.load(weights, mask=inside, other=0.0)

"""Write a step's keys and values into their slots; rows with slot -1 are skipped. Reference: kernels/kv_write.py.

For models whose own code makes queries, keys and values; ours writes them where it turns them (qkv.py).
"""

import triton
import triton.language as tl
from torch import Tensor

from .device import TILE_WARPS, tile_rows


def kv_write(keys: Tensor, values: Tensor, k: Tensor, v: Tensor, slots: Tensor) -> None:
    """Put k [T, kv_heads, Dk] and v [T, kv_heads, Dv] at slots [T] int64 of keys [pages, kv_heads, page_size, Dk] and
    values [..., Dv], in place. A slot is page * page_size + offset; -1 skips the row. All may have any strides but 1.
    """
    for cache, rows in ((keys, k), (values, v)):
        _write(cache, rows if rows.stride(-1) == 1 else rows.contiguous(), slots)


def _write(cache: Tensor, rows: Tensor, slots: Tensor) -> None:
    tokens, heads, dim = rows.shape
    if cache.shape[1] != heads or cache.shape[3] != dim or cache.stride(3) != 1:
        raise ValueError(f"rows {tuple(rows.shape)} do not fit pages {tuple(cache.shape)}")
    if not tokens:
        return
    dims = triton.next_power_of_2(dim)
    block = tile_rows(tokens * heads, dims, cache.device)
    _kv_write[(triton.cdiv(tokens * heads, block),)](
        cache,
        rows,
        slots,
        tokens,
        *cache.stride()[:3],
        *rows.stride()[:2],
        HEADS=heads,
        DIM=dim,
        PAGE=cache.shape[2],
        ROWS=block,
        DIM_BLOCK=dims,
        num_warps=TILE_WARPS,
    )


@triton.jit(do_not_specialize=["tokens"])
def _kv_write(
    cache,
    rows,
    slots,
    tokens,
    page_stride,
    head_stride,
    slot_stride,
    token_stride,
    row_stride,
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    PAGE: tl.constexpr,
    ROWS: tl.constexpr,
    DIM_BLOCK: tl.constexpr,
):
    """A row of a tile is one head of one token."""
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    known = row < tokens * HEADS
    token, head = (row // HEADS).to(tl.int64), row % HEADS
    dims = tl.arange(0, DIM_BLOCK)[None, :]
    inside = known & (dims < DIM)
    copied = tl.load(rows + token * token_stride + head * row_stride + dims, mask=inside)
    slot = tl.load(slots + token, mask=known, other=-1).to(tl.int64)
    # page ids are int64 by now: a page's first element may lie past 2**31
    place = cache + (slot // PAGE) * page_stride + (slot % PAGE) * slot_stride + head * head_stride
    tl.store(place + dims, copied.to(cache.dtype.element_ty), mask=inside & (slot >= 0))

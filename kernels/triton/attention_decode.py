"""Attention of decodes, one query a sequence, its positions split between programs (Flash-Decoding, Dao et al. 2023).

Splits are stretches of SPLIT positions whatever the batch, so that a sequence's result to the last bit is its own: how
many programs share the splits decides only who computes them.
"""

import triton
import triton.language as tl

from .attention_tile import attend

SPLIT = 256  # positions


@triton.jit
def split_bounds(length, limit, WINDOW: tl.constexpr, SPLIT: tl.constexpr):
    """-> first, begin, each, splits: the first position seen, the first one's split, positions of a split, splits.

    The one rule that says which partial results exist: what the kernel writes is what the reducer reads. Splits begin
    at multiples of SPLIT. Past `limit` of them each is as many times longer as it takes.
    """
    first = tl.maximum(length - WINDOW, 0) if WINDOW else length * 0
    begin = first // SPLIT * SPLIT
    blocks = (tl.maximum(length - begin, 0) + SPLIT - 1) // SPLIT
    each = (blocks + limit - 1) // limit  # in blocks; 0 without positions
    return first, begin, each * SPLIT, (blocks + each - 1) // tl.maximum(each, 1)


@triton.jit(do_not_specialize=["limit", "table_stride"])
def decode_kernel(
    q,
    keys,
    values,
    page_tables,
    cu_q,
    kv_len,
    sums,
    largest,
    totals,
    limit,
    table_stride,
    scale,
    q_token,
    q_head,
    key_page: tl.int64,
    key_head,
    key_slot,
    value_page: tl.int64,
    value_head,
    value_slot,
    GROUP: tl.constexpr,
    KEY_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    KEY_BLOCK: tl.constexpr,
    VALUE_BLOCK: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr,
    SPLIT: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Grid (kv_heads, programs, S): program p computes splits p, p + programs, ... of its sequence, of which sums
    [S, heads, limit, VALUE_DIM], largest and totals [S, heads, limit] keep what attend gives, all float32. Sequences
    with another number of queries than one are skipped."""
    kv_head = tl.program_id(0)
    sequence = tl.program_id(2)
    token = tl.load(cu_q + sequence)
    if tl.load(cu_q + sequence + 1) - token != 1:
        return
    length = tl.load(kv_len + sequence)
    first, begin, each, splits = split_bounds(length, limit, WINDOW, SPLIT)
    if tl.program_id(1) >= splits:
        return

    row = tl.arange(0, BLOCK_M)
    real = row < GROUP
    head = kv_head * GROUP + row
    seen_to = tl.where(real, length - 1, -1)
    key_dims = tl.arange(0, KEY_BLOCK)
    value_dims = tl.arange(0, VALUE_BLOCK)
    q_place = q + token.to(tl.int64) * q_token + (head * q_head)[:, None] + key_dims[None, :]
    q_tile = tl.load(q_place, mask=real[:, None] & (key_dims < KEY_DIM)[None, :], other=0.0)
    kept = (sequence.to(tl.int64) * tl.num_programs(0) * GROUP + head) * limit  # [BLOCK_M] each head's first split

    for split in tl.range(tl.program_id(1), splits, tl.num_programs(1)):
        weighted, most, total = attend(
            q_tile,
            seen_to,
            keys + kv_head * key_head,
            values + kv_head * value_head,
            page_tables + sequence.to(tl.int64) * table_stride,
            tl.maximum(begin + split * each, first),
            tl.minimum(begin + (split + 1) * each, length),
            scale,
            key_page,
            key_slot,
            value_page,
            value_slot,
            KEY_DIM,
            VALUE_DIM,
            KEY_BLOCK,
            VALUE_BLOCK,
            PAGE_SIZE,
            WINDOW,
            SOFTCAP,
            BLOCK_M,
            BLOCK_N,
        )
        place = kept + split
        tl.store(largest + place, most, mask=real)
        tl.store(totals + place, total, mask=real)
        sums_place = sums + place[:, None] * VALUE_DIM + value_dims[None, :]
        tl.store(sums_place, weighted, mask=real[:, None] & (value_dims < VALUE_DIM)[None, :])


@triton.jit(do_not_specialize=["limit"])
def reduce_kernel(
    sums,
    largest,
    totals,
    sinks,
    cu_q,
    kv_len,
    out,
    limit,
    out_token,
    out_head,
    VALUE_DIM: tl.constexpr,
    VALUE_BLOCK: tl.constexpr,
    WINDOW: tl.constexpr,
    SINKS: tl.constexpr,
    SPLIT: tl.constexpr,
    BLOCK_SPLITS: tl.constexpr,
):
    """Grid (heads, S): joins the splits of a sequence in their order. A sequence without positions gets zeros."""
    head = tl.program_id(0)
    sequence = tl.program_id(1)
    token = tl.load(cu_q + sequence)
    if tl.load(cu_q + sequence + 1) - token != 1:
        return
    _, _, _, splits = split_bounds(tl.load(kv_len + sequence), limit, WINDOW, SPLIT)
    kept = (sequence.to(tl.int64) * tl.num_programs(0) + head) * limit
    some = tl.arange(0, BLOCK_SPLITS)
    dims = tl.arange(0, VALUE_BLOCK)

    most = tl.full([], float("-inf"), tl.float32)
    for start in tl.range(0, splits, BLOCK_SPLITS):
        here = tl.load(largest + kept + start + some, mask=start + some < splits, other=float("-inf"))
        most = tl.maximum(most, tl.max(here, 0))
    sink = tl.full([], float("-inf"), tl.float32)
    if SINKS:
        sink = tl.load(sinks + head).to(tl.float32) * 1.4426950408889634
    most = tl.maximum(most, sink)
    most = tl.where(most == float("-inf"), 0.0, most)

    total = tl.exp2(sink - most)
    result = tl.zeros([VALUE_BLOCK], tl.float32)
    for start in tl.range(0, splits, BLOCK_SPLITS):
        real = start + some < splits
        place = kept + start + some
        shrink = tl.exp2(tl.load(largest + place, mask=real, other=float("-inf")) - most)
        total += tl.sum(shrink * tl.load(totals + place, mask=real, other=0.0), 0)
        sums_place = sums + place[:, None] * VALUE_DIM + dims[None, :]
        part = tl.load(sums_place, mask=real[:, None] & (dims < VALUE_DIM)[None, :], other=0.0)
        result += tl.sum(shrink[:, None] * part, 0)
    result = result / tl.where(total == 0.0, 1.0, total)
    out_place = out + token.to(tl.int64) * out_token + head * out_head + dims
    tl.store(out_place, result.to(out.dtype.element_ty), mask=dims < VALUE_DIM)

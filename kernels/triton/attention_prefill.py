"""Attention of prompt chunks: every sequence with more than one query, each as tiles of queries over all it sees."""

import triton
import triton.language as tl

from .attention_tile import attend


@triton.jit(do_not_specialize=["sequences", "table_stride"])
def prefill_kernel(
    q,
    keys,
    values,
    page_tables,
    cu_q,
    kv_len,
    sinks,
    out,
    sequences,
    table_stride,
    scale,
    q_token,
    q_head,
    out_token,
    out_head,
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
    SINKS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Grid (T // QUERIES + S, kv_heads), QUERIES = BLOCK_M // GROUP: as many tiles as there can be, whatever the
    lengths; the surplus ends at once. A sequence of one query is left to the decode kernel."""
    QUERIES: tl.constexpr = BLOCK_M // GROUP
    tile = tl.num_programs(0) - 1 - tl.program_id(0)  # the last queries of a chunk see most: they begin first
    sequence = _sequence_of(tile, cu_q, sequences, QUERIES)
    q_start = tl.load(cu_q + sequence)
    q_len = tl.load(cu_q + sequence + 1) - q_start
    first_query = (tile - q_start // QUERIES - sequence) * QUERIES
    if q_len <= 1 or first_query >= q_len:
        return
    kv_head = tl.program_id(1)
    length = tl.load(kv_len + sequence)
    row = tl.arange(0, BLOCK_M)
    query = first_query + row // GROUP
    head = kv_head * GROUP + row % GROUP
    real = (row < QUERIES * GROUP) & (query < q_len)
    before = length - q_len  # positions before the chunk
    seen_to = tl.where(real, before + query, -1)

    key_dims = tl.arange(0, KEY_BLOCK)
    value_dims = tl.arange(0, VALUE_BLOCK)
    token = (q_start + query).to(tl.int64)
    q_place = q + (token * q_token + head * q_head)[:, None] + key_dims[None, :]
    q_tile = tl.load(q_place, mask=real[:, None] & (key_dims < KEY_DIM)[None, :], other=0.0)

    end = tl.minimum(before + tl.minimum(first_query + QUERIES, q_len), length)
    begin = tl.maximum(before + first_query - WINDOW + 1, 0) if WINDOW else 0
    sums, largest, totals = attend(
        q_tile,
        seen_to,
        keys + kv_head * key_head,
        values + kv_head * value_head,
        page_tables + sequence.to(tl.int64) * table_stride,
        begin,
        end,
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
    if SINKS:
        sink = tl.load(sinks + head, mask=real, other=0.0).to(tl.float32) * 1.4426950408889634
        most = tl.maximum(largest, sink)
        most = tl.where(most == float("-inf"), 0.0, most)
        sums *= tl.exp2(largest - most)[:, None]
        totals = totals * tl.exp2(largest - most) + tl.exp2(sink - most)
    result = sums / tl.where(totals == 0.0, 1.0, totals)[:, None]  # zeros where nothing is seen
    out_place = out + (token * out_token + head * out_head)[:, None] + value_dims[None, :]
    tl.store(out_place, result.to(out.dtype.element_ty), mask=real[:, None] & (value_dims < VALUE_DIM)[None, :])


@triton.jit
def _sequence_of(tile, cu_q, sequences, QUERIES: tl.constexpr):
    """The sequence that a tile belongs to: the last whose first tile, cu_q[s] // QUERIES + s, is not after this one."""
    low = tile * 0
    high = low + sequences
    while high - low > 1:
        middle = (low + high) // 2
        reached = tl.load(cu_q + middle) // QUERIES + middle <= tile
        low = tl.where(reached, middle, low)
        high = tl.where(reached, high, middle)
    return low

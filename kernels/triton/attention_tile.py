"""One tile of queries over a stretch of paged positions: the loop that both variants of attention share.

Online softmax (Milakov and Gimelshein 2018; FlashAttention, Dao et al. 2022) in float32 and in powers of two; a tile's
rows are the query heads of one kv head, for one or more queries, so that its keys and values are read once for all.
"""

import triton
import triton.language as tl


@triton.jit
def attend(
    q,  # [BLOCK_M, KEY_BLOCK]
    seen_to,  # [BLOCK_M] each row's own position; -1: a row without a query
    keys,  # the kv head's first key of page 0
    values,
    table,  # the sequence's page table
    begin,  # the stretch of positions, [begin, end)
    end,
    scale,
    key_page,
    key_slot,
    value_page,
    value_slot,
    KEY_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    KEY_BLOCK: tl.constexpr,
    VALUE_BLOCK: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    WINDOW: tl.constexpr,  # positions that a query sees, itself included; 0: all
    SOFTCAP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """-> sums [BLOCK_M, VALUE_BLOCK], largest [BLOCK_M], totals [BLOCK_M], all float32.

    sums are of values weighted by 2 ** (score - largest), totals of the weights; scores count in powers of two. A row
    that sees nothing has sums and totals of 0 and a largest of -inf. Tiles begin at multiples of BLOCK_N, and nothing
    outside the stretch is read: what lies there, NaN included, changes nothing.
    """
    key_dims = tl.arange(0, KEY_BLOCK)
    value_dims = tl.arange(0, VALUE_BLOCK)
    sums = tl.zeros([BLOCK_M, VALUE_BLOCK], tl.float32)
    largest = tl.full([BLOCK_M], float("-inf"), tl.float32)
    totals = tl.zeros([BLOCK_M], tl.float32)
    for tile in tl.range(begin // BLOCK_N * BLOCK_N, end, BLOCK_N):
        positions = tile + tl.arange(0, BLOCK_N)
        inside = (positions >= begin) & (positions < end)
        # 64 bits before any stride: a page may begin past 2 ** 31 elements
        pages = tl.load(table + positions // PAGE_SIZE, mask=inside, other=0).to(tl.int64)
        slots = positions % PAGE_SIZE

        k_place = keys + (pages * key_page + slots * key_slot)[None, :] + key_dims[:, None]
        k = tl.load(k_place, mask=inside[None, :] & (key_dims < KEY_DIM)[:, None], other=0.0)
        products = tl.dot(q, k, input_precision="ieee")
        if SOFTCAP != 0.0:
            scores = _capped(products * scale, SOFTCAP) * 1.4426950408889634  # log2(e)
        else:
            scores = products * (scale * 1.4426950408889634)
        seen = inside[None, :] & (positions[None, :] <= seen_to[:, None])
        if WINDOW:
            seen &= positions[None, :] > seen_to[:, None] - WINDOW
        scores = tl.where(seen, scores, float("-inf"))

        new_largest = tl.maximum(largest, tl.max(scores, 1))
        finite = tl.where(new_largest == float("-inf"), 0.0, new_largest)  # of a row that has seen nothing yet
        weights = tl.exp2(scores - finite[:, None])
        shrink = tl.exp2(largest - finite)
        totals = totals * shrink + tl.sum(weights, 1)
        largest = new_largest

        v_place = values + (pages * value_page + slots * value_slot)[:, None] + value_dims[None, :]
        v = tl.load(v_place, mask=inside[:, None] & (value_dims < VALUE_DIM)[None, :], other=0.0)
        sums = tl.dot(weights.to(v.dtype), v, sums * shrink[:, None], input_precision="ieee")
    return sums, largest, totals


@triton.jit
def _capped(scores, SOFTCAP: tl.constexpr):
    """SOFTCAP * tanh(scores / SOFTCAP)."""
    x = scores * (1.0 / SOFTCAP)
    # the exponential may overflow to infinity, which gives 1; near 0 it would lose digits that a series keeps
    far = 1.0 - 2.0 / (tl.exp2(x * 2.8853900817779268) + 1.0)  # 2 * log2(e)
    y = x * x
    series = 1.0 + y * (-1.0 / 3 + y * (2.0 / 15 + y * (-17.0 / 315 + y * (62.0 / 2835))))
    return SOFTCAP * tl.where(y < 0.0625, x * series, far)

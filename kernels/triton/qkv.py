"""From the joined projection to attention in one launch: queries and keys normed and turned, keys and values written.

Reference: kernels/qkv.py. A program takes some heads, of one token or of several; a head is pairs of dimensions that
turn together (Su et al. 2021) and a tail that stays. Sums and products are in float32; a normed number is rounded to
the model's dtype before it is turned, as the reference does.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from .device import TILE_WARPS, tile_rows

NO_NORM: tl.constexpr = tl.constexpr(0)
HEAD_NORM: tl.constexpr = tl.constexpr(1)
WHOLE_NORM: tl.constexpr = tl.constexpr(2)


def qkv_rope_write(
    qkv: Tensor,
    slots: Tensor,
    keys: Tensor,
    values: Tensor,
    table: tuple[Tensor, Tensor] | None = None,
    norms: Sequence[Tensor] = (),
    eps: float = 0.0,
    *,
    interleaved: bool = False,
) -> Tensor:
    """Split qkv [T, (heads + 2 * kv_heads) * D], write keys and values, return queries [T, heads, D] in qkv's dtype.

    keys, values [pages, kv_heads, page_size, D], of any strides but the last. slots [T] int64: page * page_size +
    offset; -1 is for rows whose keys and values go nowhere and whose queries are zero. table: cos and signed sin of
    kernels.rope, [T, 1, R] float32 with R up to D; None turns nothing. norms: weights of queries and keys, float32,
    each a head long [D] or as long as all heads. interleaved: dimensions 2i and 2i + 1 turn together, not i and
    i + R / 2.
    """
    _, kv_heads, page_size, dim = keys.shape
    total = qkv.shape[1] // dim
    heads = total - 2 * kv_heads
    turned = table[0].shape[-1] if table is not None else 0
    _check(qkv, keys, values, heads, turned, norms)
    queries = torch.empty(len(qkv), heads, dim, dtype=qkv.dtype, device=qkv.device)
    if not len(qkv):
        return queries
    cos, sin = table if table is not None else (None, None)
    q_norm, k_norm = norms or (None, None)
    norm = _norm_code(norms, dim)
    rates = _whole_rates(qkv, heads * dim, kv_heads * dim, eps) if norm == WHOLE_NORM.value else None
    pairs, tail = (turned or dim) // 2, dim - turned if turned else 0
    pair_block, tail_block = triton.next_power_of_2(pairs), triton.next_power_of_2(tail) if tail else 0
    rows = tile_rows(len(qkv) * total, max(pair_block, tail_block), qkv.device)
    _qkv_rope_write[(triton.cdiv(len(qkv) * total, rows),)](
        qkv,
        slots,
        cos,
        sin,
        q_norm,
        k_norm,
        rates,
        queries,
        keys,
        values,
        eps,
        len(qkv),
        qkv.stride(0),
        0 if cos is None else cos.stride(0),
        *keys.stride()[:3],
        *values.stride()[:3],
        HEADS=heads,
        KV_HEADS=kv_heads,
        DIM=dim,
        PAGE=page_size,
        TURNS=turned > 0,
        INTERLEAVED=interleaved,
        NORM=norm,
        PAIRS=pairs,
        ROWS=rows,
        PAIR_BLOCK=pair_block,
        TAIL_BLOCK=tail_block,
        num_warps=TILE_WARPS,
    )
    return queries


def _check(qkv: Tensor, keys: Tensor, values: Tensor, heads: int, turned: int, norms: Sequence[Tensor]) -> None:
    kv_heads, dim = keys.shape[1], keys.shape[3]
    if qkv.shape[1] != (heads + 2 * kv_heads) * dim or heads < 1 or keys.shape != values.shape:
        raise ValueError(f"rows of {qkv.shape[1]} do not fit pages {tuple(keys.shape)} and {tuple(values.shape)}")
    if dim % 2 or turned % 2 or turned > dim:
        raise ValueError(f"a head's dimensions ({dim}) and those that turn ({turned}) must be pairs")
    if qkv.stride(1) != 1 or keys.stride(3) != 1 or values.stride(3) != 1:
        raise ValueError("the dimensions of a head must lie one after the other")
    sizes = [len(weight) for weight in norms]
    if norms and sizes not in ([dim, dim], [heads * dim, kv_heads * dim]):
        raise ValueError(f"norms of {sizes} are neither a head long ({dim}) nor as long as all of them")


def _norm_code(norms: Sequence[Tensor], dim: int) -> int:
    if not norms:
        return int(NO_NORM.value)
    return int(HEAD_NORM.value if len(norms[0]) == len(norms[1]) == dim else WHOLE_NORM.value)


def _whole_rates(qkv: Tensor, q_size: int, k_size: int, eps: float) -> Tensor:
    """What norms over all heads multiply queries and keys by, before their weights: [T, 2] float32."""
    rates = torch.empty(len(qkv), 2, dtype=torch.float32, device=qkv.device)
    block = triton.next_power_of_2(max(q_size, k_size))
    _rates[(len(qkv), 2)](qkv, rates, eps, qkv.stride(0), Q_SIZE=q_size, K_SIZE=k_size, BLOCK=block, num_warps=4)
    return rates


@triton.jit
def _rates(qkv, rates, eps, qkv_stride, Q_SIZE: tl.constexpr, K_SIZE: tl.constexpr, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    size = Q_SIZE + part * (K_SIZE - Q_SIZE)
    places = tl.arange(0, BLOCK)
    x = tl.load(qkv + token * qkv_stride + part * Q_SIZE + places, mask=places < size, other=0.0).to(tl.float32)
    tl.store(rates + token * 2 + part, tl.rsqrt(tl.sum(x * x, axis=0) / size + eps))


@triton.jit(do_not_specialize=["tokens"])
def _qkv_rope_write(
    qkv,
    slots,
    cos,
    sin,
    q_norm,
    k_norm,
    rates,
    queries,
    keys,
    values,
    eps,
    tokens,
    qkv_stride,
    table_stride,
    key_page,
    key_head,
    key_slot,
    value_page,
    value_head,
    value_slot,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    DIM: tl.constexpr,
    PAGE: tl.constexpr,
    TURNS: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    NORM: tl.constexpr,
    PAIRS: tl.constexpr,
    ROWS: tl.constexpr,
    PAIR_BLOCK: tl.constexpr,
    TAIL_BLOCK: tl.constexpr,
):
    """A row of a tile is one head of one token: queries' heads, keys' and values' in turn."""
    TOTAL: tl.constexpr = HEADS + 2 * KV_HEADS
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    known = row < tokens * TOTAL
    token = (row // TOTAL).to(tl.int64)
    head = row % TOTAL
    is_query = known & (head < HEADS)
    is_key = known & (head >= HEADS) & (head < HEADS + KV_HEADS)
    is_value = known & (head >= HEADS + KV_HEADS)
    source = qkv + token * qkv_stride + head * DIM
    pair = tl.arange(0, PAIR_BLOCK)[None, :]
    paired = pair < PAIRS
    first = 2 * pair if INTERLEAVED else pair
    second = first + (1 if INTERLEAVED else PAIRS)
    a = tl.load(source + first, mask=known & paired, other=0.0).to(tl.float32)
    b = tl.load(source + second, mask=known & paired, other=0.0).to(tl.float32)
    if TAIL_BLOCK:
        rest = 2 * PAIRS + tl.arange(0, TAIL_BLOCK)[None, :]
        trailing = rest < DIM
        c = tl.load(source + rest, mask=known & trailing, other=0.0).to(tl.float32)

    if NORM != NO_NORM:
        q_weights, k_weights = q_norm, k_norm
        if NORM == HEAD_NORM:
            squares = tl.sum(a * a, axis=1) + tl.sum(b * b, axis=1)
            if TAIL_BLOCK:
                squares += tl.sum(c * c, axis=1)
            rate = tl.rsqrt(squares / DIM + eps)[:, None]
        else:
            q_weights, k_weights = q_norm + head * DIM, k_norm + (head - HEADS) * DIM
            rate = tl.load(rates + token * 2 + (head >= HEADS), mask=is_query | is_key, other=1.0)
        dtype = queries.dtype.element_ty
        a = _normed(a, rate, q_weights + first, k_weights + first, paired, is_query, is_key).to(dtype).to(tl.float32)
        b = _normed(b, rate, q_weights + second, k_weights + second, paired, is_query, is_key).to(dtype).to(tl.float32)
        if TAIL_BLOCK:
            c = _normed(c, rate, q_weights + rest, k_weights + rest, trailing, is_query, is_key)

    if TURNS:
        # of the table's two halves the first has cos, the second sin with its own sign
        turning = known & paired
        x = tl.load(cos + token * table_stride + pair, mask=turning, other=1.0)
        y = tl.load(sin + token * table_stride + PAIRS + pair, mask=turning, other=0.0)
        turned = a * x - b * y
        b = tl.where(is_value, b, b * x + a * y)
        a = tl.where(is_value, a, turned)

    slot = tl.load(slots + token, mask=known, other=-1).to(tl.int64)
    kept = slot >= 0
    # page ids are int64 by now: a page's first element may lie past 2**31
    page, offset = slot // PAGE, slot % PAGE
    q_place = queries + (token * HEADS + head) * DIM
    k_place = keys + page * key_page + offset * key_slot + (head - HEADS) * key_head
    v_place = values + page * value_page + offset * value_slot + (head - HEADS - KV_HEADS) * value_head
    _store(a, first, paired, kept, q_place, k_place, v_place, is_query, is_key, is_value)
    _store(b, second, paired, kept, q_place, k_place, v_place, is_query, is_key, is_value)
    if TAIL_BLOCK:
        _store(c, rest, trailing, kept, q_place, k_place, v_place, is_query, is_key, is_value)


@triton.jit
def _normed(part, rate, q_weights, k_weights, inside, is_query, is_key):
    """part [ROWS, n] float32; values stay as they are."""
    weight = tl.load(q_weights, mask=inside & is_query, other=0.0)
    weight += tl.load(k_weights, mask=inside & is_key, other=0.0)
    return tl.where(is_query | is_key, part * rate * weight, part)


@triton.jit
def _store(part, dims, inside, kept, q_place, k_place, v_place, is_query, is_key, is_value):
    """Each row's part [ROWS, n] to where it belongs, at `dims` of it."""
    tl.store(q_place + dims, tl.where(kept, part, 0.0), mask=inside & is_query)
    tl.store(k_place + dims, part, mask=inside & is_key & kept)
    tl.store(v_place + dims, part, mask=inside & is_value & kept)

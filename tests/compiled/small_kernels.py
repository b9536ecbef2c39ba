"""Kernels whose figures are known beforehand."""

import triton
import triton.language as tl


@triton.jit
def gather_dot(out, q, cache, table, length, page_stride, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    """q [M, D] times the positions of a page table, and back: two products over tiles found through pages of 16."""
    rows, columns, dims = tl.arange(0, M)[:, None], tl.arange(0, N), tl.arange(0, D)
    mine = tl.load(q + rows * D + dims)
    sums = tl.zeros((M, D), tl.float32)
    for start in range(0, length, N):
        at = start + columns
        seen = at < length
        page = tl.load(table + at // 16, seen, 0).to(tl.int64)
        tile = tl.load(cache + (page * page_stride + at % 16 * D)[:, None] + dims, seen[:, None], 0.0)
        sums = tl.dot(tl.dot(mine, tl.trans(tile)).to(mine.dtype), tile, sums)
    tl.store(out + rows * D + dims, sums.to(mine.dtype))


@triton.jit
def copy(source, target, step, count, BLOCK: tl.constexpr):
    """Every step-th element."""
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + places, tl.load(source + places * step, places < count), places < count)


@triton.jit
def too_wide(source, target, BLOCK: tl.constexpr):
    """Holds many tiles at once in one warp."""
    places = tl.arange(0, BLOCK)
    first = tl.load(source + places)
    sums = tl.cumsum(first, 0)
    others = tl.load(source + BLOCK + places)
    tl.store(target + places, sums * tl.cumsum(others * first, 0) + others)

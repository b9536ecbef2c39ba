"""Where top_k, top_p and min_p cut a row, exactly and without a sort: as a logit, and how many of its equals are kept.

A token is kept while what comes before it, in the order (logit falling, id rising), is less than a limit: top_k counts
tokens, top_p adds their weights exp((logit - highest) / temperature). The logit at the limit is found digit by digit
(radix select), in its bits put in order: four passes over the row, 256 bins each. Sums are integers, so that they hang
on no order. top_p under top_k takes a second search, among what the first one kept.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from .sampling_records import MIN_P, TEMPERATURE, TOP_K, TOP_P, integer, number

DIGITS = 4
BINS: tl.constexpr = tl.constexpr(256)
COPIES: tl.constexpr = tl.constexpr(4)  # of each histogram, as many tiles would wait for one another
WEIGHT_ONE: tl.constexpr = tl.constexpr(2.0**43)  # the highest token's weight: 2**20 of them are an int64 still
SIGN: tl.constexpr = tl.constexpr(0x80000000)
ALL: tl.constexpr = tl.constexpr(0xFFFFFFFF)
LOWEST_KEY: tl.constexpr = tl.constexpr(0x007FFFFF)  # of minus infinity

# A row's cut, int64 words: the key of the logit at the limit, how many of its equals are kept and how many there are,
# what those left out weigh, and the key of the lowest logit that passes min_p.
KEY: tl.constexpr = tl.constexpr(0)
KEPT: tl.constexpr = tl.constexpr(1)
TIES: tl.constexpr = tl.constexpr(2)
LEFT_OUT: tl.constexpr = tl.constexpr(3)
MIN_KEY: tl.constexpr = tl.constexpr(4)
CUT_WORDS: tl.constexpr = tl.constexpr(5)


class Cuts(NamedTuple):
    """cuts [R, CUT_WORDS] int64, and ties [R, tiles] int32: how many equals of the logit at the limit a tile has."""

    cuts: Tensor
    ties: Tensor


def find_cuts(logits: Tensor, seats: Tensor, records: Tensor, tops: Tensor, *, twice: bool, block: int) -> Cuts:
    """Of logits [R, V] of any float dtype and row stride; tops [R, tiles] float32: the highest of each tile of `block`.

    twice: some row may have both top_k and top_p. Rows without a cut, and those with a top that is not finite, get one
    that keeps all.
    """
    rows, vocab = logits.shape
    tiles = tops.shape[1]
    device = logits.device
    histograms = torch.zeros(rows, DIGITS, COPIES.value, BINS.value, dtype=torch.int64, device=device)
    searches = torch.empty(rows, DIGITS, 2, dtype=torch.int64, device=device)
    cuts = torch.empty(rows, CUT_WORDS.value, dtype=torch.int64, device=device)
    ties = torch.empty(rows, tiles, dtype=torch.int32, device=device)
    shared = (seats, records, tops, histograms, searches, cuts)
    padded = triton.next_power_of_2(tiles)
    for second in (False, True) if twice else (False,):
        if second:
            histograms.zero_()
        for digit in range(DIGITS):
            _radix_pass[(rows, tiles)](
                logits,
                logits.stride(0),
                *shared,
                vocab,
                tiles,
                SECOND=second,
                DIGIT=digit,
                TILES=padded,
                BLOCK=block,
                num_warps=8,
            )
        _settle[(rows,)](*shared, tiles, SECOND=second, TILES=padded, num_warps=4)
    _count_ties[(rows, tiles)](logits, logits.stride(0), cuts, ties, vocab, tiles, BLOCK=block, num_warps=8)
    return Cuts(cuts, ties)


@triton.jit
def kept_in_tile(x, cuts, ties, tiles, TILES: tl.constexpr):
    """Which logits x of a program's tile pass its row's cuts."""
    row = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    cut = cuts + row * CUT_WORDS
    key = _key(x)
    edge = tl.load(cut + KEY)
    kept = tl.load(cut + KEPT)
    passes = key >= edge
    if kept < tl.load(cut + TIES):
        across = tl.arange(0, TILES)
        before = tl.sum(tl.load(ties + row * tiles + across, mask=across < tile, other=0), 0)
        equal = key == edge
        rank = before + tl.cumsum(equal.to(tl.int32), 0) - 1
        passes = (key > edge) | (equal & (rank < kept))
    return passes & (key >= tl.load(cut + MIN_KEY))


@triton.jit
def _radix_pass(
    logits,
    row_stride,
    seats,
    records,
    tops,
    histograms,
    searches,
    cuts,
    vocab,
    tiles,
    SECOND: tl.constexpr,
    DIGIT: tl.constexpr,
    TILES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Add a tile's tokens to the histogram of one digit, those that agree with the limit's key in the digits before."""
    row = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    seat = tl.load(seats + row)
    top = _top_of_searched(tops + row * tiles, tiles, records, seat, SECOND, TILES)
    if top < float("inf"):
        prefix, _ = _search(row, records, seat, histograms, searches, cuts, SECOND, DIGIT)
        ids = tile * BLOCK + tl.arange(0, BLOCK)
        inside = ids < vocab
        x = tl.load(logits + row * row_stride + ids, mask=inside, other=float("-inf")).to(tl.float32)
        key = _key(x)
        counts = inside
        if DIGIT > 0:
            counts = counts & ((key >> (32 - 8 * DIGIT)) == prefix)
        if SECOND:
            counts = counts & (key >= tl.load(cuts + row * CUT_WORDS + KEY))
        if tl.max(counts.to(tl.int32), 0) > 0:
            measure = counts.to(tl.int64)
            if _by_mass(records, seat, SECOND):
                measure = tl.where(counts, _weight(x, top, records, seat), 0)
            digit = (key >> (24 - 8 * DIGIT)) & 255
            histogram = histograms + ((row * 4 + DIGIT) * COPIES + tile % COPIES) * BINS
            tl.atomic_add(histogram + digit, measure, mask=measure > 0, sem="relaxed")


@triton.jit
def _settle(
    seats,
    records,
    tops,
    histograms,
    searches,
    cuts,
    tiles,
    SECOND: tl.constexpr,
    TILES: tl.constexpr,
):
    """A row's cut out of its histograms."""
    row = tl.program_id(0).to(tl.int64)
    seat = tl.load(seats + row)
    top = _top(tops + row * tiles, tiles, TILES)
    cut = cuts + row * CUT_WORDS
    if not SECOND:
        tl.store(cut + KEY, 0)
        tl.store(cut + KEPT, 0)
        tl.store(cut + TIES, 0)
        tl.store(cut + LEFT_OUT, 0)
        tl.store(cut + MIN_KEY, _min_key(top, records, seat))
    if _top_of_searched(tops + row * tiles, tiles, records, seat, SECOND, TILES) < float("inf"):
        key, remaining = _search(row, records, seat, histograms, searches, cuts, SECOND, 4)
        weight = _weight(_logit(key), top, records, seat)
        measure = tl.full([], 1, tl.int64)
        if _by_mass(records, seat, SECOND):
            measure = tl.maximum(weight, 1)
        masses = _masses(histograms + (row * 4 + 3) * COPIES * BINS)
        ties = tl.sum(tl.where(tl.arange(0, BINS) == (key & 255), masses, 0), 0) // measure
        kept = tl.minimum((remaining + measure - 1) // measure, ties)
        tl.store(cut + KEY, key)
        tl.store(cut + KEPT, kept)
        tl.store(cut + TIES, ties)
        tl.store(cut + LEFT_OUT, (ties - kept) * weight)


@triton.jit
def _count_ties(logits, row_stride, cuts, ties, vocab, tiles, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    cut = cuts + row * CUT_WORDS
    if tl.load(cut + KEPT) < tl.load(cut + TIES):
        ids = tile * BLOCK + tl.arange(0, BLOCK)
        inside = ids < vocab
        x = tl.load(logits + row * row_stride + ids, mask=inside, other=float("-inf")).to(tl.float32)
        equal = inside & (_key(x) == tl.load(cut + KEY))
        tl.store(ties + row * tiles + tile, tl.sum(equal.to(tl.int32), 0))


@triton.jit
def _search(row, records, seat, histograms, searches, cuts, SECOND: tl.constexpr, DIGIT: tl.constexpr):
    """How far the search is after DIGIT digits: the limit's key so far, and what is still before it among those that
    agree. Each program of a row finds the same and leaves it for the next pass."""
    prefix = tl.full([], 0, tl.int64)
    remaining = tl.full([], 0, tl.int64)
    if DIGIT > 0:
        masses = _masses(histograms + (row * 4 + DIGIT - 1) * COPIES * BINS)
        state = searches + (row * 4 + DIGIT - 1) * 2
        if DIGIT == 1:
            remaining = _limit(tl.sum(masses, 0), cuts + row * CUT_WORDS, records, seat, SECOND)
        else:
            prefix = tl.load(searches + (row * 4 + DIGIT - 2) * 2)
            remaining = tl.load(searches + (row * 4 + DIGIT - 2) * 2 + 1)
        bins = tl.arange(0, BINS)
        reached = tl.sum(masses, 0) - tl.cumsum(masses, 0) + masses
        digit = tl.max(tl.where(reached >= remaining, bins, 0), 0)
        remaining -= tl.sum(tl.where(bins > digit, masses, 0), 0)
        prefix = prefix * 256 + digit
        tl.store(state, prefix)
        tl.store(state + 1, remaining)
    return prefix, remaining


@triton.jit
def _limit(total, cut, records, seat, SECOND: tl.constexpr):
    """What must come before a token that is shut out: so many tokens, or so much of the mass."""
    limit = integer(records, seat, TOP_K)
    if _by_mass(records, seat, SECOND):
        if SECOND:
            total -= tl.load(cut + LEFT_OUT)
        share = number(records, seat, TOP_P) * total.to(tl.float64)
        limit = share.to(tl.int64)
        limit += (limit.to(tl.float64) < share).to(tl.int64)
    return limit


@triton.jit
def _top_of_searched(tops, tiles, records, seat, SECOND: tl.constexpr, TILES: tl.constexpr):
    """The highest logit of a row that takes part: first under top_k, or else top_p, then under top_p if it has both.
    Infinite for other rows, and for those that are not finite."""
    by_count = integer(records, seat, TOP_K) > 0
    by_mass = number(records, seat, TOP_P) < float("inf")
    top = float("inf")
    if (by_count & by_mass) if SECOND else (by_count | by_mass):
        found = _top(tops, tiles, TILES)
        top = tl.where(found > float("-inf"), found, top)
    return top


@triton.jit
def _by_mass(records, seat, SECOND: tl.constexpr):
    return (integer(records, seat, TOP_K) == 0) | SECOND


@triton.jit
def _masses(histogram):
    """A histogram's bins, [BINS] int64, its copies added."""
    bins = tl.arange(0, BINS)
    masses = tl.load(histogram + bins)
    for copy in tl.static_range(1, COPIES):
        masses += tl.load(histogram + copy * BINS + bins)
    return masses


@triton.jit
def _weight(x, top, records, seat):
    """int64, in parts of WEIGHT_ONE."""
    temperature = number(records, seat, TEMPERATURE).to(tl.float32)
    return (tl.exp((x - top) / temperature) * WEIGHT_ONE).to(tl.int64)


@triton.jit
def _min_key(top, records, seat):
    """The lowest key that passes min_p, by halving: the test rises with the logit, and is the CPU's to the last bit."""
    low = tl.full([], LOWEST_KEY, tl.int64)
    least = number(records, seat, MIN_P)
    if (least > float("-inf")) & (tl.abs(top) < float("inf")):
        temperature = number(records, seat, TEMPERATURE)
        highest = top.to(tl.float64) / temperature
        high = _key(top).to(tl.int64)
        for _ in range(32):
            middle = (low + high) // 2
            passes = _logit(middle).to(tl.float64) / temperature - highest >= least
            high = tl.where(passes, middle, high)
            low = tl.where(passes, low, tl.minimum(middle + 1, high))
    return low


@triton.jit
def _top(tops, tiles, TILES: tl.constexpr):
    """A row's highest logit."""
    across = tl.arange(0, TILES)
    return tl.max(tl.load(tops + across, mask=across < tiles, other=float("-inf")), 0)


@triton.jit
def _key(x):
    """uint32 keys in the order of the logits x, float32; both zeros are one."""
    bits = tl.where(x == 0.0, 0.0, x).to(tl.uint32, bitcast=True)
    return tl.where(bits >= SIGN, bits ^ ALL, bits | SIGN)


@triton.jit
def _logit(key):
    """The float32 of a key, int64."""
    bits = tl.where(key >= SIGN, key ^ SIGN, key ^ ALL)
    return bits.to(tl.uint32).to(tl.float32, bitcast=True)

"""What changes logits before the draw, in one pass over them: bias, ids ruled out, penalties for earlier tokens.

What is known of a seat's ids is one int32 for each id of the vocabulary: marks in its low bits, above them how often
the id was drawn. The CPU's form is engine/model/penalties.py and logit_masks.py; each value here is that one to the
last bit, as long as the bias fits float32. A mask that would leave a row nothing to draw is not applied to it.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .sampling_records import (
    BIAS,
    FREQUENCY,
    MARKS,
    MIN_TOKENS,
    PRESENCE,
    PROMPT_LEN,
    REPETITION,
    WORDS,
    integer,
    number,
)

IN_PROMPT: tl.constexpr = tl.constexpr(1)
ALLOWED: tl.constexpr = tl.constexpr(2)
BANNED: tl.constexpr = tl.constexpr(4)  # a bad word of one id
STOP: tl.constexpr = tl.constexpr(8)
ENDS_WORD: tl.constexpr = tl.constexpr(16)  # the last id of a bad word whose other ids came; gone after the step
ONCE: tl.constexpr = tl.constexpr(32)  # added for each time that the id was drawn
COUNT_SHIFT: tl.constexpr = tl.constexpr(5)

LARGEST: tl.constexpr = tl.constexpr(3.4028234663852886e38)

# An id's class is bit 0: allowed, bit 1: banned, bit 2: a stop id. Sets of classes are 8 bits.
ALLOWED_CLASSES: tl.constexpr = tl.constexpr(0b10101010)
UNBANNED_CLASSES: tl.constexpr = tl.constexpr(0b00110011)
UNSTOPPED_CLASSES: tl.constexpr = tl.constexpr(0b00001111)

WORD_BLOCK = 256


def mark_word_ends(
    seats: Tensor, positions: Tensor, records: Tensor, words: Tensor, tails: Tensor, marks: Tensor
) -> None:
    """Mark the last id of each bad word whose other ids end the row's tokens.

    seats, positions [R] int32. words [P, W, L] int32: each row of marks' bad words, filled up with -1 at the front.
    tails [P, N] int32: the newest N >= L tokens of each, the token at position p at p % N. marks [P, V] int32.
    """
    _, most, length = words.shape
    block = min(WORD_BLOCK, triton.next_power_of_2(most))
    _mark_word_ends[(len(seats), triton.cdiv(most, block))](
        seats,
        positions,
        records,
        words,
        tails,
        marks,
        most,
        marks.shape[1],
        LENGTH=length,
        TAIL=tails.shape[1],
        BLOCK=block,
        num_warps=4,
    )


def shape(
    logits: Tensor,
    seats: Tensor,
    positions: Tensor,
    records: Tensor,
    marks: Tensor,
    bias: Tensor,
    tops: Tensor,
    classes: Tensor,
    block: int,
) -> tuple[Tensor, Tensor]:
    """Logits [R, V] of any float dtype and row stride -> what is drawn from, [R, V] float32, and its tiles' highest.

    marks [P, V] int32, bias [B, V] float32: by the rows that the seats' records name. tops [R, tiles] float32 and
    classes [R, tiles] int32: each tile's highest logit and its classes, as survey() in sampling.py finds them.
    """
    rows, vocab = logits.shape
    shaped = torch.empty(rows, vocab, dtype=torch.float32, device=logits.device)
    highest = torch.empty_like(tops)
    tiles = tops.shape[1]
    _shape[(rows, tiles)](
        logits,
        logits.stride(0),
        seats,
        positions,
        records,
        marks,
        bias,
        tops,
        classes,
        shaped,
        highest,
        vocab,
        tiles,
        TILES=triton.next_power_of_2(tiles),
        BLOCK=block,
        num_warps=8,
    )
    return shaped, highest


@triton.jit
def classes_of(mark, seen):
    """The set of classes, int32 scalar, of those ids that are `seen`; `mark` and `seen` are a tile's."""
    place = ((mark & ALLOWED) != 0).to(tl.int32)
    place += ((mark & (BANNED | ENDS_WORD)) != 0).to(tl.int32) * 2
    place += ((mark & STOP) != 0).to(tl.int32) * 4
    return _union(tl.where(seen, 1 << place, 0))


@triton.jit
def _union(sets):
    """The classes that are in any of some sets."""
    union = tl.full([], 0, tl.int32)
    for place in tl.static_range(8):
        union += tl.max((sets >> place) & 1, 0) << place
    return union


@triton.jit
def _mark_word_ends(
    seats,
    positions,
    records,
    words,
    tails,
    marks,
    most,
    vocab,
    LENGTH: tl.constexpr,
    TAIL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    seat = tl.load(seats + row)
    count = integer(records, seat, WORDS)
    if count > 0:
        mine = integer(records, seat, MARKS)
        known = integer(records, seat, PROMPT_LEN) + tl.load(positions + row)
        which = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        inside = which < count
        word = words + (mine * most + which) * LENGTH
        matches = inside
        for back in tl.static_range(1, LENGTH):
            wanted = tl.load(word + LENGTH - 1 - back, mask=inside, other=-1)
            came = tl.load(tails + mine * TAIL + (known - back) % TAIL, mask=known >= back, other=-1)
            matches = matches & ((wanted < 0) | (wanted == came))
        last = tl.load(word + LENGTH - 1, mask=inside, other=-1)
        matches = matches & (last >= 0) & (last < vocab)
        tl.atomic_or(marks + mine * vocab + last, tl.full([BLOCK], ENDS_WORD, tl.int32), mask=matches)


@triton.jit
def _shape(
    logits,
    row_stride,
    seats,
    positions,
    records,
    marks,
    bias,
    tops,
    classes,
    shaped,
    highest,
    vocab,
    tiles,
    TILES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    ids = tile * BLOCK + tl.arange(0, BLOCK)
    inside = ids < vocab
    x = tl.load(logits + row * row_stride + ids, mask=inside, other=float("-inf")).to(tl.float32)
    seat = tl.load(seats + row)
    marked = integer(records, seat, MARKS)
    biased = integer(records, seat, BIAS)
    if biased >= 0:
        added = tl.load(bias + biased * vocab + ids, mask=inside, other=0.0)
        x = _rounded(x.to(tl.float64) + added.to(tl.float64))
    if marked >= 0:
        place = marks + marked * vocab + ids
        mark = tl.load(place, mask=inside, other=0)
        across = tl.arange(0, TILES)
        left = tl.load(classes + row * tiles + across, mask=across < tiles, other=0)
        early = tl.load(positions + row) < integer(records, seat, MIN_TOKENS)
        banned = _banned(mark, _union(left), early)
        x = tl.where(banned, float("-inf"), _penalized(x, mark, records, seat))
        if integer(records, seat, WORDS) > 0:
            tl.store(place, mark & ~ENDS_WORD, mask=inside & ((mark & ENDS_WORD) != 0))
    tl.store(shaped + row * vocab + ids, x, mask=inside)
    tl.store(highest + row * tiles + tile, _highest(x, tops + row * tiles, tiles, TILES))


@triton.jit
def _banned(mark, left, early):
    """Which ids of a tile may not come. left: the classes of all ids of the row that could come before any mask."""
    only_allowed = (left & ALLOWED_CLASSES) != 0
    left = tl.where(only_allowed, left & ALLOWED_CLASSES, left)
    no_words = (left & UNBANNED_CLASSES) != 0
    left = tl.where(no_words, left & UNBANNED_CLASSES, left)
    no_stops = early & ((left & UNSTOPPED_CLASSES) != 0)
    banned = only_allowed & ((mark & ALLOWED) == 0)
    banned = banned | (no_words & ((mark & (BANNED | ENDS_WORD)) != 0))
    return banned | (no_stops & ((mark & STOP) != 0))


@triton.jit
def _penalized(x, mark, records, seat):
    """float32: repetition, then frequency and presence, each computed in float64 and rounded once."""
    repetition = number(records, seat, REPETITION)
    frequency = number(records, seat, FREQUENCY)
    presence = number(records, seat, PRESENCE)
    drawn = mark >> COUNT_SHIFT
    if repetition != 1.0:
        wide = x.to(tl.float64)
        known = (drawn > 0) | ((mark & IN_PROMPT) != 0)
        x = tl.where(known, _rounded(tl.where(wide > 0, wide / repetition, wide * repetition)), x)
    if (frequency != 0.0) | (presence != 0.0):
        less = x.to(tl.float64) - frequency * drawn.to(tl.float64) - presence
        x = tl.where(drawn > 0, _rounded(less), x)
    return x


@triton.jit
def _rounded(wide):
    """float64 to float32, where what is finite stays so."""
    finite = tl.minimum(tl.maximum(wide, -LARGEST), LARGEST)
    return tl.where(wide == float("-inf"), float("-inf"), finite.to(tl.float32))


@triton.jit
def _highest(x, tops, tiles, TILES: tl.constexpr):
    """A tile's highest, or +inf in a row that has something not finite, which a mask must not hide."""
    across = tl.arange(0, TILES)
    raw = tl.max(tl.load(tops + across, mask=across < tiles, other=float("-inf")), 0)
    return tl.where(raw == float("inf"), raw, tl.max(x, 0))

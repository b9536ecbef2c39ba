"""One token for each row of logits, on the device: engine/model/sampler.py's, but where two scores are nearly equal.

A row is cut into tiles, a program each, and a last small kernel joins what they found. Draws are Gumbel-max: noise in
float32 tells which tokens of a tile can win, and only their scores are computed in float64, as the CPU does.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from .penalties import ONCE, classes_of, mark_word_ends, shape
from .sampling_cuts import find_cuts, kept_in_tile
from .sampling_noise import gumbel, noise_bits, rough_gumbel, row_key
from .sampling_records import MARKS, PROMPT_LEN, SEED, TEMPERATURE, WORDS, integer, number

BLOCK = 2048  # logits of a tile
SLACK: tl.constexpr = tl.constexpr(1e-3)  # far more than rough scores near a row's highest can err
NOT_FINITE: tl.constexpr = tl.constexpr(-1)


class Tables(NamedTuple):
    """What is kept on the device of every seat.

    records [seats, FIELDS] int64: sampling_records.Record. marks [P, V] int32, bias [B, V] float32, words [P, W, L]
    int32 and tails [P, N] int32: as penalties.py has them.
    """

    records: Tensor
    marks: Tensor
    bias: Tensor
    words: Tensor
    tails: Tensor


class Needs(NamedTuple):
    """What some row of a step needs, which decides what is launched. More than is needed changes no token."""

    draws: bool = True  # is not greedy
    cuts: bool = True  # has top_k, top_p or min_p
    cuts_twice: bool = True  # has top_k and top_p
    shapes: bool = True  # has marks or bias
    words: bool = True  # has bad words of several ids


def sample(
    logits: Tensor,
    seats: Tensor,
    positions: Tensor,
    tables: Tables,
    needs: Needs,
    newest: Tensor | None = None,
    block: int = BLOCK,
) -> Tensor:
    """Tokens [R] int64 for logits [R, V] of any float dtype and row stride; nothing is waited for.

    seats [R] int32: distinct but for those without marks. positions [R] int32: how many outputs each request has yet.
    newest [seats] int64: each row's token is put there too, at its seat. A row that is not finite, but for minus
    infinity, or that has nothing else, gives NOT_FINITE. A token counts in its seat's marks and tail from now on.
    """
    rows, vocab = logits.shape
    if logits.stride(1) != 1:
        raise ValueError(f"a row of logits must lie in one piece, not at stride {logits.stride(1)}")
    tokens = torch.empty(rows, dtype=torch.int64, device=logits.device)
    if not rows:
        return tokens
    block = min(block, triton.next_power_of_2(vocab))
    tiles = triton.cdiv(vocab, block)
    tops = torch.empty(rows, tiles, dtype=torch.float32, device=logits.device)
    if needs.shapes:
        classes = torch.empty(rows, tiles, dtype=torch.int32, device=logits.device)
        if needs.words:
            mark_word_ends(seats, positions, tables.records, tables.words, tables.tails, tables.marks)
        _survey(logits, seats, tables, tops, classes, block)
        logits, tops = shape(logits, seats, positions, tables.records, tables.marks, tables.bias, tops, classes, block)
    elif needs.draws:
        _survey(logits, seats, tables, tops, None, block)
    scores = torch.empty(rows, tiles, dtype=torch.float64, device=logits.device)
    winners = torch.empty(rows, tiles, dtype=torch.int32, device=logits.device)
    cut = find_cuts(logits, seats, tables.records, tops, twice=needs.cuts_twice, block=block) if needs.cuts else None
    padded = triton.next_power_of_2(tiles)
    _draw_tile[(rows, tiles)](
        logits,
        logits.stride(0),
        seats,
        positions,
        tables.records,
        tops,
        cut.cuts if cut else None,
        cut.ties if cut else None,
        scores,
        winners,
        vocab,
        tiles,
        DRAWS=needs.draws,
        CUTS=needs.cuts,
        TILES=padded,
        BLOCK=block,
        num_warps=8,
    )
    _pick[(rows,)](
        scores,
        winners,
        seats,
        positions,
        tables.records,
        tables.marks,
        tables.tails,
        tokens,
        newest,
        vocab,
        tiles,
        MARKED=needs.shapes,
        KEEPS=newest is not None,
        TAIL=tables.tails.shape[1],
        TILES=padded,
        num_warps=1,
    )
    return tokens


def _survey(logits: Tensor, seats: Tensor, tables: Tables, tops: Tensor, classes: Tensor | None, block: int) -> None:
    """Fill tops [R, tiles] with the tiles' highest logits, +inf where something is not finite, and `classes`."""
    rows, tiles = tops.shape
    _survey_tile[(rows, tiles)](
        logits,
        logits.stride(0),
        seats,
        tables.records,
        tables.marks,
        tops,
        classes,
        logits.shape[1],
        tiles,
        CLASSES=classes is not None,
        BLOCK=block,
        num_warps=8,
    )


@triton.jit
def _survey_tile(
    logits,
    row_stride,
    seats,
    records,
    marks,
    tops,
    classes,
    vocab,
    tiles,
    CLASSES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    ids = tile * BLOCK + tl.arange(0, BLOCK)
    inside = ids < vocab
    x = tl.load(logits + row * row_stride + ids, mask=inside, other=float("-inf")).to(tl.float32)
    tl.store(tops + row * tiles + tile, tl.max(tl.where(x == x, x, float("inf")), 0))
    if CLASSES:
        marked = integer(records, tl.load(seats + row), MARKS)
        mark = tl.load(marks + marked * vocab + ids, mask=ids < tl.where(marked >= 0, vocab, 0), other=0)
        tl.store(classes + row * tiles + tile, classes_of(mark, x > float("-inf")))


@triton.jit
def _draw_tile(
    logits,
    row_stride,
    seats,
    positions,
    records,
    tops,
    cuts,
    ties,
    scores,
    winners,
    vocab,
    tiles,
    DRAWS: tl.constexpr,
    CUTS: tl.constexpr,
    TILES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The best score of a tile, float64, and its id; +inf where the row has something that is not finite."""
    row = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    ids = tile * BLOCK + tl.arange(0, BLOCK)
    inside = ids < vocab
    x = tl.load(logits + row * row_stride + ids, mask=inside, other=float("-inf")).to(tl.float32)
    score, winner = _likeliest(x, ids, vocab)
    if DRAWS:
        seat = tl.load(seats + row)
        temperature = number(records, seat, TEMPERATURE)
        if temperature > 0.0:
            across = tl.arange(0, TILES)
            top = tl.max(tl.load(tops + row * tiles + across, mask=across < tiles, other=float("-inf")), 0)
            kept = x > float("-inf")
            if CUTS:
                kept = kept & kept_in_tile(x, cuts, ties, tiles, TILES)
            bits = noise_bits(row_key(integer(records, seat, SEED), tl.load(positions + row)), ids)
            score, winner = _best_draw(x, kept, ids, bits, top, temperature, vocab)
            score = tl.where(top < float("inf"), score, float("inf"))
    tl.store(scores + row * tiles + tile, score)
    tl.store(winners + row * tiles + tile, winner)


@triton.jit
def _likeliest(x, ids, vocab):
    """A tile's highest logit, as float64, and the lowest id that has it."""
    x = tl.where(x == x, x, float("inf"))
    best = tl.max(x, 0)
    return best.to(tl.float64), tl.min(tl.where(x == best, ids, vocab), 0)


@triton.jit
def _best_draw(x, kept, ids, bits, top, temperature, vocab):
    """A tile's best score and the lowest id that has it. Where rough scores leave one candidate, one is computed."""
    finite = tl.where(tl.abs(top) < float("inf"), top, 0.0)
    rough = (x - finite) / temperature.to(tl.float32) + rough_gumbel(bits)
    rough = tl.where(kept, rough, float("-inf"))
    close = kept & (rough >= tl.max(rough, 0) - SLACK)
    if tl.sum(close.to(tl.int32), 0) == 1:
        logit = tl.max(tl.where(close, x, float("-inf")), 0)
        score = logit.to(tl.float64) / temperature + gumbel(tl.max(tl.where(close, bits, 0), 0))
        winner = tl.max(tl.where(close, ids, 0), 0)
    else:
        exact = x.to(tl.float64) / temperature + gumbel(bits)
        exact = tl.where(close, exact, float("-inf"))
        score = tl.max(exact, 0)
        winner = tl.min(tl.where(close & (exact == score), ids, vocab), 0)
    return score, winner


@triton.jit
def _pick(
    scores,
    winners,
    seats,
    positions,
    records,
    marks,
    tails,
    tokens,
    newest,
    vocab,
    tiles,
    MARKED: tl.constexpr,
    KEEPS: tl.constexpr,
    TAIL: tl.constexpr,
    TILES: tl.constexpr,
):
    """A row's token out of its tiles' best: the lowest id of equals. It is remembered where the seat needs it."""
    row = tl.program_id(0).to(tl.int64)
    across = tl.arange(0, TILES)
    score = tl.load(scores + row * tiles + across, mask=across < tiles, other=float("-inf"))
    winner = tl.load(winners + row * tiles + across, mask=across < tiles, other=vocab)
    best = tl.max(score, 0)
    finite = tl.abs(best) < float("inf")
    token = tl.where(finite, tl.min(tl.where(score == best, winner, vocab), 0), NOT_FINITE).to(tl.int64)
    tl.store(tokens + row, token)
    seat = tl.load(seats + row).to(tl.int64)
    if KEEPS:
        tl.store(newest + seat, token)
    if MARKED:
        marked = integer(records, seat, MARKS)
        if (marked >= 0) & finite:
            place = marks + marked * vocab + token
            tl.store(place, tl.load(place) + ONCE)
            if integer(records, seat, WORDS) > 0:
                known = integer(records, seat, PROMPT_LEN) + tl.load(positions + row)
                tl.store(tails + marked * TAIL + known % TAIL, token.to(tl.int32))

"""Log probabilities of tokens, their ranks and the likeliest ids: engine/model/logprobs.py, on the device."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096
FLOOR = -9999.0  # what is told of a token that cannot come


class Logprobs(NamedTuple):
    """Of L rows: ids [L, 1 + N] int64, the token and the N likeliest; their values [L, 1 + N] float64; ranks [L] int64.

    A row that is not finite, but for minus infinity, or that has nothing else, has FLOOR as values and -V as its rank.
    """

    ids: Tensor
    values: Tensor
    ranks: Tensor


def token_logprobs(logits: Tensor, tokens: Tensor, most: int, block: int = BLOCK) -> Logprobs:
    """Of raw logits [L, V] of any float dtype and row stride, beside tokens [L] int64 (below 0: of no token).

    most: N, how many of the likeliest to add; of equals the lowest ids.
    """
    rows, vocab = logits.shape
    block = min(block, triton.next_power_of_2(vocab))
    tiles = triton.cdiv(vocab, block)
    tokens = tokens.clamp(min=0)
    tops = torch.empty(rows, tiles, dtype=torch.float64, device=logits.device)
    masses = torch.empty_like(tops)
    above = torch.empty(rows, tiles, dtype=torch.int64, device=logits.device)
    if rows:
        _survey_tile[(rows, tiles)](
            logits, logits.stride(0), tokens, tops, masses, above, vocab, tiles, BLOCK=block, num_warps=8
        )
    top = tops.amax(dim=-1, keepdim=True)
    mass = (masses * (tops - top).exp()).sum(dim=-1, keepdim=True)
    known = top.isfinite() & (mass > 0)  # [L, 1]
    ids = torch.cat((tokens[:, None], _likeliest(logits, min(most, vocab))), dim=1)
    values = (logits.gather(1, ids).double() - (top + mass.log())).clamp(min=FLOOR)
    return Logprobs(ids, torch.where(known, values, FLOOR), torch.where(known[:, 0], above.sum(dim=-1), -vocab))


def _likeliest(logits: Tensor, count: int) -> Tensor:
    """The ids of each row's `count` highest logits [L, count], highest first, of equals the lowest first."""
    if not count:
        return torch.empty(len(logits), 0, dtype=torch.int64, device=logits.device)
    raw = (logits.float() + 0.0).view(torch.int32)  # + 0.0: no negative zero
    ordered = torch.where(raw < 0, raw ^ 0x7FFFFFFF, raw).long()
    return ((ordered << 32) - torch.arange(logits.shape[1], device=logits.device)).topk(count, dim=-1).indices


@triton.jit
def _survey_tile(
    logits,
    row_stride,
    tokens,
    tops,
    masses,
    above,
    vocab,
    tiles,
    BLOCK: tl.constexpr,
):
    """A tile's highest logit, the sum of exp(logit - highest), and how many are at least as likely as the token. Where
    something is not finite the highest is infinite; where all is minus infinity it is 0, and nothing has mass."""
    row = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    ids = tile * BLOCK + tl.arange(0, BLOCK)
    inside = ids < vocab
    source = logits + row * row_stride
    x = tl.load(source + ids, mask=inside, other=float("-inf")).to(tl.float32)
    mine = tl.load(source + tl.load(tokens + row)).to(tl.float32)
    top = tl.max(tl.where(x == x, x, float("inf")), 0)
    low = tl.where(tl.abs(top) < float("inf"), top, 0.0)
    place = row * tiles + tile
    tl.store(tops + place, tl.where(top < float("inf"), low, top).to(tl.float64))
    tl.store(masses + place, tl.sum(tl.exp(x - low), 0).to(tl.float64))
    tl.store(above + place, tl.sum((inside & (x >= mine)).to(tl.int64), 0))
